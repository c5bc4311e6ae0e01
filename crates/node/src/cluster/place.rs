//! Where a unit is in its partition, as its commit record keeps it ("docs/formats/unit.md").
//!
//! Layout (little-endian): version 4; the topic's id 16, zeros where the broker has none; position (offset 8, row 4);
//! the last frame: 0, or 1, its offset 8 and its checksum 4; number of origins 4, and of each: kind 1 (0 unit, 1 door),
//! stage 4 and partition 4 or incarnation 8, mark (offset 8, row 4, made 4), doors from the one whose last frame is oldest;
//! number of units that have told their time 4, and of each: its origin as above, time 8, time of its last frame 8; the
//! time that is held: 0, or 1 and the time 8; number of texts of the job that the log has named 4, and the number of each 8,
//! ascending; when the newest message was appended: 0, or 1 and the time 8. Version 3 ends before that.

use bytes::{Buf as _, BufMut as _};
use thalweg_cluster::positions::{Mark, Origin, Position, Through};
use thalweg_cluster::times::{Times, Told};
use thalweg_kafka::TopicId;
use thalweg_types::{Error, Micros};

use super::texts::MAX_TEXTS;

/// Persisted.
const VERSION: u8 = 4;

/// An older one that is read, too.
const WITHOUT_TIME: u8 = 3;

const SECOND: Micros = 1_000_000;

/// A frame that was read, so that another log in its place is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LastFrame {
    pub(super) offset: u64,
    pub(super) checksum: u32,
}

/// Where a unit goes on, and what it has of each sender.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// `None` where the broker knows no ids.
    pub(super) topic: Option<TopicId>,
    /// Of the next row.
    pub(super) position: Position,
    pub(super) last: Option<LastFrame>,
    pub(super) through: Through,
    pub(super) times: Times,
    /// Numbers of texts of the job that the log has named, ascending: the highest [`MAX_TEXTS`] of them. The unit works by
    /// the last.
    pub(super) texts: Vec<u64>,
    /// When the newest of the messages was appended that were read.
    pub(super) time: Option<Micros>,
}

/// The topic is another one than that in which a unit was.
#[derive(Debug)]
pub(super) struct OtherTopic {
    pub(super) known: TopicId,
    pub(super) now: TopicId,
}

impl Place {
    /// Takes note of the id of the topic, where the broker knows one.
    ///
    /// # Errors
    /// Where the unit was in another one.
    pub(super) fn meet(&mut self, now: Option<TopicId>) -> Result<(), OtherTopic> {
        match (self.topic, now) {
            (Some(known), Some(now)) if known != now => Err(OtherTopic { known, now }),
            _ => {
                self.topic = now.or(self.topic);
                Ok(())
            }
        }
    }

    /// Whether a second of the brokers' time begins between the messages that were read and one that was appended at `time`;
    /// nothing begins with the first message.
    pub(super) fn begins_second(&self, time: Micros) -> bool {
        self.time.is_some_and(|before| time.div_euclid(SECOND) > before.div_euclid(SECOND))
    }

    /// Takes note of when a message was appended.
    pub(super) fn pass_time(&mut self, time: Micros) {
        self.time = self.time.max(Some(time));
    }

