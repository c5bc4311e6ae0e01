//! Guesses which templates a name may follow, from the most specific to the one that all names follow.
//!
//! Guesses cost nothing but size: the caller checks that it gives the name back.
//! Four octets in order or in reverse are looked for first, then three, two, the last one; as decimal
//! numbers, padded, and in hexadecimal, with or without something between them.
//! Names without their address are cut at labels, so that a provider's ending is a template with a slot.

use super::template::{SLOT, Style, push_literal, push_number, push_octet};

/// A template that a name may follow; `text` is the text in its slot, as a range of the name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Guess {
    pub(crate) template: Vec<u8>,
    pub(crate) text: Option<(u8, u8)>,
}

/// A stretch of a name that is an octet, or all four as one number.
#[derive(Clone, Copy)]
struct Mark {
    start: usize,
    end: usize,
    /// `None`: the whole address as a number.
    octet: Option<(Style, usize)>,
}

/// Orders of octets that names are searched for, the longest first; 0 is the first of the four.
const ORDERS: [&[usize]; 8] =
    [&[0, 1, 2, 3], &[3, 2, 1, 0], &[1, 2, 3], &[3, 2, 1], &[0, 1, 2], &[2, 3], &[3, 2], &[3]];

/// The template that has the octets of `key` taken out of `name`, if they are in it.
/// `is_v4`: the last four octets are an IPv4 address.
pub(crate) fn own_address(name: &[u8], key: &[u8; 16], is_v4: bool) -> Option<Guess> {
    let mut marks = Vec::new();
    let all: Vec<usize> = (0..16).collect();
    let is_found = if is_v4 {
        find_hex(name, key, &[12, 13, 14, 15], &mut marks)
            || find_hex(name, key, &[15, 14, 13, 12], &mut marks)
            || find_padded(name, key, &mut marks)
            || find_number(name, key, &mut marks)
            || find_separate(name, key, &mut marks)
    } else {
        find_hex(name, key, &all, &mut marks)
            || find_groups(name, key, &mut marks)
            || find_hex(name, key, &all[8..], &mut marks)
    };
    if !is_found {
        return None;
    }
    let mut template = Vec::with_capacity(name.len() + 4);
    let mut position = 0;
    for mark in marks {
        push_literal(&mut template, &name[position..mark.start]);
        match mark.octet {
            Some((style, octet)) => push_octet(&mut template, style, octet),
            None => push_number(&mut template),
        }
        position = mark.end;
    }
    push_literal(&mut template, &name[position..]);
    Some(Guess { template, text: None })
}

/// All of `octets` as one run of hexadecimal digits.
fn find_hex(name: &[u8], key: &[u8; 16], octets: &[usize], marks: &mut Vec<Mark>) -> bool {
    let width = octets.len() * 2;
    if name.len() < width {
        return false;
    }
    for style in [Style::Hex, Style::HexUpper] {
        let digits: &[u8; 16] = if style == Style::Hex { b"0123456789abcdef" } else { b"0123456789ABCDEF" };
        let mut wanted = [0_u8; 32];
        for (pair, &octet) in wanted.chunks_exact_mut(2).zip(octets) {
            pair[0] = digits[usize::from(key[octet] >> 4)];
            pair[1] = digits[usize::from(key[octet] & 15)];
        }
        if let Some(start) = find(name, &wanted[..width]) {
            marks.extend(octets.iter().enumerate().map(|(place, &octet)| Mark {
                start: start + place * 2,
                end: start + place * 2 + 2,
                octet: Some((style, octet)),
            }));
            return true;
        }
    }
    false
}

/// `001002003004`, in order or reversed.
fn find_padded(name: &[u8], key: &[u8; 16], marks: &mut Vec<Mark>) -> bool {
    if name.len() < 12 {
        return false;
    }
    for order in [[12, 13, 14, 15], [15, 14, 13, 12]] {
        let mut wanted = [0_u8; 12];
        for (place, octet) in wanted.chunks_exact_mut(3).zip(order) {
            let value = key[octet];
            place.copy_from_slice(&[b'0' + value / 100, b'0' + value / 10 % 10, b'0' + value % 10]);
        }
        if let Some(start) = find(name, &wanted) {
            marks.extend(order.iter().enumerate().map(|(place, &octet)| Mark {
                start: start + place * 3,
                end: start + place * 3 + 3,
                octet: Some((Style::Padded, octet)),
            }));
            return true;
        }
    }
    false
}

