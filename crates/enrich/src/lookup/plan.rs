//! Chooses a template for each name of a block, and which templates the file keeps.
//!
//! A name first tries the templates that names before it followed: names of a pool follow one, and trying is
//! cheaper than guessing, and settles names of which several readings are right (`1.1.1.1`).
//! Otherwise the most specific guess is taken that the file knows, or that three rows of the block share.
//! A template that one block uses is in that block; when a second one uses it, it goes to the file's
//! dictionary. A template that has been seen once is remembered by hash, so that the builder's memory is bounded.

use hashbrown::{HashMap, HashSet};
use thalweg_types::hash_bytes;

use super::block::{Choice, Rows};
use super::dictionary::{ANY_TEXT, Dictionary, EMPTY};
use super::shape::{Guess, by_labels, own_address};
use super::template::makes;

/// Rows of a block that have to share a template that the file does not know.
const SHARED: u32 = 3;
/// Templates without a slot that a name tries before anything is guessed.
const RECENT: usize = 6;
/// Hashes of templates that were seen in one block.
const SEEN_MAX: usize = 1 << 20;
/// Templates whose numbers are remembered; a forgotten one is given another number when it is used again.
const KNOWN_MAX: usize = 1 << 20;
/// Inline templates have one byte for their length.
const INLINE_MAX: usize = 255;

/// Plans block after block.
#[derive(Debug, Default)]
pub(crate) struct Planner {
    pub(crate) dictionary: Dictionary<'static>,
    /// The number of each template that is in use, and the last block that used it.
    numbers: HashMap<Vec<u8>, Known>,
    blocks: u64,
    seen: HashSet<u64>,
    recent: Vec<u32>,
    /// How many rows of this block a guess would serve.
    votes: HashMap<Vec<u8>, u32>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    number: u32,
    last_block: u64,
}

/// One row before it is planned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    pub(crate) key: [u8; 16],
    pub(crate) name: &'a [u8],
}

/// What a row was given: a template by its place in the block, and the range of the name in the slot.
type Given = (usize, Option<(u8, u8)>);

