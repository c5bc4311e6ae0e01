//! Opening a table: where it goes on after its job's last commit.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use thalweg_storage::make_dir;
use thalweg_types::{DataType, Error, Schema};

use crate::committed::if_gone;
use crate::keeper::{self, Handle};
use crate::manifest::{Contents, Description, Manifest, is_ahead};
use crate::position::Position;
use crate::table::{Frozen, Table};
use crate::{failed, folder, frames};

/// A table that was opened.
pub(crate) struct Opened {
    pub keeper: Handle,
    /// Number of the next file of frames.
    pub next: u64,
}

/// Opens a table at the position that the commit record of `cycle` names; `None`: it begins, and what an attempt that
/// committed nothing has left in its folder goes. Without a cycle the job is not durable.
///
/// Files that the manifest and the commit record do not name are removed: they are what a crash left of work that is done
/// again. Files of frames are not written to again: the rows that count in them become Parquet.
///
/// # Errors
/// The disk's errors; of class user where the columns do not fit to those that are stored, or if a table that begins
/// finds rows that were committed.
pub(crate) fn open(table: &Arc<Table>, cycle: Option<u64>, position: Option<&[u8]>) -> Result<Opened, Error> {
    let fs = Arc::clone(&table.fs);
    let fresh = folder::fresh(&table.dir);
    let creating = |error| failed("create", &table.dir, error);
    make_dir(fs.as_ref(), &fresh).map_err(creating)?;
    let position = position.map(Position::decode).transpose()?;
    let path = folder::manifest(&table.dir);
    if position.is_none() {
        refuse_to_empty(table, cycle)?;
        match fs.remove(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(failed("remove", &path, error));
            }
            _ => {}
        }
    }
    let mut manifest = Manifest::open(Arc::clone(&fs), &table.dir, position.as_ref())?;
    describe(table, &mut manifest)?;
    let position = position.unwrap_or_else(|| Position::new(0, Vec::new()));
    remove_strangers(table, &manifest.contents, &position)?;
    let mut shared = table.lock();
    for extent in position.frames.iter().filter(|extent| extent.number >= manifest.contents.sealed) {
        let path = folder::frames(&table.dir, extent.number);
        let batches = frames::read(fs.as_ref(), &path, extent.number, extent.bytes)
            .map_err(|error| if_gone(error, &path))?;
        shared.frozen.push_back(Frozen { extent: *extent, batches, is_committed: true });
    }
    shared.take_over(table, &manifest.contents);
    drop(shared);
    let next = position.next.max(manifest.contents.sealed);
    Ok(Opened { keeper: keeper::start(Arc::clone(table), manifest)?, next })
}

/// Rows are sealed when they are committed: so a job had the sink before, and dropped it, or its commit log was lost. Before
/// its first cycle a job has dropped none.
fn refuse_to_empty(table: &Table, cycle: Option<u64>) -> Result<(), Error> {
    let contents = Contents::read(table.fs.as_ref(), &table.dir, None)?;
    if contents.sealed == 0 {
        return Ok(());
    }
    let rows: u64 =
        contents.files.values().filter(|entry| entry.part == folder::ROWS).map(|entry| entry.rows).sum();
    if cycle == Some(0) {
        return Err(is_ahead(&table.dir, &sealed_before_a_cycle(rows)));
    }
    Err(Error::user(format!(
        "table {}: {:?} holds {rows} rows that were committed, and the job's last commit knows nothing of them: the sink was \
         dropped from the job, or its commit log is lost",
        table.name, table.dir
    ))
    .with_hint("move or remove that folder to begin a new table, or give the sink another name"))
}

/// The message about a table with rows whose job has committed no cycle.
#[must_use]
pub fn sealed_before_a_cycle(rows: u64) -> String {
    format!(
        "the table holds {rows} rows that were committed, and commit.log, which has lost its records, knows of no cycle"
    )
}