    /// Takes note of a text that the log names; the number of one that is known no more, if there is one.
    pub(super) fn name_text(&mut self, number: u64) -> Option<u64> {
        if let Err(at) = self.texts.binary_search(&number) {
            self.texts.insert(at, number);
        }
        (self.texts.len() > MAX_TEXTS).then(|| self.texts.remove(0))
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.put_slice(&self.topic.map_or([0; 16], |id| id.0));
        put_position(self.position, &mut out);
        match self.last {
            None => out.put_u8(0),
            Some(LastFrame { offset, checksum }) => {
                out.put_u8(1);
                out.put_u64_le(offset);
                out.put_u32_le(checksum);
            }
        }
        let marks: Vec<(Origin, Mark)> = self.through.iter().collect();
        put_count(marks.len(), &mut out);
        for (origin, mark) in marks {
            put_origin(origin, &mut out);
            put_position(mark.position, &mut out);
            out.put_u32_le(mark.made);
        }
        put_count(self.times.iter().len(), &mut out);
        for (origin, told) in self.times.iter() {
            put_origin(origin, &mut out);
            out.put_i64_le(told.time);
            out.put_i64_le(told.heard);
        }
        out.put_u8(self.times.held().is_some().into());
        if let Some(held) = self.times.held() {
            out.put_i64_le(held);
        }
        put_count(self.texts.len(), &mut out);
        self.texts.iter().for_each(|number| out.put_u64_le(*number));
        out.put_u8(self.time.is_some().into());
        if let Some(time) = self.time {
            out.put_i64_le(time);
        }
        out
    }

    /// # Errors
    /// Of class corrupt where the bytes are no place, of class user where a newer program wrote them.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Error> {
        match bytes.first() {
            Some(&(VERSION | WITHOUT_TIME)) => {}
            Some(newer) if *newer > VERSION => {
                return Err(Error::user(format!(
                    "the place of the unit has format version {newer}, this program reads versions up to {VERSION}"
                ))
                .with_hint("run the version that wrote it, or a newer one"));
            }
            Some(older @ (1 | 2)) => {
                return Err(Error::user(format!(
                    "the place of the unit has format version {older}, which this program reads no more"
                ))
                .with_hint("remove the unit's folder: it reads its topic from the beginning"));
            }
            _ => return Err(damaged()),
        }
        read(&bytes[1..], bytes[0] == VERSION).ok_or_else(damaged)
    }
}

fn damaged() -> Error {
    Error::corrupt("the commit record holds no place of a unit in its partition")
}

fn put_count(count: usize, out: &mut Vec<u8>) {
    out.put_u32_le(u32::try_from(count).expect("fewer than 2^32 origins are remembered"));
}

fn put_origin(origin: Origin, out: &mut Vec<u8>) {
    match origin {
        Origin::Unit { stage, partition } => {
            out.put_u8(0);
            out.put_u32_le(stage);
            out.put_u32_le(partition);
        }
        Origin::Door { incarnation } => {
            out.put_u8(1);
            out.put_u64_le(incarnation);
        }
    }
}

fn put_position(position: Position, out: &mut Vec<u8>) {
    out.put_u64_le(position.offset);
    out.put_u32_le(position.row);
}

fn read(mut rest: &[u8], has_time: bool) -> Option<Place> {
    let mut id = [0; 16];
    rest.try_copy_to_slice(&mut id).ok()?;
    let topic = (id != [0; 16]).then_some(TopicId(id));
    let position = read_position(&mut rest)?;
    let last = match rest.try_get_u8().ok()? {
        0 => None,
        1 => Some(LastFrame { offset: rest.try_get_u64_le().ok()?, checksum: rest.try_get_u32_le().ok()? }),
        _ => return None,
    };
    let count = rest.try_get_u32_le().ok()?;
    let mut marks = Vec::new();
    for _ in 0..count {
        let origin = read_origin(&mut rest)?;
        marks.push((origin, Mark { position: read_position(&mut rest)?, made: rest.try_get_u32_le().ok()? }));
    }
    let count = rest.try_get_u32_le().ok()?;
    let mut told = Vec::new();
    for _ in 0..count {
        let origin = read_origin(&mut rest)?;
        told.push((origin, Told { time: rest.try_get_i64_le().ok()?, heard: rest.try_get_i64_le().ok()? }));
    }
    let held = read_time(&mut rest)?;
    let (through, times) = (marks.into_iter().collect(), Times::restored(told, held));
    let count = rest.try_get_u32_le().ok()? as usize;
    let texts = (0..count).map(|_| rest.try_get_u64_le().ok()).collect::<Option<Vec<u64>>>()?;
    let is_in_order = texts.is_sorted_by(|before, after| before < after) && count <= MAX_TEXTS;
    let time = if has_time { read_time(&mut rest)? } else { None };
    let place = Place { topic, position, last, through, times, texts, time };
    (rest.is_empty() && is_in_order).then_some(place)
}

