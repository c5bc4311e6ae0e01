//! Hashes of a stage decide nothing that shows, and those of earlier builds are made anew.

use thalweg_types::HashKey;

use super::world::{Bound, World};
use super::*;
use crate::stage::Manifest;

const SECOND: Micros = 1_000_000;
const QUERIES: [(&str, &str); 2] = [
    ("sum", "SELECT sum(x) AS s, max(k) AS d FROM s GROUP BY card OVER SLIDING 40 SECONDS"),
    ("pair", "SELECT count(*) AS n, min(x) AS m FROM s GROUP BY card, shop OVER INFINITE"),
];

fn queries() -> Vec<(String, String)> {
    QUERIES.map(|(name, text)| (name.to_owned(), text.to_owned())).to_vec()
}

/// Some hundred groups that come and go, and ids that are seen again.
fn records(count: usize) -> Vec<Record> {
    let record = |number: usize| Record {
        time: number as Micros * SECOND / 10,
        card: Some(format!("card {}", number * number % 397)),
        shop: Some(format!("a shop of a longer name, {}", number % 7)),
        x: Some(number as f64),
        k: Some(number as i64 % 5),
        id: Some(format!("id {}", number - number % 3)),
        ..Record::default()
    };
    (0..count).map(record).collect()
}

fn world(tag_key: HashKey, memory: usize) -> World {
    let options =
        StageOptions { chunk_rows: 64, dedup: Some((ID, 5 * SECOND)), tag_key, ..StageOptions::default() };
    World::new(&queries(), &options).bounded(Some(Bound { memory, is_lazy: true }))
}

fn cycle(world: &mut World) {
    world.begin();
    world.hand_over(usize::MAX);
    assert!(world.commit());
}

/// All that has come out: answers, and what each commit names.
type Out = (Vec<Vec<Value>>, Vec<(Vec<u8>, std::collections::BTreeMap<Vec<u8>, Vec<u8>>)>);

/// A life with cycles and restarts.
fn live(tag_key: HashKey, memory: usize) -> Out {
    let (records, mut world) = (records(3_000), world(tag_key, memory));
    let (mut answers, mut commits) = (Vec::new(), Vec::new());
    while world.position < records.len() {
        let (count, answered) = world.answer(&records, 50);
        answers.extend(values(&answered, count));
        if world.position.is_multiple_of(150) {
            cycle(&mut world);
            let commit = world.commit.clone().unwrap();
            commits.push((commit.manifest, commit.entries));
        }
        if world.position.is_multiple_of(900) {
            world.crash().unwrap();
        }
    }
    (answers, commits)
}

const MUCH: usize = 1 << 30;

/// Every table of every life has a seed of its own.
#[test]
fn seeds_of_tables_show_in_no_byte_and_the_key_of_tags_in_tags_alone() {
    let key = HashKey::from_bytes([7; HashKey::LEN]);
    let (answers, commits) = live(key, MUCH);
    let again = live(key, MUCH);
    assert!((&answers, commits.len()) == (&again.0, again.1.len()));
    for (one, other) in commits.iter().zip(&again.1) {
        assert!(one.0 == other.0, "the manifest");
        assert!(one.1 == other.1, "the entries");
    }
    let other = live(HashKey::from_bytes([8; HashKey::LEN]), MUCH);
    assert!(answers == other.0);
    for ((manifest, entries), (other_manifest, other_entries)) in commits.iter().zip(&other.1) {
        let is_tags = |key: &[u8]| key[0] == 4;
        assert!(entries.keys().eq(other_entries.keys()));
        for (key, value) in entries.iter().filter(|(key, _)| !is_tags(key)) {
            assert_eq!(value, &other_entries[key], "{key:?}");
        }
        assert!(entries.iter().any(|(key, value)| is_tags(key) && value != &other_entries[key]));
        let plain = |bytes: &[u8]| Manifest { tag_key: None, ..Manifest::parse(bytes).unwrap() };
        assert_eq!(plain(manifest), plain(other_manifest));
    }
}

/// Which groups are in memory depends on the bytes of tables, and those on their seeds; no answer does.
#[test]
fn answers_of_a_bounded_stage_depend_on_no_seed() {
    let (answers, _) = live(HashKey::draw(), MUCH);
    for memory in [0, 20_000, 60_000] {
        assert!(live(HashKey::draw(), memory).0 == answers, "{memory}");
    }
}

/// Manifests of earlier versions had tags of a hash without a key.
#[test]
fn tags_of_an_earlier_build_are_made_anew_once() {
    for version in [1, 2] {
        for (memory, between) in [(0, 500), (30_000, 500), (0, 0), (30_000, 0), (1 << 20, 0)] {
            let records = records(2_000);
            let mut straight = world(HashKey::draw(), memory);
            let (count, answered) = straight.answer(&records, 2_000);
            let straight = values(&answered, count);

            let mut world = world(HashKey::draw(), memory);
            world.answer(&records, 1_000);
            cycle(&mut world);
            let commit = world.commit.as_mut().unwrap();
            let manifest = Manifest::parse(&commit.manifest).unwrap();
            assert!(manifest.tag_key.is_some());
            commit.manifest = manifest.to_bytes_of_version(version);
            for (key, value) in commit.entries.iter_mut().filter(|(key, _)| key[0] == 4) {
                *value = early_tags(key, value);
            }
            world.crash().unwrap();
            assert_eq!(world.position, 1_000);
            let (count, answered) = world.answer(&records, between);
            assert!(values(&answered, count) == straight[1_000..1_000 + between], "{version}, {memory}");
            // The next commit has a key and the tags of it; from then on nothing is read that is not asked for.
            cycle(&mut world);
            assert!(Manifest::parse(&world.commit.as_ref().unwrap().manifest).unwrap().tag_key.is_some());
            world.crash().unwrap();
            let misses = world.stage.cache_stats().unwrap().misses;
            assert_eq!(misses, 0);
            let (count, answered) = world.answer(&records, 1_000);
            assert!(values(&answered, count) == straight[1_000 + between..], "{version}, {memory}");
        }
    }
}

/// A block of tags as another hash would have them.
fn early_tags(key: &[u8], value: &[u8]) -> Vec<u8> {
    let bits = crate::groups::TAG_BLOCK as usize / 8;
    let mut body = value[1..value.len() - 4].to_vec();
    body[bits..].iter_mut().for_each(|byte| *byte = byte.wrapping_mul(31) ^ 0x5a);
    let mut out = Vec::new();
    crate::image::seal(crate::image::VERSION, key, &mut out, |out| out.extend_from_slice(&body));
    out
}

/// Ids that anybody can choose to agree under a hash without a seed; each costs no more than its own frame.
#[test]
fn of_cold_ids_few_frames_are_read() {
    let options =
        StageOptions { chunk_rows: 64, dedup: Some((ID, 10_000 * SECOND)), ..StageOptions::default() };
    let mut world = World::new(&queries(), &options).bounded(Some(Bound { memory: 0, is_lazy: true }));
    let records = records(6_000);
    while world.position < records.len() {
        world.answer(&records, 500);
        cycle(&mut world);
    }
    let before = world.stage.cache_stats().unwrap();
    assert!(before.cold_ids > 1_000, "{before:?}");
    let new: Vec<Record> = (0..500)
        .map(|number| Record { id: Some(format!("never seen {number}")), ..records[5_999].clone() })
        .collect();
    world.position = 0;
    world.stage.answer(&batch(&new, 6_000)).unwrap();
    let groups = 2;
    let misses = world.stage.cache_stats().unwrap().misses - before.misses;
    assert!(misses <= groups + 2, "{misses} reads for ids that never came");
}