/// The address as one decimal number; short ones would be found by chance.
fn find_number(name: &[u8], key: &[u8; 16], marks: &mut Vec<Mark>) -> bool {
    let mut digits = 0;
    for (place, byte) in name.iter().enumerate() {
        digits = if byte.is_ascii_digit() { digits + 1 } else { 0 };
        if digits >= 8 {
            let wanted = u32::from_be_bytes([key[12], key[13], key[14], key[15]]).to_string();
            let found = wanted.len() >= 8 && name[..=place].len() >= wanted.len();
            if found && let Some(start) = find(name, wanted.as_bytes()) {
                marks.push(Mark { start, end: start + wanted.len(), octet: None });
                return true;
            }
            return false;
        }
    }
    false
}

/// Octets with something between them, by [`ORDERS`].
fn find_separate(name: &[u8], key: &[u8; 16], marks: &mut Vec<Mark>) -> bool {
    let decimal = runs(name, |byte| byte.is_ascii_digit());
    let found = ORDERS.iter().find_map(|order| {
        if order.len() == 4 {
            let by_decimal = window(name, key, &decimal, order, decimal_style);
            return by_decimal.or_else(|| {
                window(name, key, &runs(name, |byte| byte.is_ascii_hexdigit()), order, hex_style)
            });
        }
        window(name, key, &decimal, order, decimal_style)
    });
    marks.extend(found.into_iter().flatten());
    !marks.is_empty()
}

/// `2001-0db8-0000-…`: eight groups of four digits.
fn find_groups(name: &[u8], key: &[u8; 16], marks: &mut Vec<Mark>) -> bool {
    let groups: Vec<_> = runs(name, |byte| byte.is_ascii_hexdigit())
        .into_iter()
        .filter(|(start, end)| end - start == 4)
        .flat_map(|(start, end)| [(start, start + 2), (start + 2, end)])
        .collect();
    let order: Vec<usize> = (0..16).collect();
    let found = groups.windows(16).find_map(|runs| matching(name, &key[..], runs, &order, hex_style));
    marks.extend(found.into_iter().flatten());
    !marks.is_empty()
}

/// Stretches of bytes of a kind, as long as they go.
fn runs(name: &[u8], is_kind: impl Fn(u8) -> bool) -> Vec<(usize, usize)> {
    let mut runs = Vec::new();
    let mut start = None;
    for (place, &byte) in name.iter().enumerate() {
        match (is_kind(byte), start) {
            (true, None) => start = Some(place),
            (false, Some(begun)) => {
                runs.push((begun, place));
                start = None;
            }
            _ => {}
        }
    }
    runs.extend(start.map(|begun| (begun, name.len())));
    runs
}

type StyleOf = fn(&[u8], u8) -> Option<Style>;

/// The first stretches one after the other that are the octets of `order`.
fn window(
    name: &[u8],
    key: &[u8; 16],
    runs: &[(usize, usize)],
    order: &[usize],
    style: StyleOf,
) -> Option<Vec<Mark>> {
    let order: Vec<usize> = order.iter().map(|octet| octet + 12).collect();
    runs.windows(order.len()).find_map(|runs| matching(name, key, runs, &order, style))
}

fn matching(
    name: &[u8],
    key: &[u8],
    runs: &[(usize, usize)],
    order: &[usize],
    style: StyleOf,
) -> Option<Vec<Mark>> {
    runs.iter()
        .zip(order)
        .map(|(&(start, end), &octet)| {
            let style = style(&name[start..end], key[octet])?;
            Some(Mark { start, end, octet: Some((style, octet)) })
        })
        .collect()
}

fn decimal_style(text: &[u8], octet: u8) -> Option<Style> {
    if text.len() > 3 {
        return None;
    }
    let value = text.iter().fold(0_u32, |value, digit| value * 10 + u32::from(digit - b'0'));
    if value != u32::from(octet) {
        return None;
    }
    let plain = if octet >= 100 {
        3
    } else if octet >= 10 {
        2
    } else {
        1
    };
    match text.len() {
        length if length == plain => Some(Style::Decimal),
        3 => Some(Style::Padded),
        _ => None,
    }
}

fn hex_style(text: &[u8], octet: u8) -> Option<Style> {
    let digit = |byte: u8| (byte as char).to_digit(16);
    let &[high, low] = text else { return None };
    if digit(high)? * 16 + digit(low)? != u32::from(octet) {
        return None;
    }
    let is_upper = text.iter().any(u8::is_ascii_uppercase);
    Some(if is_upper { Style::HexUpper } else { Style::Hex })
}

/// Names are short: a search byte by byte is as good as any.
fn find(name: &[u8], wanted: &[u8]) -> Option<usize> {
    name.windows(wanted.len()).position(|window| window == wanted)
}

