//! Deletes what no kept snapshot of a unit needs: manifests and files in the store, and records at the beginning of its log.
//!
//! *Kept* are the three newest snapshots by position, of any lineage, that are in the store with all their files. While there
//! are fewer, no manifest and no record is deleted.
//!
//! Why two nodes that both believe to be the active one do no harm: what is deleted lies below the position of the third
//! newest whole snapshot that the store has. Snapshots that come later only raise that, and a file that one on its way
//! is about to name is young.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use thalweg_types::Error;

use super::Uploader;
use super::manifest::{Area, Manifest, position_of};
use super::store::{Kept, Store};
use super::upload::Upload;

/// Snapshots of a unit that are kept.
const KEPT: usize = 3;

/// What may go.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Needless {
    /// Names of manifests.
    pub(super) manifests: Vec<String>,
    /// Names of files.
    pub(super) files: Vec<String>,
    /// Records of the log below this.
    pub(super) below: Option<u64>,
}

/// Deletes what an active's new snapshot makes needless.
///
/// # Errors
/// Those of the store and of the brokers: what is left goes with a later snapshot.
pub(super) fn collect(uploader: &Uploader, upload: &Upload) -> Result<(), Error> {
    let area = upload.area();
    let store = &*uploader.store;
    let failed = |error: io::Error| {
        Error::external(format!("delete old snapshots of unit {} in the store", upload.unit))
            .with_source(error)
    };
    // What is young is so by the clock of the store: by when it has put the manifest.
    let mine = upload.manifest_name();
    let manifests = store.list(&area.manifests()).map_err(failed)?;
    let Some(now) = manifests.iter().find(|kept| kept.name == mine).map(|kept| kept.at) else {
        return Ok(());
    };
    let is_old = |kept: &Kept| age(kept, now) > uploader.options.age;
    let needless = needless(store, &area, &manifests, is_old).map_err(failed)?;
    let deleted = needless.manifests.len() + needless.files.len();
    // Manifests first: a crash in between leaves files that none names.
    for name in &needless.manifests {
        store.delete(&area.manifest(name)).map_err(failed)?;
    }
    for name in &needless.files {
        store.delete(&area.file(name)).map_err(failed)?;
    }
    uploader.counts.deleted.fetch_add(deleted as u64, Ordering::Relaxed);
    let Some(below) = needless.below else { return Ok(()) };
    let start = upload.bus.bounds(&upload.of)?.start;
    let below = i64::try_from(below).map_err(|_| Error::corrupt("an offset above 2^63 − 1"))?;
    if below > start && upload.is_active() {
        upload.bus.delete_records(&upload.of, below)?;
        tracing::debug!(unit = upload.unit, below, "deleted records that no kept snapshot needs");
    }
    Ok(())
}

fn age(kept: &Kept, now: SystemTime) -> std::time::Duration {
    now.duration_since(kept.at).unwrap_or_default()
}