/// Writes down what the columns and rollups are now. Rollups that were asked otherwise before are made anew.
fn describe(table: &Table, manifest: &mut Manifest) -> Result<(), Error> {
    let now = table.description();
    let before = manifest.contents.description.clone();
    if before.as_ref() == Some(&now) {
        return Ok(());
    }
    let mut change = manifest.contents.change();
    match &before {
        None => change.built = now.rollups.iter().map(|rollup| rollup.name.clone()).collect(),
        Some(before) => {
            fits(table, before)?;
            let kept = |name: &String| {
                let what = |description: &Description| {
                    let rollup = description.rollups.iter().find(|rollup| rollup.name == *name);
                    rollup.map(|rollup| (rollup.every, rollup.by.clone(), rollup.sum.clone()))
                };
                what(before).is_some() && what(before) == what(&now) && before.time == now.time
            };
            change.built.retain(kept);
            change.dropped =
                before.rollups.iter().map(|rollup| rollup.name.clone()).filter(|name| !kept(name)).collect();
        }
    }
    change.description = Some(now);
    manifest.commit(change)
}

/// Columns may come and go; one that stays keeps its type.
fn fits(table: &Table, before: &Description) -> Result<(), Error> {
    let stored: Schema = before.schema()?;
    for field in table.columns.schema().fields() {
        let was: Option<&DataType> = stored.field(&field.name).map(|(_, field)| &field.data_type);
        if was.is_some_and(|was| *was != field.data_type) {
            return Err(Error::user(format!(
                "table {} has a column {:?} of type {}, and the job writes {}",
                table.name,
                field.name,
                was.map(DataType::to_string).unwrap_or_default(),
                field.data_type
            ))
            .with_hint("give the column another name, or the sink, which begins a new table"));
        }
    }
    Ok(())
}

/// Removes files that nothing names.
///
/// # Errors
/// The disk's errors; of class corrupt if a named Parquet file is missing, and no Parquet file is removed then.
fn remove_strangers(table: &Table, contents: &Contents, position: &Position) -> Result<(), Error> {
    let fs = table.fs.as_ref();
    let fresh = folder::fresh(&table.dir);
    for name in fs.list(&fresh).map_err(|error| failed("list", &fresh, error))? {
        let number = folder::number_of(&name);
        let is_named = position
            .frames
            .iter()
            .any(|extent| Some(extent.number) == number && extent.number >= contents.sealed);
        if !is_named {
            let path = fresh.join(name);
            fs.remove(&path).map_err(|error| failed("remove", &path, error))?;
        }
    }
    let mut missing: BTreeSet<_> = contents
        .files
        .values()
        .map(|entry| folder::parquet(&table.dir, &entry.part, &entry.partition, entry.number))
        .collect();
    let mut strangers = Vec::new();
    let listing = |dir: &Path| fs.list_dirs(dir).map_err(|error| failed("list", dir, error));
    for part in listing(&table.dir)?.into_iter().filter(|part| part != folder::FRESH) {
        let part = table.dir.join(part);
        for partition in listing(&part)? {
            let partition = part.join(partition);
            let names = fs.list(&partition).map_err(|error| failed("list", &partition, error))?;
            strangers.extend(
                names.into_iter().map(|name| partition.join(name)).filter(|path| !missing.remove(path)),
            );
        }
    }
    // Its rows may be in one of the strangers: where the manifest has lost the change that says so.
    if let Some(path) = missing.first() {
        let message = format!(
            "the manifest of table {} names {path:?}, and there is no such file (of {} files, {} are missing)",
            table.name,
            contents.files.len(),
            missing.len()
        );
        return Err(Error::corrupt(message).with_hint(
            "bring it back from a copy; or give the sink another name, which begins a new table",
        ));
    }
    for path in strangers {
        fs.remove(&path).map_err(|error| failed("remove", &path, error))?;
    }
    Ok(())
}
