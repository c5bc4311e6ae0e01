//! A template: the common part of names once their own addresses are taken out of them.
//!
//! `host-192-0-2-7.pool.isp.example` under 192.0.2.7 is the template `host-{a}-{b}-{c}-{d}.pool.isp.example`,
//! and so are the 255 names next to it.
//! A template may have one *slot*, in which each name puts text of its own: `mail{text}.isp.example`.
//!
//! As bytes, on disk and in memory alike, a template is its parts one after the other:
//!
//! | first byte | part |
//! |---|---|
//! | `01` to `7f` | this number of bytes of literal text follow |
//! | `80` + 16 × style + octet | an octet of the key (4 bits: which of the 16) in a [`Style`] |
//! | `f0` | the slot |
//! | `f1` | the last four octets as one decimal number |
//!
//! The template without parts is the empty name.
//! Persisted, do not renumber.

/// How an octet is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Decimal = 0,
    /// Decimal, always three digits.
    Padded = 1,
    /// Hexadecimal, always two digits.
    Hex = 2,
    HexUpper = 3,
}

const OCTET: u8 = 0x80;
pub(crate) const SLOT: u8 = 0xf0;
const NUMBER: u8 = 0xf1;
const LITERAL_MAX: usize = 0x7f;

/// The decimal digits of 0 to 255, padded, and where they begin without the padding.
const DIGITS: [([u8; 3], u8); 256] = {
    let mut table = [([0_u8; 3], 0_u8); 256];
    let mut value = 0;
    while value < 256 {
        let digits = [b'0' + (value / 100) as u8, b'0' + (value / 10 % 10) as u8, b'0' + (value % 10) as u8];
        table[value] = (
            digits,
            if value >= 100 {
                0
            } else if value >= 10 {
                1
            } else {
                2
            },
        );
        value += 1;
    }
    table
};

/// Appends literal text to a template.
pub(crate) fn push_literal(template: &mut Vec<u8>, text: &[u8]) {
    for piece in text.chunks(LITERAL_MAX) {
        template.push(piece.len() as u8);
        template.extend_from_slice(piece);
    }
}

pub(crate) fn push_octet(template: &mut Vec<u8>, style: Style, octet: usize) {
    template.push(OCTET | (style as u8) << 4 | octet as u8);
}

pub(crate) fn push_number(template: &mut Vec<u8>) {
    template.push(NUMBER);
}

/// One part, taken apart.
enum Part<'a> {
    Literal(&'a [u8]),
    Octet(Style, usize),
    Slot,
    Number,
}

/// The parts of a template; `None` if the bytes are invalid.
struct Parts<'a>(&'a [u8]);

impl<'a> Iterator for Parts<'a> {
    type Item = Option<Part<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (&tag, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(match tag {
            1..=0x7f => match rest.split_at_checked(usize::from(tag)) {
                Some((text, rest)) => {
                    self.0 = rest;
                    Some(Part::Literal(text))
                }
                None => {
                    self.0 = &[];
                    None
                }
            },
            OCTET..=0xbf => {
                let style = match (tag >> 4) & 3 {
                    0 => Style::Decimal,
                    1 => Style::Padded,
                    2 => Style::Hex,
                    _ => Style::HexUpper,
                };
                Some(Part::Octet(style, usize::from(tag & 15)))
            }
            SLOT => Some(Part::Slot),
            NUMBER => Some(Part::Number),
            _ => None,
        })
    }
}

/// The octet as written, in a buffer and from which byte on.
#[inline]
fn octet_text(style: Style, octet: u8) -> ([u8; 3], usize) {
    let hex = |digits: &[u8; 16]| ([0, digits[usize::from(octet >> 4)], digits[usize::from(octet & 15)]], 1);
    let (digits, start) = DIGITS[usize::from(octet)];
    match style {
        Style::Decimal => (digits, usize::from(start)),
        Style::Padded => (digits, 0),
        Style::Hex => hex(b"0123456789abcdef"),
        Style::HexUpper => hex(b"0123456789ABCDEF"),
    }
}

fn number_of(key: &[u8; 16]) -> u32 {
    u32::from_be_bytes([key[12], key[13], key[14], key[15]])
}