/// What of an area may go; `manifests` are those that it has.
fn needless(
    store: &dyn Store,
    area: &Area,
    manifests: &[Kept],
    is_old: impl Fn(&Kept) -> bool,
) -> io::Result<Needless> {
    let files = store.list(&area.files())?;
    let has = |manifest: &Manifest| {
        manifest.files.iter().all(|wanted| {
            let place = files.binary_search_by(|kept| kept.name.as_str().cmp(&wanted.hash.0));
            place.is_ok_and(|place| files[place].bytes == wanted.bytes)
        })
    };
    let (mut whole, mut named, mut needless) = (Vec::new(), BTreeSet::new(), Needless::default());
    let mut by_position: Vec<(&Kept, Option<u64>)> =
        manifests.iter().map(|kept| (kept, position_of(&kept.name))).collect();
    by_position.sort_by_key(|(_, position)| std::cmp::Reverse(*position));
    for (kept, position) in by_position {
        let may_go = whole.len() >= KEPT || position.is_none();
        if may_go && is_old(kept) {
            needless.manifests.push(kept.name.clone());
            continue;
        }
        if position.is_none() {
            continue;
        }
        let mut content = match store.get(&area.manifest(&kept.name)) {
            // Another node has deleted it.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            content => content?,
        };
        let manifest = match Manifest::read(&mut *content) {
            // Nothing can be restored from it, so it names nothing.
            Err(error) if error.kind() == ErrorKind::InvalidData => continue,
            manifest => manifest?,
        };
        if whole.len() < KEPT && has(&manifest) {
            whole.push(manifest.position);
        }
        named.extend(manifest.files.into_iter().map(|file| file.hash.0));
    }
    needless.files = files
        .iter()
        .filter(|kept| !named.contains(&kept.name) && is_old(kept))
        .map(|kept| kept.name.clone())
        .collect();
    needless.below = whole.get(KEPT - 1).copied();
    Ok(needless)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::time::Duration;

    use thalweg_kafka::TopicPartition;

    use super::*;
    use crate::cluster::snapshot::lineage::{Lineage, LineageId};
    use crate::cluster::snapshot::manifest::{Hashing, ManifestFile, manifest_name};
    use crate::cluster::snapshot::store::FolderStore;

    struct Kit {
        root: tempfile::TempDir,
        store: FolderStore,
        area: Area,
    }

    impl Kit {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            let store = FolderStore::open(root.path()).unwrap();
            Self { root, store, area: Area::new(&TopicPartition::new("t.j.s", 0), None) }
        }

        /// Puts a file and says its name in the store.
        fn file(&self, content: &str) -> ManifestFile {
            let bytes = content.len() as u64;
            let hash = Hashing::new(content.as_bytes(), bytes, || false).hash().unwrap();
            self.store.put(&self.area.file(&hash.0), &mut content.as_bytes()).unwrap();
            ManifestFile { name: content.to_owned(), bytes, hash }
        }

        /// Puts a snapshot of these files.
        fn snapshot(&self, position: u64, lineage: u64, files: &[&str]) -> String {
            let id = LineageId(lineage);
            let manifest = Manifest {
                version: Manifest::new_version(),
                job: "j".to_owned(),
                stage: "s".to_owned(),
                partition: 0,
                spec: 1,
                topic: "t.j.s".to_owned(),
                topic_id: None,
                position,
                lineage: Lineage { id, parent: None, fork: 0 },
                files: files.iter().map(|content| self.file(content)).collect(),
            };
            let name = manifest_name(position, id);
            self.store.put(&self.area.manifest(&name), &mut manifest.encode().unwrap().as_slice()).unwrap();
            name
        }

        /// What may go, manifests by name and files by content, where only `young` are young.
        fn needless(&self, young: &[&str]) -> (Vec<String>, Vec<String>, Option<u64>) {
            let manifests = self.store.list(&self.area.manifests()).unwrap();
            let is_old = |kept: &Kept| !young.contains(&self.content(&kept.name).as_str());
            let found = super::needless(&self.store, &self.area, &manifests, is_old).unwrap();
            let mut files: Vec<String> = found.files.iter().map(|name| self.content(name)).collect();
            files.sort();
            (found.manifests, files, found.below)
        }

        /// Of a file; the name itself of a manifest.
        fn content(&self, name: &str) -> String {
            let mut text = String::new();
            match self.store.get(&self.area.file(name)) {
                Ok(mut content) => content.read_to_string(&mut text).map(|_| text).unwrap(),
                Err(_) => name.to_owned(),
            }
        }
    }

    fn texts(all: &[&str]) -> Vec<String> {
        all.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn nothing_goes_before_there_are_three_but_what_no_manifest_names() {
        let kit = Kit::new();
        kit.snapshot(10, 1, &["a", "b"]);
        kit.snapshot(20, 1, &["a", "c"]);
        kit.file("lost");
        assert_eq!(kit.needless(&[]), (vec![], texts(&["lost"]), None));
        assert_eq!(kit.needless(&["lost"]), (vec![], vec![], None), "it may be named in a moment");
    }

    #[test]
    fn exactly_what_none_of_the_three_newest_of_any_lineage_names_goes() {
        let kit = Kit::new();
        let oldest = kit.snapshot(10, 1, &["a", "b"]);
        let old = kit.snapshot(20, 2, &["a", "c"]);
        // Lineages overlap: the newest by position are of three.
        kit.snapshot(30, 1, &["c", "d"]);
        kit.snapshot(35, 2, &["d", "e"]);
        kit.snapshot(40, 3, &["e", "f"]);
        let (manifests, files, below) = kit.needless(&[]);
        assert_eq!(manifests, [old.clone(), oldest]);
        assert_eq!((files, below), (texts(&["a", "b"]), Some(30)));
        // A manifest that is young stays, and so does what it names.
        let (manifests, files, _) = kit.needless(&[&old]);
        assert_eq!((manifests.len(), files), (1, texts(&["b"])));
        let (_, files, _) = kit.needless(&["a"]);
        assert_eq!(files, texts(&["b"]));
    }

    #[test]
    fn a_snapshot_that_is_not_whole_is_none_of_the_three() {
        let kit = Kit::new();
        for (position, file) in [(10, "a"), (20, "b"), (30, "c"), (40, "d")] {
            kit.snapshot(position, 1, &[file]);
        }
        assert_eq!(kit.needless(&[]).2, Some(20));
        let missing = kit.file("c");
        kit.store.delete(&kit.area.file(&missing.hash.0)).unwrap();
        assert_eq!(kit.needless(&[]), (vec![], vec![], Some(10)), "a file is missing");
        kit.snapshot(30, 1, &["c"]);
        let name = manifest_name(40, LineageId(1));
        let path = kit.root.path().join(kit.area.manifest(&name));
        std::fs::write(path, "damaged").unwrap();
        let (manifests, files, below) = kit.needless(&[]);
        assert_eq!((manifests, files, below), (vec![], texts(&["d"]), Some(10)), "a manifest is damaged");
        // A short file is none either.
        let b = kit.file("b");
        std::fs::write(kit.root.path().join(kit.area.file(&b.hash.0)), "").unwrap();
        assert_eq!(kit.needless(&[]).2, None);
    }

    #[test]
    fn half_files_of_nodes_that_died_go_once_they_are_old() {
        let kit = Kit::new();
        kit.snapshot(10, 1, &["a"]);
        let half = kit.area.file("0123.0000000000000001.tmp");
        std::fs::write(kit.root.path().join(half), "ha").unwrap();
        let half = kit.area.manifest("x.json.0000000000000001.tmp");
        std::fs::write(kit.root.path().join(half), "{").unwrap();
        assert_eq!(kit.needless(&[]), (texts(&["x.json.0000000000000001.tmp"]), texts(&["ha"]), None));
        let now = kit.store.list(&kit.area.manifests()).unwrap()[0].at;
        let before = Kept { name: String::new(), bytes: 0, at: now - Duration::from_secs(5) };
        assert_eq!(age(&before, now), Duration::from_secs(5));
        let after = Kept { at: now + Duration::from_secs(5), ..before };
        assert_eq!(age(&after, now), Duration::ZERO, "younger than the newest manifest");
    }
}