impl Planner {
    /// Chooses for the rows of one block. `is_v4`: the keys are mapped IPv4 addresses.
    pub(crate) fn plan<'a>(&mut self, rows: &[Row<'a>], is_v4: bool) -> Rows<'a> {
        let mut palette = Palette::default();
        let mut given: Vec<Option<Given>> = Vec::with_capacity(rows.len());
        let mut guesses: Vec<Vec<Guess>> = Vec::new();
        self.votes.clear();
        for row in rows {
            let known = if row.name.is_empty() { Some(EMPTY) } else { self.try_recent(row) };
            given.push(known.map(|number| (palette.number(number), None)));
            if known.is_none() {
                let mut list: Vec<Guess> = own_address(row.name, &row.key, is_v4).into_iter().collect();
                by_labels(row.name, |guess| list.push(guess));
                for guess in &list {
                    *self.votes.entry_ref(guess.template.as_slice()).or_default() += 1;
                }
                guesses.push(list);
            }
        }
        let popular = self.popular(&guesses);
        let mut lists = guesses.into_iter();
        for (row, given) in rows.iter().zip(&mut given).filter(|(_, given)| given.is_none()) {
            let list = lists.next().unwrap_or_default();
            *given = Some(self.choose(row, list, &popular, &mut palette));
        }
        let given: Vec<Given> = given.into_iter().flatten().collect();
        let texts = rows
            .iter()
            .zip(&given)
            .filter_map(|(row, (_, text))| {
                text.map(|(start, end)| &row.name[usize::from(start)..usize::from(end)])
            })
            .collect();
        let classes = given.iter().map(|(place, _)| *place as u8).collect();
        self.settle(&mut palette);
        Rows { choices: palette.choices, classes, texts }
    }

    fn try_recent(&mut self, row: &Row<'_>) -> Option<u32> {
        let place = self.recent.iter().position(|number| {
            self.dictionary.get(*number).is_some_and(|template| makes(template, &row.key, row.name))
        })?;
        // To the front, as the next name is likely to follow it too.
        self.recent[..=place].rotate_right(1);
        Some(self.recent[0])
    }

    /// Templates without a slot that several rows voted for, the most first.
    fn popular(&self, guesses: &[Vec<Guess>]) -> Vec<Vec<u8>> {
        let mut popular: Vec<(u32, &[u8])> = Vec::new();
        for guess in guesses.iter().filter_map(|list| list.first()).filter(|guess| guess.text.is_none()) {
            let votes = self.votes.get(&guess.template).copied().unwrap_or_default();
            if votes >= SHARED && !popular.iter().any(|(_, template)| *template == guess.template) {
                popular.push((votes, &guess.template));
            }
        }
        popular.sort_by(|a, b| b.cmp(a));
        popular.into_iter().map(|(_, template)| template.to_vec()).collect()
    }

    fn choose(
        &mut self,
        row: &Row<'_>,
        list: Vec<Guess>,
        popular: &[Vec<u8>],
        palette: &mut Palette,
    ) -> Given {
        if let Some(template) = popular.iter().find(|template| makes(template, &row.key, row.name)) {
            return (self.enter(template, false, palette), None);
        }
        for guess in list {
            let is_known = self.numbers.contains_key(&guess.template);
            let is_shared = self.votes.get(&guess.template).is_some_and(|votes| *votes >= SHARED);
            let fits = guess.template.len() <= INLINE_MAX && palette.choices.len() < usize::from(u8::MAX);
            if (is_known || is_shared) && fits {
                return (self.enter(&guess.template, guess.text.is_some(), palette), guess.text);
            }
        }
        (palette.number(ANY_TEXT), Some((0, row.name.len() as u8)))
    }

    fn enter(&mut self, template: &[u8], has_slot: bool, palette: &mut Palette) -> usize {
        match self.numbers.get_mut(template) {
            Some(known) => {
                known.last_block = self.blocks;
                palette.enter(Choice::Number(known.number), has_slot)
            }
            None => palette.enter(Choice::Inline(template.to_vec()), has_slot),
        }
    }

    /// Templates that a block before has used go to the dictionary; others are remembered.
    fn settle(&mut self, palette: &mut Palette) {
        self.blocks += 1;
        if self.numbers.len() >= KNOWN_MAX {
            self.forget();
        }
        for (choice, has_slot) in &mut palette.choices {
            if let Choice::Inline(template) = choice {
                let hash = hash_bytes(template);
                if !self.seen.contains(&hash) || !self.dictionary.has_room(template) {
                    if self.seen.len() >= SEEN_MAX {
                        self.seen.clear();
                    }
                    self.seen.insert(hash);
                    continue;
                }
                self.seen.remove(&hash);
                let number = self.dictionary.push(template);
                let known = Known { number, last_block: self.blocks };
                self.numbers.insert(std::mem::take(template), known);
                *choice = Choice::Number(number);
            }
            if let (Choice::Number(number), false) = (&*choice, *has_slot)
                && *number != EMPTY
                && !self.recent.contains(number)
            {
                self.recent.truncate(RECENT - 1);
                self.recent.insert(0, *number);
            }
        }
    }

    /// Forgets the numbers of the half that was not used for the longest time.
    fn forget(&mut self) {
        let mut ages: Vec<u64> = self.numbers.values().map(|known| known.last_block).collect();
        let middle = ages.len() / 2;
        let median = *ages.select_nth_unstable(middle).1;
        self.numbers.retain(|_, known| known.last_block > median);
    }
}

/// The templates of the block that is being planned.
#[derive(Default)]
struct Palette {
    choices: Vec<(Choice, bool)>,
}

impl Palette {
    fn number(&mut self, number: u32) -> usize {
        self.enter(Choice::Number(number), number == ANY_TEXT)
    }

    fn enter(&mut self, choice: Choice, has_slot: bool) -> usize {
        let found = self.choices.iter().position(|(have, _)| *have == choice);
        found.unwrap_or_else(|| {
            self.choices.push((choice, has_slot));
            self.choices.len() - 1
        })
    }
}