/// Appends the name of `key` to `out`; `slot` appends the text in the slot and says whether it could.
/// `None` where the template or the slot's text is damaged.
#[inline]
pub(crate) fn expand(
    template: &[u8],
    key: &[u8; 16],
    out: &mut Vec<u8>,
    mut slot: impl FnMut(&mut Vec<u8>) -> Option<()>,
) -> Option<()> {
    for part in Parts(template) {
        match part? {
            Part::Literal(text) => out.extend_from_slice(text),
            Part::Octet(style, octet) => {
                let (digits, start) = octet_text(style, key[octet]);
                out.extend_from_slice(&digits[start..]);
            }
            Part::Slot => slot(out)?,
            Part::Number => {
                let mut value = number_of(key);
                let mut digits = [0_u8; 10];
                let mut start = digits.len();
                loop {
                    start -= 1;
                    digits[start] = b'0' + (value % 10) as u8;
                    value /= 10;
                    if value == 0 {
                        break;
                    }
                }
                out.extend_from_slice(&digits[start..]);
            }
        }
    }
    Some(())
}

/// Whether a template without a slot makes exactly `name` of `key`.
pub(crate) fn makes(template: &[u8], key: &[u8; 16], name: &[u8]) -> bool {
    let mut rest = name;
    for part in Parts(template) {
        let stripped = match part {
            Some(Part::Literal(text)) => rest.strip_prefix(text),
            Some(Part::Octet(style, octet)) => {
                let (digits, start) = octet_text(style, key[octet]);
                rest.strip_prefix(&digits[start..])
            }
            Some(Part::Number) => rest.strip_prefix(number_of(key).to_string().as_bytes()),
            Some(Part::Slot) | None => None,
        };
        match stripped {
            Some(stripped) => rest = stripped,
            None => return false,
        }
    }
    rest.is_empty()
}

/// For people: `host-{a}-{b}.example`, octets of an IPv4 address by letter, those of others by number.
pub(crate) fn show(template: &[u8]) -> String {
    let mut text = String::new();
    for part in Parts(template) {
        match part {
            Some(Part::Literal(literal)) => text.push_str(&String::from_utf8_lossy(literal)),
            Some(Part::Octet(style, octet)) => {
                let name = match octet {
                    12..=15 => ["a", "b", "c", "d"][octet - 12].to_owned(),
                    _ => octet.to_string(),
                };
                let style = match style {
                    Style::Decimal => "",
                    Style::Padded => ":03",
                    Style::Hex => ":x",
                    Style::HexUpper => ":X",
                };
                text.push_str(&format!("{{{name}{style}}}"));
            }
            Some(Part::Slot) => text.push_str("{text}"),
            Some(Part::Number) => text.push_str("{number}"),
            None => text.push_str("{?}"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 7];

    fn expanded(template: &[u8]) -> Option<String> {
        let mut out = Vec::new();
        expand(template, &KEY, &mut out, |out| {
            out.extend_from_slice(b"TEXT");
            Some(())
        })?;
        Some(String::from_utf8(out).unwrap())
    }

    #[test]
    fn every_part_expands_and_matches() {
        let mut template = Vec::new();
        push_literal(&mut template, b"host-");
        for (octet, style) in (12..16).zip([Style::Decimal, Style::Padded, Style::Hex, Style::HexUpper]) {
            push_octet(&mut template, style, octet);
            push_literal(&mut template, b"-");
        }
        push_octet(&mut template, Style::HexUpper, 3);
        push_number(&mut template);
        let name = expanded(&template).unwrap();
        assert_eq!(name, "host-192-000-02-07-B83221225991");
        assert!(makes(&template, &KEY, name.as_bytes()));
        assert!(!makes(&template, &KEY, b"host-192-000-02-07-B8322122599"));
        assert!(!makes(&template, &KEY, b"host-192-000-02-07-B83221225991x"));
        assert_eq!(show(&template), "host-{a}-{b:03}-{c:x}-{d:X}-{3:X}{number}");
    }

    #[test]
    fn long_literals_are_split_and_slots_filled() {
        let mut template = Vec::new();
        push_literal(&mut template, &[b'a'; 200]);
        template.push(SLOT);
        assert_eq!(expanded(&template).unwrap(), format!("{}TEXT", "a".repeat(200)));
    }

    #[test]
    fn bytes_that_are_no_template_are_refused() {
        for bytes in [&[0_u8][..], &[5, b'a'], &[0xff], &[0xc0], &[0x80, 0]] {
            assert_eq!(expanded(bytes), None, "{bytes:?}");
        }
    }
}
