//! Opening: the space is taken over, the rows are brought to what the version names, and every other part goes.
//!
//! Without a version a new space is made, and the one that an earlier life left is removed: nothing that a request on
//! its way could still change is used again. State that another folder wrote is refused, or removed if that was asked
//! for ([`crate::claim`]).
//!
//! Nothing is waited for here: a server that is not there is an error of the start.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, RwLock};

use thalweg_state::registry::Place;
use thalweg_state::{Cycles, StateError, StoreFault, Version};

use crate::Remote;
use crate::backend::{ByKey, RemoteBackend, Shared, Writer, gather};
use crate::claim::{CLAIM, Claim, Claims};
use crate::head::Head;
use crate::pack;
use crate::space;
use crate::store::{PartName, Space};
use crate::version::{Logged, Named};
use crate::wait::Work;

/// A number that no other process draws.
fn draw() -> u64 {
    RandomState::new().hash_one(std::process::id()) & !1
}

pub(crate) fn open(
    remote: &Remote,
    place: &Place,
    task: &str,
    version: Option<&Version>,
) -> Result<RemoteBackend, StateError> {
    let (server, patience) = (remote.server.as_ref(), &remote.patience);
    let now = Arc::new(patience.impatient());
    let space = |number| Space { task: task.into(), identity: place.identity, number };
    let named = version.map(|version| Named::of_version(version, &place.dir)).transpose()?;
    let known = space::read(place)?;
    let claims = Claims { store: server.space(space(CLAIM)), patience: &now, task };
    let held = claims.held()?;
    let number = match &named {
        Some(named) => {
            if let Some((_, claim)) = &held
                && claim.space != named.space
            {
                return Err(claims.superseded(claim));
            }
            named.space
        }
        None => {
            let foreign = held.as_ref().map(|(_, claim)| claim).filter(|claim| known != Some(claim.space));
            if let Some(claim) = foreign {
                let store = server.space(space(claim.space));
                if !remote.begins_anew && claims.has_state(store.as_ref())? {
                    return Err(claims.foreign(claim));
                }
            }
            for old in known.into_iter().chain(foreign.map(|claim| claim.space)) {
                let old = server.space(space(old));
                now.until_done(Work::Write, "remove the earlier state", || old.remove())?;
            }
            draw()
        }
    };
    if known != Some(number) {
        space::write(place, number)?;
    }
    // After the file: a claim that no folder knows would be refused at the next start.
    if held.as_ref().map(|(_, claim)| claim.space) != Some(number) {
        claims.take(
            held.map(|(bytes, _)| bytes),
            &Claim { space: number, folder: place.dir.display().to_string() },
        )?;
    }
    let mut backend = RemoteBackend {
        store: server.space(space(number)),
        patience: now,
        space: space(number),
        dir: place.dir.clone(),
        owner: draw(),
        writer: Mutex::new(Writer {
            cycles: Cycles::at(named.as_ref().map(|named| named.cycle)),
            ..Writer::default()
        }),
        shared: RwLock::default(),
        reads: AtomicU64::new(0),
        writes: AtomicU64::new(0),
    };
    match named {
        None => begin(&backend)?,
        Some(named) => go_on(&mut backend, &named)?,
    }
    backend.patience = Arc::clone(patience);
    Ok(backend)
}

fn begin(backend: &RemoteBackend) -> Result<(), StateError> {
    let head = Head { owner: backend.owner, folded: None }.to_bytes(&backend.space.task);
    match backend.patience.until_done(Work::Write, "make a space", || backend.store.set_head(None, &head))? {
        true => Ok(()),
        false => Err(backend.damaged("space", "none of this number", "one")),
    }
}

fn go_on(backend: &mut RemoteBackend, named: &Named) -> Result<(), StateError> {
    let (patience, store) = (Arc::clone(&backend.patience), Arc::clone(&backend.store));
    let Some(before) = patience.until_done(Work::Read, "look at the head", || store.head())? else {
        return Err(backend.damaged("head", "one", "none"));
    };
    let Some(Head { folded, .. }) = Head::of_bytes(&before, &backend.space.task) else {
        return Err(backend.damaged("head", "one of this task", "other bytes"));
    };
    check_cycles(backend, named, folded)?;
    let head = Head { owner: backend.owner, folded }.to_bytes(&backend.space.task);
    if !patience.until_done(Work::Write, "take the space over", || store.set_head(Some(&before), &head))? {
        let message =
            format!("state of task {}: another process opens it at the same time", backend.space.task);
        return Err(patience.fault(StoreFault::TakenOver, message, "run a job in one process"));
    }
    let rows = match patience.until_done(Work::Read, "count", || store.count())? {
        Some(rows) => rows,
        None => {
            u64::from(patience.until_done(Work::Read, "look at the rows", || store.rows().next())?.is_some())
        }
    };
    backend.shared = RwLock::new(Shared { folded, rows, ..Shared::default() });
    let there = patience.until_done(Work::Read, "list the log", || store.parts())?;
    for logged in named.logged.iter().filter(|logged| Some(logged.cycle) > folded) {
        let changes = read_log(backend, *logged)?;
        backend.fold(logged.cycle, &changes)?;
    }
    for some in there.chunks(store.limits().keys) {
        patience.until_done(Work::Write, "drop the log", || store.drop_parts(some))?;
    }
    Ok(())
}

/// Whether the cycle of the rows is possible, seen from the version.
fn check_cycles(backend: &RemoteBackend, named: &Named, folded: Option<u64>) -> Result<(), StateError> {
    let text = |cycle: Option<u64>| cycle.map_or("none".to_owned(), |cycle| format!("cycle {cycle}"));
    if folded < named.folded {
        return Err(backend.damaged("rows", &text(named.folded), &text(folded)));
    }
    if folded > Some(named.cycle) {
        let expected = format!("{} at most, as the commit record says", text(Some(named.cycle)));
        let StateError::Store { store, fault, message, .. } =
            backend.damaged("rows", &expected, &text(folded))
        else {
            return Ok(());
        };
        let hint = "the data directory is older than the state in the store: bring back the newer one; or remove the \
                    job's folder and start with --begin-anew, from nothing";
        return Err(StateError::Store { store, fault, message, hint: Some(hint.to_owned()) });
    }
    Ok(())
}

fn read_log(backend: &RemoteBackend, logged: Logged) -> Result<ByKey, StateError> {
    let mut changes = ByKey::new();
    for number in 0..logged.parts {
        let name = PartName { cycle: logged.cycle, owner: logged.owner, number };
        let what = || format!("part {number} of cycle {}", logged.cycle);
        let Some(part) =
            backend.patience.until_done(Work::Read, "read the log", || backend.store.part(name))?
        else {
            return Err(backend.damaged(&what(), "it in the log", "none"));
        };
        let bytes = part.len();
        let unpacked = pack::unpack(&part);
        let unpacked = unpacked
            .ok_or_else(|| backend.damaged(&what(), "its checksum", &format!("{bytes} other bytes")))?;
        gather(&mut changes, &unpacked);
    }
    Ok(changes)
}
