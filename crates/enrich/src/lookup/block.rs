//! A block: the names of at most 256 keys that follow each other.
//!
//! | field | bytes | |
//! |---|---|---|
//! | choices | 1 | how many templates the block chooses from, less one |
//! | whole | 1 | how many of them, the first ones, have no slot |
//! | form | 1 | bit 0: texts are plain; bit 1: a template is inline; bits 2, 3: classes of whole rows, of others, are runs |
//! | templates | 3 each | the number, or all ones: inline, and length (1) and bytes follow |
//! | mask | ⌈rows / 8⌉ | a bit for each row: its template has a slot; only where there are both kinds |
//! | classes | | which template each whole row follows, then which each other row |
//! | count | 1 | texts less one; only where there are some |
//! | samples | 2 each | where every fourth text but the first begins, in bytes after the samples |
//! | texts | | the texts in the slots, in the order of the rows |
//!
//! Classes of a kind of rows are left out where it has one template; otherwise they are *packed*, the fewest
//! bits that hold the largest, the lowest bit first, padded to a byte; or *runs*: a count less one (1), then
//! class and last place (1 + 1) of each.
//! Texts are Huffman codes that begin at whole bytes every fourth text, or, where those would be longer,
//! *plain*: a length (1) and bytes.
//! How many rows a block has is known from its keys. The mask says by counting bits which text is a row's, so
//! that a name is found without reading those before it.

use super::dictionary::Dictionary;
use super::template::expand;
use super::text::{BitWriter, Model};

pub(crate) const ROWS_MAX: usize = 256;
const INLINE: u32 = 0xff_ffff;
const FORM_PLAIN: u8 = 1;
const FORM_INLINE: u8 = 2;
const FORM_WHOLE_RUNS: u8 = 4;
const FORM_TEXT_RUNS: u8 = 8;
/// Texts between two whose place is written down: a text costs half a byte for it, and reading one skips at
/// most three.
const SAMPLE: usize = 4;

/// A template that a block chooses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    Number(u32),
    Inline(Vec<u8>),
}

/// The rows of a block, with the template of each and its text where that has a slot.
#[derive(Debug, Default)]
pub(crate) struct Rows<'a> {
    /// Templates, and whether each has a slot.
    pub(crate) choices: Vec<(Choice, bool)>,
    pub(crate) classes: Vec<u8>,
    pub(crate) texts: Vec<&'a [u8]>,
}

/// Writes a block.
pub(crate) fn encode(rows: &Rows<'_>, model: &Model, bits: &mut BitWriter, out: &mut Vec<u8>) {
    debug_assert!(
        (1..=ROWS_MAX).contains(&rows.classes.len()) && (1..=ROWS_MAX).contains(&rows.choices.len())
    );
    let whole = rows.choices.iter().filter(|(_, has_slot)| !has_slot).count();
    out.extend_from_slice(&[(rows.choices.len() - 1) as u8, whole as u8]);
    let form_at = out.len();
    out.push(0);
    let mut form = 0;
    for wanted in [false, true] {
        for (choice, _) in rows.choices.iter().filter(|(_, has_slot)| *has_slot == wanted) {
            match choice {
                Choice::Number(number) => out.extend_from_slice(&number.to_le_bytes()[..3]),
                Choice::Inline(template) => {
                    form |= FORM_INLINE;
                    out.extend_from_slice(&INLINE.to_le_bytes()[..3]);
                    out.push(template.len() as u8);
                    out.extend_from_slice(template);
                }
            }
        }
    }
    form |= encode_classes(rows, whole, out);
    form |= encode_texts(&rows.texts, model, bits, out);
    out[form_at] = form;
}

