//! A job's folder as a whole: its parts one by one, and all of them against the last commit record.
//!
//! A running job commits meanwhile, and files that only older records name are removed. So a finding counts only if the
//! last record is still the same afterwards; else everything is looked at again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use thalweg_state::indexed;

use super::order::JournalEnd;
use super::report::{Damage, Thing, What, thing};
use super::rest::CommittedFile;
use super::tables::{sealed_before_a_cycle, table_position, tables_with_rows};
use super::{Folder, Found, LOOKS, Looker, Whose, parts, source_name};
use crate::data_dir::{JobDir, folder_name};
use crate::durable::record::CommitRecord;

impl Looker {
    /// Everything in the folder of a job.
    pub(super) fn job(&self, path: &Path) -> Vec<Thing> {
        let dir = JobDir::at(path);
        for _ in 0..LOOKS {
            let (things, last) = self.job_once(&dir);
            let is_sound = things.iter().all(|thing| thing.damage.is_empty() && thing.trouble.is_empty());
            if is_sound || self.commits(&dir.commit_log()).1 == last {
                return things;
            }
        }
        let mut found = Found::default();
        found.trouble.push(
            "the job commits faster than it can be looked through: stop it, or look at a copy".to_owned(),
        );
        vec![thing(path, "job", None, What::Unread, found)]
    }

    fn job_once(&self, dir: &JobDir) -> (Vec<Thing>, Option<CommitRecord>) {
        let mut things = Vec::new();
        let (mut commits, last) = self.commits(&dir.commit_log());
        // A damaged commit log is reported once; the rest is looked at by itself.
        let job = match &commits.what {
            What::Commits(look) => Some(Whose { job: look.job.clone(), run: look.run }),
            _ => None,
        };
        if self.is_there(dir.order())
            && commits.damage.is_empty()
            && commits.trouble.is_empty()
            && last.is_none()
        {
            commits.notes.push(
                "there is no commit record: if the job has run, its first records are lost and it begins anew".to_owned(),
            );
        }
        let is_before_a_cycle = match &last {
            Some(last) => last.cycle == 0,
            None => commits.damage.is_empty() && commits.trouble.is_empty(),
        };
        things.push(commits);
        // Before the journals: they hold the blocks that it names, whatever is added meanwhile.
        let order = self
            .is_there(dir.order())
            .then(|| self.order(&dir.order(), job.as_ref().map(|job| job.run), last.as_ref()));
        let journals = self.journals(dir, job.as_ref(), last.as_ref(), &mut things);
        if let Some((mut order, reach)) = order {
            let sources = last.iter().flat_map(|last| &last.sources);
            for ((source, end), reach) in sources.zip(&journals).zip(&reach) {
                // A failed read is reported for the journal.
                if end.is_some() || !self.is_there(dir.journal().join(folder_name(&source.name))) {
                    reach.check(&source.name, end.as_ref(), &mut order);
                }
            }
            things.push(order);
        } else if let Some(last) = last.as_ref().filter(|last| last.order > 0) {
            let mut found = Found::default();
            found.misfit(
                dir.order(),
                format!("the commit of cycle {} names an order log, which is missing", last.cycle),
            );
            things.push(thing(&dir.order(), "order log", None, What::Unread, found));
        }
        self.tasks(dir, last.as_ref(), &mut things);
        for name in self.fs.list_dirs(&dir.tables()).unwrap_or_default() {
            let position = last.as_ref().and_then(|last| table_position(last, &name));
            let mut table = self.table(&dir.tables().join(&name), position.as_deref());
            if is_before_a_cycle
                && let What::Table(look) = &table.what
                && let Some(rows) = look.parts.first().map(|part| part.rows).filter(|rows| *rows > 0)
            {
                let message = sealed_before_a_cycle(rows);
                table.damage.push(Damage { path: dir.commit_log(), pos: None, message });
            }
            things.push(Thing { of: Some(name), ..table });
        }
        for name in last.iter().flat_map(tables_with_rows) {
            let path = dir.tables().join(name);
            if !self.is_there(path.clone()) {
                let mut found = Found::default();
                found.misfit(path.clone(), "the commit record names a table, which is missing".to_owned());
                things.push(thing(&path, "table", Some(name.to_owned()), What::Unread, found));
            }
        }
        if let Some(last) = &last {
            self.files(dir, last, &mut things);
        }
        (things, last)
    }

    fn is_there(&self, folder: PathBuf) -> bool {
        self.fs.list(&folder).is_ok()
    }

    /// The journals, and where each ends, by the number of the source.
    fn journals(
        &self,
        dir: &JobDir,
        job: Option<&Whose>,
        last: Option<&CommitRecord>,
        things: &mut Vec<Thing>,
    ) -> Vec<Option<JournalEnd>> {
        let sources = last.map(|last| last.sources.as_slice()).unwrap_or_default();
        let mut ends: Vec<Option<JournalEnd>> = vec![None; sources.len()];
        for folder in self.fs.list_dirs(&dir.journal()).unwrap_or_default() {
            let path = dir.journal().join(&folder);
            let name = source_name(&folder);
            let number = sources.iter().position(|source| source.name == name);
            let committed = job.zip(number.and_then(|number| sources.get(number)));
            let (found, end) = self.journal(&path, committed);
            if let Some(number) = number {
                ends[number] = end;
            }
            things.push(found);
        }
        for (source, end) in sources.iter().zip(&ends) {
            let path = dir.journal().join(folder_name(&source.name));
            if super::journal::place_of(source).is_some() && end.is_none() && !self.is_there(path.clone()) {
                let mut found = Found::default();
                found.misfit(path.clone(), "the commit record names a journal, which is missing".to_owned());
                things.push(thing(&path, "journal", Some(source.name.clone()), What::Unread, found));
            }
        }
        ends
    }

