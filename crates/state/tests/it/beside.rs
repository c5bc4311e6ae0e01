//! Large unsynced writes are synced in the background: nobody waits for them before a version is given out, and then
//! everybody.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use thalweg_state::indexed::{Indexed, IndexedOptions};
use thalweg_state::{Backend, Changes, StateError, Version};
use thalweg_storage::{File, Fs, Layer, Layered, MemFs};

use crate::harness::{DIR, IDENTITY, State, apply, assert_state, numbered};

/// Longer than a sync that is not held takes, on a busy machine, too.
const LONG: Duration = Duration::from_secs(20);

const MIB: usize = 1 << 20;

/// A disk on which a sync of the first segment says that it has begun, and waits until a test says how to end.
#[derive(Debug)]
struct Held {
    disk: MemFs,
    /// Bytes that the first segment has room for.
    room: AtomicU64,
    begun: Sender<()>,
    ends: Mutex<Receiver<io::Result<()>>>,
}

impl Held {
    fn holds(path: &Path) -> bool {
        path.ends_with("segment-00000000000000000001.ths")
    }
}

impl Layer for Held {
    fn inner(&self) -> &dyn Fs {
        &self.disk
    }

    fn write_at(&self, path: &Path, file: &dyn File, bytes: &[u8], position: u64) -> io::Result<usize> {
        if Self::holds(path) && position + bytes.len() as u64 > self.room.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        file.write_at(bytes, position)
    }

    fn sync_data(&self, path: &Path, file: &dyn File) -> io::Result<()> {
        if Self::holds(path) {
            self.begun.send(()).map_err(io::Error::other)?;
            self.ends.lock().unwrap().recv_timeout(LONG).map_err(io::Error::other)??;
        }
        file.sync_data()
    }
}

/// A back end on such a disk, and what it should have.
struct World {
    fs: Layered<Held>,
    backend: Indexed,
    state: State,
    begun: Receiver<()>,
    ends: Sender<io::Result<()>>,
}

impl World {
    fn new() -> Self {
        let ((begin, begun), (ends, end)) = (channel(), channel());
        let room = AtomicU64::new(u64::MAX);
        let fs = Layered::over(Held { disk: MemFs::new(), room, begun: begin, ends: Mutex::new(end) });
        let options = IndexedOptions::default();
        let backend = Indexed::open(Arc::new(fs.clone()), Path::new(DIR), IDENTITY, options, None).unwrap();
        Self { fs, backend, state: State::new(), begun, ends }
    }

    /// Writes values of 16 KiB for keys of their own.
    fn write(&mut self, space: u32, bytes: usize) -> Result<(), StateError> {
        let mut changes = Changes::new();
        for number in 0..bytes.div_ceil(16 << 10) as u32 {
            changes.push(&numbered(space, number), &vec![(space ^ number) as u8; 16 << 10]);
        }
        apply(&mut self.state, &changes);
        self.backend.write(1, &changes)
    }

    fn assert_survives_a_power_cut(self, version: &Version) {
        let World { fs, state, backend, .. } = self;
        drop(backend);
        let disk = fs.layer().disk.clone();
        disk.crash();
        let options = IndexedOptions::default();
        let again = Indexed::open(Arc::new(disk), Path::new(DIR), IDENTITY, options, Some(version)).unwrap();
        assert_state(&again, &state, &[]);
    }

    /// Gives a version out while a sync of the first segment is held: it must not come before that sync ends, as the
    /// test says.
    fn prepare(&self, end: io::Result<()>) -> Result<Version, StateError> {
        self.begun.recv_timeout(LONG).expect("the sync begins during the work");
        let backend = &self.backend;
        thread::scope(|scope| {
            let preparing = scope.spawn(|| backend.prepare(1));
            // Without a wait it would be through by then: nothing else holds it.
            thread::sleep(Duration::from_millis(50));
            assert!(!preparing.is_finished(), "a version was given out before what it names was on the disk");
            self.ends.send(end).unwrap();
            preparing.join().unwrap()
        })
    }
}

#[test]
fn a_version_waits_for_the_sync_of_a_sealed_segment() {
    let mut world = World::new();
    // A segment of little state is full with that, and the next write makes another.
    world.write(1, MIB + MIB / 4).unwrap();
    world.write(2, 1).unwrap();
    let version = world.prepare(Ok(())).unwrap();
    world.backend.committed(1).unwrap();
    world.assert_survives_a_power_cut(&version);
}

#[test]
fn the_error_of_a_sync_beside_the_work_is_final() {
    let mut world = World::new();
    world.write(1, MIB + MIB / 4).unwrap();
    world.write(2, 1).unwrap();
    // Also where a lack of space is the reason, after which other calls may be repeated.
    let error = world.prepare(Err(io::ErrorKind::StorageFull.into())).unwrap_err();
    assert!(
        matches!(&error, StateError::Io(disk) if disk.is_full() && disk.action == "sync" && disk.path.ends_with("segment-00000000000000000001.ths")),
        "{error}"
    );
    assert!(matches!(world.write(3, 1), Err(StateError::Poisoned { .. })));
    assert!(matches!(world.backend.prepare(1), Err(StateError::Poisoned { .. })));
}

#[test]
fn the_disk_begins_with_much_before_the_cycle_ends() {
    let mut world = World::new();
    // The segment is not full of it by itself: bytes that are written at once are in one.
    world.write(1, 5 * MIB).unwrap();
    world.begun.recv_timeout(LONG).expect("a sync has begun, and the write has not waited for it");
    // That one, and the sync of all at the end of the cycle.
    (0..2).for_each(|_| world.ends.send(Ok(())).unwrap());
    let version = world.backend.prepare(1).unwrap();
    world.assert_survives_a_power_cut(&version);
}

#[test]
fn a_write_that_found_the_disk_full_after_it_had_begun_is_done_again() {
    let mut world = World::new();
    world.fs.layer().room.store(5 * MIB as u64, Ordering::Relaxed);
    let error = world.write(1, 6 * MIB).unwrap_err();
    assert!(matches!(&error, StateError::Io(disk) if disk.is_full() && disk.action == "write"), "{error}");
    world.begun.recv_timeout(LONG).expect("the disk has begun with the written bytes");
    world.fs.layer().room.store(u64::MAX, Ordering::Relaxed);
    // As many as there can be: one for each 4 MiB, and that of all.
    (0..4).for_each(|_| world.ends.send(Ok(())).unwrap());
    world.write(1, 6 * MIB).unwrap();
    let version = world.backend.prepare(1).unwrap();
    world.assert_survives_a_power_cut(&version);
}