/// Writes mask and classes.
fn encode_classes(rows: &Rows<'_>, whole: usize, out: &mut Vec<u8>) -> u8 {
    // The place of each template among those of its kind.
    let mut counts = [0_u8; 2];
    let places: Vec<(bool, u8)> = rows
        .choices
        .iter()
        .map(|(_, has_slot)| {
            let count = &mut counts[usize::from(*has_slot)];
            *count = count.wrapping_add(1);
            (*has_slot, count.wrapping_sub(1))
        })
        .collect();
    let mut mask = vec![0_u8; rows.classes.len().div_ceil(8)];
    let mut kinds = [Vec::new(), Vec::new()];
    for (row, class) in rows.classes.iter().enumerate() {
        let (has_slot, place) = places[usize::from(*class)];
        mask[row / 8] |= u8::from(has_slot) << (row % 8);
        kinds[usize::from(has_slot)].push(place);
    }
    if whole > 0 && whole < rows.choices.len() {
        out.extend_from_slice(&mask);
    }
    let whole_runs = pack_classes(&kinds[0], whole, out);
    let text_runs = pack_classes(&kinds[1], rows.choices.len() - whole, out);
    (if whole_runs { FORM_WHOLE_RUNS } else { 0 }) | (if text_runs { FORM_TEXT_RUNS } else { 0 })
}

/// Writes the classes of one kind of rows and says whether they are runs.
fn pack_classes(classes: &[u8], choices: usize, out: &mut Vec<u8>) -> bool {
    if choices <= 1 {
        return false;
    }
    let width = width_of(choices);
    let mut runs: Vec<[u8; 2]> = Vec::new();
    for (place, &class) in classes.iter().enumerate() {
        match runs.last_mut() {
            Some(run) if run[0] == class => run[1] = place as u8,
            _ => runs.push([class, place as u8]),
        }
    }
    let packed = (classes.len() * width).div_ceil(8);
    if 1 + runs.len() * 2 < packed {
        out.push((runs.len() - 1) as u8);
        runs.iter().for_each(|run| out.extend_from_slice(run));
        return true;
    }
    let start = out.len();
    out.resize(start + packed, 0);
    for (place, &class) in classes.iter().enumerate() {
        let bit = place * width;
        let shifted = u16::from(class) << (bit % 8);
        out[start + bit / 8] |= shifted as u8;
        if shifted > 0xff {
            out[start + bit / 8 + 1] |= (shifted >> 8) as u8;
        }
    }
    false
}

fn width_of(choices: usize) -> usize {
    (usize::BITS - (choices - 1).leading_zeros()) as usize
}

fn encode_texts(texts: &[&[u8]], model: &Model, bits: &mut BitWriter, out: &mut Vec<u8>) -> u8 {
    if texts.is_empty() {
        return 0;
    }
    out.push((texts.len() - 1) as u8);
    bits.clear();
    let mut samples = Vec::new();
    for (place, text) in texts.iter().enumerate() {
        if place % SAMPLE == 0 {
            samples.push(bits.align());
        }
        model.encode(text, bits);
    }
    bits.align();
    let plain: usize = texts.iter().map(|text| text.len() + 1).sum();
    let is_plain = plain < bits.bytes().len();
    if is_plain {
        samples.clear();
        let mut position = 0;
        for (place, text) in texts.iter().enumerate() {
            if place % SAMPLE == 0 {
                samples.push(position);
            }
            position += text.len() + 1;
        }
    }
    // 256 plain texts take at most 65,536 bytes, and the last sample is before the last text.
    samples.iter().skip(1).for_each(|sample| out.extend_from_slice(&(*sample as u16).to_le_bytes()));
    if is_plain {
        for text in texts {
            out.push(text.len() as u8);
            out.extend_from_slice(text);
        }
        return FORM_PLAIN;
    }
    out.extend_from_slice(bits.bytes());
    0
}