/// A time, where there is one.
fn read_time(rest: &mut &[u8]) -> Option<Option<Micros>> {
    match rest.try_get_u8().ok()? {
        0 => Some(None),
        1 => Some(Some(rest.try_get_i64_le().ok()?)),
        _ => None,
    }
}

fn read_origin(rest: &mut &[u8]) -> Option<Origin> {
    match rest.try_get_u8().ok()? {
        0 => {
            Some(Origin::Unit { stage: rest.try_get_u32_le().ok()?, partition: rest.try_get_u32_le().ok()? })
        }
        1 => Some(Origin::Door { incarnation: rest.try_get_u64_le().ok()? }),
        _ => None,
    }
}

fn read_position(rest: &mut &[u8]) -> Option<Position> {
    Some(Position { offset: rest.try_get_u64_le().ok()?, row: rest.try_get_u32_le().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_texts_stay_known() {
        let mut place = Place::default();
        assert_eq!([5, 2, 5, 9].map(|number| place.name_text(number)), [None; 4]);
        assert_eq!(place.texts, [2, 5, 9]);
        let gone: Vec<u64> = (10..20).filter_map(|number| place.name_text(number)).collect();
        assert_eq!((gone, place.name_text(1)), (vec![2, 5, 9, 10, 11], Some(1)));
        assert_eq!(place.texts, (12..20).collect::<Vec<u64>>());
    }

    #[test]
    fn a_place_comes_back_and_a_cut_longer_or_newer_one_is_none() {
        let mark = |offset, row, made| Mark { position: Position { offset, row }, made };
        let place = Place {
            topic: Some(TopicId([7; 16])),
            position: Position { offset: 1 << 40, row: 3 },
            last: Some(LastFrame { offset: 9, checksum: 0xfeed_beef }),
            through: [
                (Origin::Unit { stage: 1, partition: 63 }, mark(5, 6, 7)),
                (Origin::Door { incarnation: u64::MAX }, mark(u64::MAX, 0, 1)),
            ]
            .into_iter()
            .collect(),
            times: Times::restored(
                [(Origin::Unit { stage: 1, partition: 63 }, Told { time: -5, heard: 1 << 50 })],
                Some(-7),
            ),
            texts: vec![3, u64::MAX],
            time: Some(1 << 50),
        };
        for place in [place, Place::default()] {
            let mut bytes = place.encode();
            assert_eq!(Place::decode(&bytes).unwrap(), place);
            for len in 0..bytes.len() {
                assert!(Place::decode(&bytes[..len]).is_err(), "cut to {len}");
            }
            bytes.push(0);
            assert!(Place::decode(&bytes).is_err(), "a byte more");
            bytes[0] = VERSION + 1;
            assert_eq!(Place::decode(&bytes).unwrap_err().class(), thalweg_types::Class::User);
            // As the version before wrote it.
            let mut bytes = Place { time: None, ..place.clone() }.encode();
            bytes.pop();
            bytes[0] = WITHOUT_TIME;
            assert_eq!(Place::decode(&bytes).unwrap(), Place { time: None, ..place });
        }
    }

    #[test]
    fn a_second_begins_with_the_first_message_in_it_and_none_with_the_first_of_all() {
        let mut place = Place::default();
        let mut begun = Vec::new();
        for time in [700_000, 999_999, 1_000_000, 1_999_999, 900_000, 1_500_000, 3_000_000, 9_000_001] {
            if place.begins_second(time) {
                begun.push(time);
            }
            place.pass_time(time);
        }
        assert_eq!(begun, [1_000_000, 3_000_000, 9_000_001], "the brokers' time went back once");
    }
}
