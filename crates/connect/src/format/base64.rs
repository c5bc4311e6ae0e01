//! Standard base64 with padding (RFC 4648): how `bytes` fields and raw rejects are written as text.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

const VALUES: [u8; 256] = {
    let mut values = [0xFF_u8; 256];
    let mut index = 0;
    while index < 64 {
        values[ALPHABET[index] as usize] = index as u8;
        index += 1;
    }
    values
};

pub(crate) fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    for chunk in bytes.chunks(3) {
        let word =
            chunk.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for digit in 0..4 {
            out.push(if digit <= chunk.len() {
                ALPHABET[(word >> (18 - 6 * digit)) as usize & 63]
            } else {
                b'='
            });
        }
    }
}

/// Appends the bytes that `text` encodes; `None`, with nothing appended, if it is not base64.
/// Padding may be left out; bits past the last byte must be 0, so that each value has one text.
pub(crate) fn decode(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let digits = match text {
        [digits @ .., b'=', b'='] if text.len().is_multiple_of(4) => digits,
        [digits @ .., b'='] if text.len().is_multiple_of(4) => digits,
        digits => digits,
    };
    let before = out.len();
    for chunk in digits.chunks(4) {
        let mut word = 0_u32;
        for digit in chunk {
            let value = VALUES[usize::from(*digit)];
            if value == 0xFF {
                out.truncate(before);
                return None;
            }
            word = word << 6 | u32::from(value);
        }
        word <<= 6 * (4 - chunk.len());
        let count = chunk.len() * 6 / 8;
        if chunk.len() == 1 || word.unbounded_shl(8 * (count as u32 + 1)) != 0 {
            out.truncate(before);
            return None;
        }
        out.extend_from_slice(&word.to_be_bytes()[1..=count]);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(text: &str) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        decode(text.as_bytes(), &mut out).map(|()| out)
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
        for text in ["Z", "Zh==", "Zm9=", "Z===", "Zm9v!", "Zg=a", "===="] {
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
