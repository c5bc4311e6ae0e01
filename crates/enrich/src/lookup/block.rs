//! A block: the names of at most 256 keys that follow each other.
//!
//! | field | bytes | |
//! |---|---|---|
//! | choices | 1 | how many templates the block chooses from, less one |
//! | form | 1 | bits 0, 1: classes (0 none, 1 packed, 2 runs); bit 2: texts are plain; bit 3: a template is inline |
//! | templates | 3 each | bit 23: has a slot; the rest its number, or all ones: inline, and length (1) and bytes follow |
//! | classes | | which template each row follows |
//! | samples | 2 each | where every eighth text but the first begins, in bytes behind the samples |
//! | texts | | what stands in the slots, in the order of the rows |
//!
//! Classes are left out where there is one template; *packed* they are the fewest bits that hold the largest, the
//! lowest bit first, padded to a byte; as *runs* they are a count less one (1), then class and last row (1 + 1)
//! of each.
//! Texts are Huffman codes that begin at whole bytes every eighth text, or, where those would be longer, *plain*:
//! a length (1) and bytes.
//! How many rows a block has is known from its keys.

use super::dictionary::Dictionary;
use super::template::expand;
use super::text::{BitWriter, Model};

pub(crate) const ROWS_MAX: usize = 256;
const INLINE: u32 = 0x7f_ffff;
const SLOT_FLAG: u32 = 0x80_0000;
const PACKED: u8 = 1;
const RUNS: u8 = 2;
const FORM_CLASSES: u8 = 3;
const FORM_PLAIN: u8 = 4;
const FORM_INLINE: u8 = 8;
/// Texts between two whose place is written down.
const SAMPLE: usize = 8;

/// A template that a block chooses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    Number(u32),
    Inline(Vec<u8>),
}

/// The rows of a block, with the template of each and its text where that has a slot.
#[derive(Debug, Default)]
pub(crate) struct Rows<'a> {
    pub(crate) choices: Vec<(Choice, bool)>,
    pub(crate) classes: Vec<u8>,
    pub(crate) texts: Vec<&'a [u8]>,
}

/// Writes a block.
pub(crate) fn encode(rows: &Rows<'_>, model: &Model, bits: &mut BitWriter, out: &mut Vec<u8>) {
    debug_assert!((1..=ROWS_MAX).contains(&rows.classes.len()) && (1..=ROWS_MAX).contains(&rows.choices.len()));
    out.push((rows.choices.len() - 1) as u8);
    let form_at = out.len();
    out.push(0);
    let mut form = 0;
    for (choice, has_slot) in &rows.choices {
        let flag = if *has_slot { SLOT_FLAG } else { 0 };
        match choice {
            Choice::Number(number) => out.extend_from_slice(&(number | flag).to_le_bytes()[..3]),
            Choice::Inline(template) => {
                form |= FORM_INLINE;
                out.extend_from_slice(&(INLINE | flag).to_le_bytes()[..3]);
                out.push(template.len() as u8);
                out.extend_from_slice(template);
            }
        }
    }
    form |= encode_classes(rows, out);
    bits.clear();
    let mut samples = Vec::new();
    for (place, text) in rows.texts.iter().enumerate() {
        if place % SAMPLE == 0 {
            samples.push(bits.align());
        }
        model.encode(text, bits);
    }
    bits.align();
    let plain: usize = rows.texts.iter().map(|text| text.len() + 1).sum();
    let is_plain = plain < bits.bytes().len();
    if is_plain {
        form |= FORM_PLAIN;
        samples.clear();
        let mut position = 0;
        for (place, text) in rows.texts.iter().enumerate() {
            if place % SAMPLE == 0 {
                samples.push(position);
            }
            position += text.len() + 1;
        }
    }
    // 256 plain texts take at most 65,536 bytes, and the last sample lies before the last text.
    samples.iter().skip(1).for_each(|sample| out.extend_from_slice(&(*sample as u16).to_le_bytes()));
    if is_plain {
        for text in &rows.texts {
            out.push(text.len() as u8);
            out.extend_from_slice(text);
        }
    } else {
        out.extend_from_slice(bits.bytes());
    }
    out[form_at] = form;
}

fn width_of(choices: usize) -> usize {
    (usize::BITS - (choices - 1).leading_zeros()) as usize
}

fn encode_classes(rows: &Rows<'_>, out: &mut Vec<u8>) -> u8 {
    if rows.choices.len() == 1 {
        return 0;
    }
    let width = width_of(rows.choices.len());
    let mut runs: Vec<[u8; 2]> = Vec::new();
    for (row, &class) in rows.classes.iter().enumerate() {
        match runs.last_mut() {
            Some(run) if run[0] == class => run[1] = row as u8,
            _ => runs.push([class, row as u8]),
        }
    }
    let packed = (rows.classes.len() * width).div_ceil(8);
    if 1 + runs.len() * 2 < packed {
        out.push((runs.len() - 1) as u8);
        runs.iter().for_each(|run| out.extend_from_slice(run));
        return RUNS;
    }
    let start = out.len();
    out.resize(start + packed, 0);
    for (row, &class) in rows.classes.iter().enumerate() {
        let bit = row * width;
        let shifted = u16::from(class) << (bit % 8);
        out[start + bit / 8] |= shifted as u8;
        if shifted > 0xff {
            out[start + bit / 8 + 1] |= (shifted >> 8) as u8;
        }
    }
    PACKED
}