/// The name of row `row` of a block of `rows`, appended to `out`; `None` where the block is damaged.
pub(crate) fn decode(
    block: &[u8],
    rows: usize,
    row: usize,
    key: &[u8; 16],
    names: (&Dictionary<'_>, &Model),
    out: &mut Vec<u8>,
) -> Option<()> {
    let (dictionary, model) = names;
    let (&[choices, whole, form], palette) = block.split_first_chunk::<3>()?;
    let (choices, whole) = (usize::from(choices) + 1, usize::from(whole));
    let others = choices.checked_sub(whole)?;
    let rest = skip_templates(palette, form, choices)?;
    let (has_text, before, text_count, rest) = match (whole, others) {
        (_, 0) => (false, 0, 0, rest),
        (0, _) => (true, row, rows, rest),
        _ => {
            let (mask, rest) = rest.split_at_checked(rows.div_ceil(8))?;
            let (has_text, before, all) = count_bits(mask, row);
            (has_text, before, all, rest)
        }
    };
    if !has_text {
        let place = row - before;
        let (class, _) =
            class_of(rest, rows.checked_sub(text_count)?, whole, form & FORM_WHOLE_RUNS != 0, place)?;
        return expand(template(palette, form, class, dictionary)?, key, out, |_| None);
    }
    let (_, rest) = class_of(rest, rows.checked_sub(text_count)?, whole, form & FORM_WHOLE_RUNS != 0, 0)?;
    let (class, rest) = class_of(rest, text_count, others, form & FORM_TEXT_RUNS != 0, before)?;
    let template = template(palette, form, whole + class, dictionary)?;
    let (&last, rest) = rest.split_first()?;
    let (samples, texts) = rest.split_at_checked(usize::from(last) / SAMPLE * 2)?;
    let start = match before / SAMPLE {
        0 => 0,
        sample => {
            let sample = samples.get(sample * 2 - 2..)?.first_chunk::<2>()?;
            usize::from(u16::from_le_bytes(*sample))
        }
    };
    let texts = texts.get(start..)?;
    if form & FORM_PLAIN != 0 {
        let mut rest = texts;
        for _ in 0..before % SAMPLE {
            rest = rest.get(usize::from(*rest.first()?) + 1..)?;
        }
        let text = rest.get(1..usize::from(*rest.first()?) + 1)?;
        return expand(template, key, out, |out| {
            out.extend_from_slice(text);
            Some(())
        });
    }
    let mut position = 0;
    for _ in 0..before % SAMPLE {
        position = model.decode(texts, position, |_| ())?;
    }
    expand(template, key, out, |out| model.decode(texts, position, |byte| out.push(byte)).map(|_| ()))
}

/// Bit `row` of a mask, how many before it are set, and how many of all.
#[inline]
fn count_bits(mask: &[u8], row: usize) -> (bool, usize, usize) {
    let mut words = [0_u64; ROWS_MAX / 64];
    for (word, bytes) in words.iter_mut().zip(mask.chunks(8)) {
        let mut padded = [0; 8];
        padded[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_le_bytes(padded);
    }
    let (at, bit) = (row / 64, row % 64);
    let ones = |words: &[u64]| words.iter().map(|word| word.count_ones() as usize).sum::<usize>();
    let before = ones(&words[..at]) + (words[at] & ((1 << bit) - 1)).count_ones() as usize;
    (words[at] >> bit & 1 == 1, before, ones(&words))
}

/// The class at a place among `count` classes of one kind of rows, and the bytes after them all.
#[inline]
fn class_of(
    bytes: &[u8],
    count: usize,
    choices: usize,
    is_runs: bool,
    place: usize,
) -> Option<(usize, &[u8])> {
    if choices <= 1 {
        return Some((0, bytes));
    }
    if is_runs {
        let length = 1 + (usize::from(*bytes.first()?) + 1) * 2;
        let runs = bytes.get(1..length)?;
        let run = runs.chunks_exact(2).find(|run| usize::from(run[1]) >= place)?;
        return Some((usize::from(run[0]), &bytes[length..]));
    }
    let width = width_of(choices);
    let (classes, rest) = bytes.split_at_checked((count * width).div_ceil(8))?;
    // Classes have at most eight bits, so two bytes hold any.
    let bit = place * width;
    let low = classes.get(bit / 8).copied().unwrap_or_default();
    let high = classes.get(bit / 8 + 1).copied().unwrap_or_default();
    Some(((usize::from(u16::from_le_bytes([low, high])) >> (bit % 8)) & ((1 << width) - 1), rest))
}

/// The bytes after the first templates of a block.
#[inline]
fn skip_templates(mut palette: &[u8], form: u8, count: usize) -> Option<&[u8]> {
    if form & FORM_INLINE == 0 {
        return palette.get(count * 3..);
    }
    for _ in 0..count {
        palette = split_template(palette)?.2;
    }
    Some(palette)
}

/// One template of a block: its number, its bytes where it is inline, and the bytes after it.
#[inline]
fn split_template(palette: &[u8]) -> Option<(u32, &[u8], &[u8])> {
    let (number, rest) = palette.split_first_chunk::<3>()?;
    let number = u32::from_le_bytes([number[0], number[1], number[2], 0]);
    if number != INLINE {
        return Some((number, &[], rest));
    }
    let (length, rest) = rest.split_first()?;
    let (template, rest) = rest.split_at_checked(usize::from(*length))?;
    Some((number, template, rest))
}

#[inline]
fn template<'a>(
    palette: &'a [u8],
    form: u8,
    class: usize,
    dictionary: &'a Dictionary<'_>,
) -> Option<&'a [u8]> {
    match split_template(skip_templates(palette, form, class)?)? {
        (INLINE, template, _) => Some(template),
        (number, ..) => dictionary.get(number),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::template::{SLOT, push_literal};
    use super::super::text::Counts;
    use super::*;

    fn model() -> Model {
        let mut counts = Counts::default();
        counts.add(b"mail");
        counts.add(b"srv-17");
        Model::learn(&counts)
    }

    /// Rows by class and text; even classes have a slot.
    fn check(classes: &[u8], choices: usize, texts: &[Vec<u8>]) {
        let mut dictionary = Dictionary::default();
        let mut rows = Rows::default();
        let mut templates = Vec::new();
        for class in 0..choices {
            let mut template = Vec::new();
            push_literal(&mut template, class.to_string().as_bytes());
            if class % 2 == 0 {
                template.push(SLOT);
            }
            let choice = match class % 3 {
                0 => Choice::Inline(template.clone()),
                _ => Choice::Number(dictionary.push(&template)),
            };
            rows.choices.push((choice, class % 2 == 0));
            templates.push(template);
        }
        rows.classes = classes.to_vec();
        let mut expected = Vec::new();
        for (class, text) in classes.iter().zip(texts) {
            let mut name = class.to_string().into_bytes();
            if class % 2 == 0 {
                rows.texts.push(text);
                name.extend_from_slice(text);
            }
            expected.push(name);
        }
        let mut block = Vec::new();
        encode(&rows, &model(), &mut BitWriter::default(), &mut block);
        for (row, expected) in expected.iter().enumerate() {
            let mut name = Vec::new();
            decode(&block, classes.len(), row, &[0; 16], (&dictionary, &model()), &mut name).unwrap();
            assert_eq!(&name, expected, "row {row}");
        }
        // What was cut is refused or reads as something else; it never panics.
        for end in 0..block.len() {
            for row in [0, classes.len() - 1] {
                let names = (&dictionary, &model());
                let _ = decode(&block[..end], classes.len(), row, &[0; 16], names, &mut Vec::new());
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn every_row_comes_back(
            choices in 1_usize..40,
            rows in prop::collection::vec((any::<u8>(), "[a-z0-9-]{0,12}"), 1..=60),
            runs in any::<bool>(),
        ) {
            let mut classes: Vec<u8> = rows.iter().map(|(class, _)| class % choices as u8).collect();
            if runs {
                classes.sort_unstable();
            }
            let texts: Vec<Vec<u8>> = rows.into_iter().map(|(_, text)| text.into_bytes()).collect();
            check(&classes, choices, &texts);
        }

        #[test]
        fn any_bytes_decode_or_are_refused(
            block in prop::collection::vec(any::<u8>(), 0..80),
            row in 0_usize..256,
        ) {
            let mut out = Vec::new();
            let _ = decode(&block, 256, row, &[0; 16], (&Dictionary::default(), &model()), &mut out);
            prop_assert!(out.len() < 70_000);
        }
    }

    #[test]
    fn full_blocks_of_the_longest_texts_come_back() {
        let texts: Vec<Vec<u8>> = (0..256_u32).map(|row| vec![0x80 | row as u8; 255]).collect();
        let mut rows = Rows { choices: vec![(Choice::Number(1), true)], ..Rows::default() };
        rows.classes = vec![0; 256];
        rows.texts = texts.iter().map(Vec::as_slice).collect();
        let mut block = Vec::new();
        encode(&rows, &model(), &mut BitWriter::default(), &mut block);
        let dictionary = Dictionary::default();
        for (row, text) in texts.iter().enumerate() {
            let mut name = Vec::new();
            decode(&block, 256, row, &[0; 16], (&dictionary, &model()), &mut name).unwrap();
            assert_eq!(&name, text);
        }
    }
}
