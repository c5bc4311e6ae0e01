//! Standard base64 with padding (RFC 4648): how text holds `bytes` fields and raw rejects.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

const ENGINE: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

pub(crate) fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    let before = out.len();
    out.resize(before + bytes.len().div_ceil(3) * 4, 0);
    let written = ENGINE.encode_slice(bytes, &mut out[before..]);
    debug_assert_eq!(written, Ok(out.len() - before));
}

/// Appends the bytes of `text`; `None`, with nothing appended, where it is not base64.
/// Padding is whole or left out; bits past the last byte must be 0, so that each value has one text.
pub(crate) fn decode(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    if text.ends_with(b"=") && !text.len().is_multiple_of(4) {
        return None;
    }
    let before = out.len();
    let decoded = ENGINE.decode_vec(text, out);
    if decoded.is_err() {
        out.truncate(before);
    }
    decoded.ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(text: &str) -> Option<Vec<u8>> {
        let mut out = b"before".to_vec();
        let appended = decode(text.as_bytes(), &mut out);
        let bytes = out.split_off(b"before".len());
        assert!(out == b"before" && (appended.is_some() || bytes.is_empty()), "{text}");
        appended.map(|()| bytes)
    }

    #[test]
    fn known_texts() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            let mut out = Vec::new();
            encode(bytes.as_bytes(), &mut out);
            assert_eq!(out, text.as_bytes());
            assert_eq!(decoded(text).as_deref(), Some(bytes.as_bytes()));
            assert_eq!(decoded(text.trim_end_matches('=')).as_deref(), Some(bytes.as_bytes()));
        }
        for text in ["Z", "Zh==", "Zm9=", "Z===", "Zm9v!", "Zg=a", "====", "Zg=", "Zm9v=", "Zm9vZg="] {
            assert_eq!(decoded(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn bytes_read_back(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut text = Vec::new();
            encode(&bytes, &mut text);
            prop_assert_eq!(decoded(std::str::from_utf8(&text).unwrap()), Some(bytes));
        }
    }
}