/// The name of row `row` of a block of `rows`, appended to `out`; `None` where the block is damaged.
pub(crate) fn decode(
    block: &[u8],
    rows: usize,
    row: usize,
    key: &[u8; 16],
    names: (&Dictionary, &Model),
    out: &mut Vec<u8>,
) -> Option<()> {
    let (dictionary, model) = names;
    let choices = usize::from(*block.first()?) + 1;
    let form = *block.get(1)?;
    let palette = &block[2..];
    let classes = if form & FORM_INLINE == 0 { palette.get(choices * 3..)? } else { skip(palette, choices)? };
    let (class, texts) = match form & FORM_CLASSES {
        0 if choices == 1 => (0, classes),
        PACKED => {
            let width = width_of(choices);
            let bytes = (rows * width).div_ceil(8);
            (packed_class(classes.get(..bytes)?, width, row), classes.get(bytes..)?)
        }
        RUNS => {
            let runs = classes.get(1..1 + (usize::from(*classes.first()?) + 1) * 2)?;
            let run = runs.chunks_exact(2).find(|run| usize::from(run[1]) >= row)?;
            (usize::from(run[0]), &classes[1 + runs.len()..])
        }
        _ => return None,
    };
    let (template, has_slot) = choice(palette, form, class, dictionary)?;
    if !has_slot {
        return expand(template, key, out, |_| None);
    }
    let classes = &classes[..classes.len() - texts.len()];
    let (before, all) = count_texts(classes, (form, rows, row), palette, choices)?;
    let samples = all.checked_sub(1)? / SAMPLE;
    let (samples, texts) = texts.split_at_checked(samples * 2)?;
    let start = match before / SAMPLE {
        0 => 0,
        sample => usize::from(u16::from_le_bytes([samples[sample * 2 - 2], samples[sample * 2 - 1]])),
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

/// What stands behind the templates of a block in which one is inline.
fn skip(mut palette: &[u8], choices: usize) -> Option<&[u8]> {
    for _ in 0..choices {
        palette = split_choice(palette)?.2;
    }
    Some(palette)
}

/// One template of the palette: its entry, its bytes where it is inline, and what is behind it.
fn split_choice(palette: &[u8]) -> Option<(u32, &[u8], &[u8])> {
    let (entry, rest) = palette.split_first_chunk::<3>()?;
    let entry = u32::from_le_bytes([entry[0], entry[1], entry[2], 0]);
    if entry & INLINE != INLINE {
        return Some((entry, &[], rest));
    }
    let (length, rest) = rest.split_first()?;
    let (template, rest) = rest.split_at_checked(usize::from(*length))?;
    Some((entry, template, rest))
}

fn choice<'a>(
    mut palette: &'a [u8],
    form: u8,
    class: usize,
    dictionary: &'a Dictionary,
) -> Option<(&'a [u8], bool)> {
    if form & FORM_INLINE == 0 {
        palette = palette.get(class * 3..)?;
    } else {
        palette = skip(palette, class)?;
    }
    let (entry, inline, _) = split_choice(palette)?;
    let template = if entry & INLINE == INLINE { inline } else { dictionary.get(entry & INLINE)? };
    Some((template, entry & SLOT_FLAG != 0))
}

/// Classes have at most eight bits, so two bytes hold any.
#[inline(always)]
fn packed_class(classes: &[u8], width: usize, row: usize) -> usize {
    let bit = row * width;
    let low = classes.get(bit / 8).copied().unwrap_or_default();
    let high = classes.get(bit / 8 + 1).copied().unwrap_or_default();
    (usize::from(u16::from_le_bytes([low, high])) >> (bit % 8)) & ((1 << width) - 1)
}

/// How many rows before `row`, and how many of all, have a text.
fn count_texts(
    classes: &[u8],
    (form, rows, row): (u8, usize, usize),
    palette: &[u8],
    choices: usize,
) -> Option<(usize, usize)> {
    if form & FORM_CLASSES == 0 {
        return Some((row, rows));
    }
    let mut slots = [0_u8; ROWS_MAX];
    let mut rest = palette;
    for slot in &mut slots[..choices] {
        let (entry, _, behind) = split_choice(rest)?;
        *slot = u8::from(entry & SLOT_FLAG != 0);
        rest = behind;
    }
    let (mut before, mut all) = (0, 0);
    if form & FORM_CLASSES == RUNS {
        let mut first = 0;
        for run in classes[1..].chunks_exact(2) {
            let end = usize::from(run[1]) + 1;
            if slots[usize::from(run[0])] == 1 {
                all += end.saturating_sub(first);
                before += end.min(row).saturating_sub(first);
            }
            first = end;
        }
        return Some((before, all));
    }
    let width = width_of(choices);
    for place in 0..rows {
        let has_text = usize::from(slots[packed_class(classes, width, place)]);
        all += has_text;
        before += if place < row { has_text } else { 0 };
    }
    Some((before, all))
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
        for row in 0..256 {
            let mut name = Vec::new();
            decode(&block, 256, row, &[0; 16], (&dictionary, &model()), &mut name).unwrap();
            assert_eq!(name, texts[row]);
        }
    }
}