    /// Reservoirs and states of all tasks, the states as the commit record names them.
    fn tasks(&self, dir: &JobDir, last: Option<&CommitRecord>, things: &mut Vec<Thing>) {
        let mut named = BTreeMap::new();
        for (part, position) in last.iter().flat_map(|last| &last.parts) {
            let Some((operator, task)) = part.rsplit_once('/') else { continue };
            let Ok(task) = task.parse() else { continue };
            named.insert(dir.task(operator, task), (part.clone(), parts::claims(&position.0)));
        }
        let mut seen = Vec::new();
        let mut below = vec![dir.path().join("tasks")];
        while let Some(folder) = below.pop() {
            let task = folder.parent().and_then(|task| named.get(task));
            let of = task.map(|(part, _)| part.clone());
            let of = of.or_else(|| {
                let task = folder.parent()?.strip_prefix(dir.path().join("tasks")).ok()?;
                Some(source_name(&task.to_string_lossy()))
            });
            match self.kind_of(&folder) {
                Ok(Folder::Reservoir) => {
                    let chunks = task.and_then(|(_, claims)| claims.chunks.as_ref());
                    seen.push(folder.clone());
                    things.push(Thing { of, ..self.reservoir(&folder, chunks) });
                }
                Ok(Folder::State) => {
                    let version = task.and_then(|(_, claims)| claims.state.as_ref());
                    seen.push(folder.clone());
                    things.push(Thing { of, ..self.state(&folder, version) });
                }
                Ok(_) => {
                    let names = self.fs.list_dirs(&folder).unwrap_or_default();
                    below.extend(names.into_iter().rev().map(|name| folder.join(name)));
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => {
                    let mut found = Found::default();
                    found.trouble.push(super::failed("list", &folder, error).chain());
                    things.push(thing(&folder, "folder", of, What::Unread, found));
                }
            }
        }
        for (task, (part, claims)) in named {
            // Before the first change there is a version, and before the first chunk a range, and no file.
            let state = claims.state.as_ref().filter(|version| !indexed::is_empty(version));
            let state = state.and_then(indexed::describe);
            let chunks = claims.chunks.filter(|chunks| !chunks.is_empty());
            let chunks = chunks.map(|chunks| format!("{} up to before {}", chunks.start, chunks.end));
            for (folder, kind, named) in [("state", "state", state), ("reservoir", "reservoir", chunks)] {
                let path = task.join(folder);
                if let Some(named) = named.filter(|_| !seen.contains(&path)) {
                    let mut found = Found::default();
                    found.misfit(path.clone(), format!("the commit record names {named}, which is missing"));
                    things.push(thing(&path, kind, Some(part.clone()), What::Unread, found));
                }
            }
        }
    }

    /// Files of rejects and of sinks, against the lengths that the commit record names.
    fn files(&self, dir: &JobDir, last: &CommitRecord, things: &mut Vec<Thing>) {
        let job_file = self.job_file(dir.path());
        for (part, position) in &last.parts {
            let claims = parts::claims(&position.0);
            if let Some(rejects) = claims.rejects.filter(|rejects| rejects.bytes > 0) {
                let path = dir.rejects().join(format!("rejects-{}.ndjson", rejects.number));
                let committed = CommittedFile { bytes: rejects.bytes, sum: rejects.sum() };
                things.push(self.file(&path, "rejects", part, committed));
            }
            let Some(file) = claims.file else { continue };
            let name = part.strip_suffix("/0").unwrap_or(part);
            let sink = job_file.as_ref().and_then(|job| job.get("sinks")?.get(name));
            let named = sink.filter(|sink| sink["type"] == "file").and_then(|sink| sink["path"].as_str());
            let was = file.identity.as_ref().map(|identity| identity.path.as_str());
            // Where the job file says, as the file may have been moved with it; else where it was.
            let path = named.filter(|path| was.is_none() || Path::new(path).exists()).or(was);
            let Some(path) = path.map(Path::new) else { continue };
            // Pipes and devices have no length. A relative path is from where the job was started.
            match std::fs::metadata(path) {
                Ok(metadata) if !metadata.is_file() => {}
                Err(_) if path.is_relative() => {
                    let mut found = Found::default();
                    found.notes.push(
                        "not looked at: its path is relative to where the job was started, and it is not there from here"
                            .to_owned(),
                    );
                    things.push(thing(path, "file of a sink", Some(name.to_owned()), What::Unread, found));
                }
                _ => {
                    let sum = file.identity.as_ref().and_then(|identity| identity.sum);
                    let committed = CommittedFile { bytes: file.bytes, sum };
                    things.push(self.file(path, "file of a sink", name, committed));
                }
            }
        }
    }
}