/// Templates that a name without its address may follow, the most specific first: the name itself, the letters
/// that it begins with and all from the first dot, all from the first dot, from the second, and so on.
/// The last one, a slot and nothing else, is not among them.
pub(crate) fn by_labels(name: &[u8], mut guess: impl FnMut(Guess)) {
    let end = name.len() as u8;
    let mut literal = Vec::with_capacity(name.len() + 2);
    push_literal(&mut literal, name);
    guess(Guess { template: literal, text: None });

    let slot = |start: usize, stop: usize| {
        let mut template = Vec::with_capacity(name.len() + 4);
        push_literal(&mut template, &name[..start]);
        template.push(SLOT);
        push_literal(&mut template, &name[stop..]);
        Guess { template, text: Some((start as u8, stop as u8)) }
    };
    let first_dot = name.iter().position(|&byte| byte == b'.');
    let letters = name.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
    let label_end = first_dot.unwrap_or(name.len());
    // Fewer letters would be found at the front of made-up labels by chance, and each would cost a template.
    if letters >= 2 && letters < label_end {
        let dashed = letters + usize::from(name[letters] == b'-');
        guess(slot(dashed.min(label_end), label_end));
    }
    for (place, _) in name.iter().enumerate().filter(|(_, byte)| **byte == b'.') {
        if place > 0 && place + 1 < usize::from(end) {
            guess(slot(0, place));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::template::{makes, show};
    use super::*;

    fn key_of(octets: [u8; 4]) -> [u8; 16] {
        std::net::Ipv4Addr::from(octets).to_ipv6_mapped().octets()
    }

    #[test]
    fn the_own_address_is_found_in_every_style() {
        for (octets, name, template) in [
            ([1, 2, 3, 4], "host-1-2-3-4.pool.isp.example", "host-{a}-{b}-{c}-{d}.pool.isp.example"),
            ([1, 2, 3, 4], "4.3.2.1.dsl.isp.net", "{d}.{c}.{b}.{a}.dsl.isp.net"),
            ([10, 11, 12, 13], "ip-0a0b0c0d.isp.net", "ip-{a:x}{b:x}{c:x}{d:x}.isp.net"),
            ([10, 11, 12, 13], "ip-0D0C0B0A.isp.net", "ip-{d:X}{c:X}{b:X}{a:X}.isp.net"),
            ([10, 11, 12, 13], "cable0a0b0c0d.isp.net", "cable{a:x}{b:x}{c:x}{d:x}.isp.net"),
            ([1, 2, 3, 4], "ip001002003004.isp.net", "ip{a:03}{b:03}{c:03}{d:03}.isp.net"),
            ([1, 2, 3, 4], "004003002001.isp.net", "{d:03}{c:03}{b:03}{a:03}.isp.net"),
            ([1, 2, 3, 4], "001.002.003.004.isp.net", "{a:03}.{b:03}.{c:03}.{d:03}.isp.net"),
            ([170, 187, 204, 13], "aa-bb-cc-0d.isp.net", "{a:x}-{b:x}-{c:x}-{d:x}.isp.net"),
            ([10, 11, 12, 13], "n168496141.isp.net", "n{number}.isp.net"),
            ([1, 2, 3, 4], "cpe-3-4.area7.isp.net", "cpe-{c}-{d}.area7.isp.net"),
            ([1, 2, 3, 4], "cpe-4-3.area7.isp.net", "cpe-{d}-{c}.area7.isp.net"),
            ([1, 2, 3, 77], "dyn77.isp.net", "dyn{d}.isp.net"),
            ([0, 0, 0, 0], "host-0-0-0-0.isp.net", "host-{a}-{b}-{c}-{d}.isp.net"),
        ] {
            let key = key_of(octets);
            let guess = own_address(name.as_bytes(), &key, true).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(show(&guess.template), template);
            assert!(makes(&guess.template, &key, name.as_bytes()));
        }
    }

    #[test]
    fn the_own_ipv6_address_is_found() {
        let key = "2001:db8::1:2:3:4".parse::<std::net::Ipv6Addr>().unwrap().octets();
        for name in [
            "20010db8000000000001000200030004.v6.isp.net",
            "2001-0db8-0000-0000-0001-0002-0003-0004.v6.isp.net",
            "host-0001000200030004.v6.isp.net",
        ] {
            let guess = own_address(name.as_bytes(), &key, false).unwrap_or_else(|| panic!("{name}"));
            assert!(makes(&guess.template, &key, name.as_bytes()), "{name}");
            assert!(guess.template.len() < name.len() + 4, "{name}");
        }
    }

    #[test]
    fn other_names_are_cut_at_labels() {
        let mut seen = Vec::new();
        by_labels(b"srv-17.fra.isp.net", |guess| seen.push(show(&guess.template)));
        assert_eq!(
            seen,
            [
                "srv-17.fra.isp.net",
                "srv-{text}.fra.isp.net",
                "{text}.fra.isp.net",
                "{text}.isp.net",
                "{text}.net"
            ]
        );
    }
}
