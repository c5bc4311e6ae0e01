//! The texts of a job by which its parts work, each with a number that grows.
//!
//! A sender writes its text into a partition before its first rows there, so a log says by itself by what it is computed
//! (cluster rules, 9). A unit works by the highest number that its log has named so far: it ends where the log first names
//! a higher one, and is opened again by that. Rows of senders that are older or newer are read with the columns of their
//! own text, and get the columns of the unit's text by name: one that their text does not have is null.
//!
//! The texts are kept in the unit's folder, one file each, and the numbers that the log has named in its commit record: a
//! text whose number that does not name is not there yet.

use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind;
use std::mem::discriminant;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::cast::AsArray as _;
use arrow_array::{Array as _, ArrayRef, RecordBatch, RecordBatchOptions, StructArray, new_null_array};
use arrow_schema::{DataType, Field, Fields, SchemaRef};
use thalweg_cluster::frame::{Frame, Settings, Spec};
use thalweg_connect::source::kafka::NOT_OF_RECORDS;
use thalweg_storage::{Fs, OpenMode, make_dir, publish};
use thalweg_types::{Error, SEMANTICS};

use super::cut::{Cut, Reads, StageCut};
use super::wire::wire_schema;
use crate::data_dir::JobDir;

/// Texts that a unit knows at a time: of its log's numbers the highest ones. Rows by an older one do not count.
pub(super) const MAX_TEXTS: usize = 8;

/// How a text of a job is cut on this node.
type CutText = Box<dyn Fn(&str) -> Result<Cut, Error> + Send + Sync>;

/// A text of a job, and its parts by that.
type Known = (Arc<Spec>, Arc<Cut>);

/// The texts of a job, cut.
pub struct Texts {
    cut: CutText,
    /// By number, the newest ones.
    known: Mutex<BTreeMap<u64, Known>>,
}

impl fmt::Debug for Texts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Texts").finish_non_exhaustive()
    }
}

impl Texts {
    /// `cut` checks a text of the job and cuts it.
    pub fn new(cut: impl Fn(&str) -> Result<Cut, Error> + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { cut: Box::new(cut), known: Mutex::default() })
    }

    /// The parts of the job by one of its texts.
    ///
    /// # Errors
    /// Where this program does not compute it, or cannot read it; all that is refused.
    pub fn cut(&self, spec: &Arc<Spec>) -> Result<Arc<Cut>, Error> {
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, cut)) = lock().get(&spec.number)
            && known == spec
        {
            return Ok(Arc::clone(cut));
        }
        let number = spec.number;
        if spec.semantics > SEMANTICS {
            return Err(Error::user(format!(
                "text {number} of the job is of version {} of what the engine computes, this program has version {SEMANTICS}",
                spec.semantics
            ))
            .with_hint("run a newer program on this node"));
        }
        let cut =
            (self.cut)(&spec.job).map_err(|error| error.context(format!("text {number} of the job")))?;
        let cut = Arc::new(cut);
        let mut known = lock();
        known.insert(number, (Arc::clone(spec), Arc::clone(&cut)));
        while known.len() > 2 * MAX_TEXTS {
            known.pop_first();
        }
        Ok(cut)
    }

    /// A stage by one of the texts.
    ///
    /// # Errors
    /// As [`Texts::cut`], and where the text has no such stage.
    pub(super) fn stage(&self, spec: &Arc<Spec>, place: usize) -> Result<StageCut, Error> {
        let cut = self.cut(spec)?;
        let stage = cut.stages.get(place).cloned();
        stage.ok_or_else(|| {
            let (number, stages) = (spec.number, cut.stages.len());
            Error::user(format!("text {number} of the job has {stages} stages, expected more than {place}"))
                .with_hint("give the job with other stages another name")
        })
    }
}

/// The texts in the folder of a unit.
#[derive(Clone)]
pub(super) struct Kept {
    fs: Arc<dyn Fs>,
    folder: PathBuf,
}

impl Kept {
    pub(super) fn of(folder: &JobDir, fs: &Arc<dyn Fs>) -> Self {
        Self { fs: Arc::clone(fs), folder: folder.path().join("texts") }
    }

    fn path(&self, number: u64) -> PathBuf {
        self.folder.join(number.to_string())
    }

    /// # Errors
    /// The disk's errors, and where the file is not there or holds something else.
    pub(super) fn read(&self, number: u64) -> Result<Arc<Spec>, Error> {
        let path = self.path(number);
        let read = || {
            let file = self.fs.open(&path, OpenMode::Read)?;
            let mut bytes = vec![0; usize::try_from(file.len()?).map_err(std::io::Error::other)?];
            file.read_exact_at(&mut bytes, 0).map(|()| bytes)
        };
        let bytes = match read() {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(Error::corrupt(format!("{path:?} with text {number} of the job is not there"))
                    .with_hint(
                        "bring it back from a copy; or remove the unit's folder, and it begins anew",
                    ));
            }
            Err(error) => return Err(Error::disk(format!("read {path:?}"), error)),
        };
        match Frame::parse(&bytes) {
            Ok(Frame::Spec(spec)) if spec.number == number => Ok(Arc::new(spec)),
            Ok(_) => Err(Error::corrupt(format!("{path:?} is not text {number} of the job"))),
            Err(error) => Err(Error::corrupt(format!("{path:?}: {error}"))),
        }
    }

    /// Keeps a text before a commit record names it.
    ///
    /// # Errors
    /// The disk's errors.
    pub(super) fn write(&self, spec: &Spec) -> Result<(), Error> {
        let path = self.path(spec.number);
        let bytes = spec.encode(&Settings::default());
        let bytes = bytes.map_err(|error| Error::internal(format!("keep a text of a job: {error}")))?;
        let written = make_dir(&*self.fs, &self.folder).and_then(|()| publish(&*self.fs, &path, &bytes));
        written.map_err(|error| Error::disk(format!("write {path:?}"), error))
    }

    /// Removes texts below a number, which the last commit does not name; what stays for a disk's error goes later.
    pub(super) fn forget_below(&self, number: u64) {
        for name in self.fs.list(&self.folder).unwrap_or_default() {
            let path = self.folder.join(&name);
            if name.parse::<u64>().is_ok_and(|of| of < number)
                && let Err(error) = self.fs.remove(&path)
            {
                tracing::debug!(?path, %error, "remove an old text of a job");
            }
        }
    }
}

/// The columns that frames have by a text, of each input of a stage.
pub(super) type Wires = Arc<[SchemaRef]>;

pub(super) fn wires(stage: &StageCut) -> Wires {
    stage.streams.iter().map(|stream| Arc::clone(wire_schema(stream).arrow())).collect()
}

/// Rows of another text of the job with the columns that they are to have, by name; those that they do not have are null.
///
/// # Errors
/// Of class user where a column is of another type.
pub(super) fn adapt(rows: &RecordBatch, wanted: &SchemaRef) -> Result<RecordBatch, Error> {
    if rows.schema_ref() == wanted {
        return Ok(rows.clone());
    }
    let columns = by_name(rows.schema_ref().fields(), rows.columns(), wanted.fields(), rows.num_rows())?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(wanted), columns, &options)
        .map_err(|error| Error::internal("rows by another text of the job").with_source(error))
}

fn by_name(
    fields: &Fields,
    columns: &[ArrayRef],
    wanted: &Fields,
    rows: usize,
) -> Result<Vec<ArrayRef>, Error> {
    let column = |field: &Arc<Field>| {
        let Some(place) = fields.iter().position(|other| other.name() == field.name()) else {
            return Ok(new_null_array(field.data_type(), rows));
        };
        let column = &columns[place];
        match (column.as_struct_opt(), field.data_type()) {
            (_, wanted) if column.data_type() == wanted => Ok(Arc::clone(column)),
            (Some(values), DataType::Struct(wanted)) => {
                let inner = by_name(values.fields(), values.columns(), wanted, rows)?;
                let adapted = StructArray::try_new(wanted.clone(), inner, values.nulls().cloned());
                let adapted = adapted
                    .map_err(|error| Error::internal("rows by another text of the job").with_source(error))?;
                Ok(Arc::new(adapted) as ArrayRef)
            }
            (_, wanted) => Err(Error::user(format!(
                "column {:?} is {} by one text of the job and {wanted} by another",
                field.name(),
                column.data_type()
            ))
            .with_hint("give a column of another type another name")),
        }
    };
    wanted.iter().map(column).collect()
}

/// Whether units of a job may go on by another text of it.
///
/// # Errors
/// Of class user: says what differs.
pub(super) fn check_change(before: &Cut, now: &Cut) -> Result<(), Error> {
    let refuse = |what: String| {
        Err(Error::user(format!(
            "the job runs in the cluster with another text, and cannot go on by this one: {what}"
        ))
        .with_hint("change it back, or give the job another name"))
    };
    let names =
        |cut: &Cut| cut.stages.iter().map(|stage| stage.name.to_string()).collect::<Vec<_>>().join(", ");
    if names(before) != names(now) {
        return refuse(format!("its stages were {}, and are {}", names(before), names(now)));
    }
    for (was, is) in before.stages.iter().zip(&now.stages) {
        let name = &is.name;
        if was.reads != Reads::Log || is.reads != Reads::Log {
            check_reading(before, now).or_else(refuse)?;
            if discriminant(&was.reads) != discriminant(&is.reads) {
                return refuse(format!("stage {name} would read its source in another way"));
            }
            if was.partitions > is.partitions {
                return refuse(format!(
                    "its topic had {} partitions, and has {}",
                    was.partitions, is.partitions
                ));
            }
        } else if was.partitions != is.partitions {
            return refuse(format!(
                "stage {name} had {} partitions, and has {}",
                was.partitions, is.partitions
            ));
        }
        if was.streams.len() != is.streams.len() {
            return refuse(format!(
                "stage {name} had {} inputs, and has {}",
                was.streams.len(),
                is.streams.len()
            ));
        }
        let keys = |stage: &StageCut| -> Vec<Vec<String>> {
            let inputs = stage.keys.iter().zip(stage.streams.iter());
            inputs
                .map(|(key, of)| key.iter().map(|column| of.fields()[*column].name.to_string()).collect())
                .collect()
        };
        if keys(was) != keys(is) {
            return refuse(format!("stage {name} was split by {:?}, and is by {:?}", keys(was), keys(is)));
        }
        for (was, is) in wires(was).iter().zip(wires(is).iter()) {
            let none = RecordBatch::new_empty(Arc::clone(was));
            if let Err(error) = adapt(&none, is) {
                return refuse(format!("stage {name}: {error}"));
            }
        }
        is.goes_on_from(was).or_else(|error| refuse(format!("stage {name}: {error}")))?;
    }
    Ok(())
}

/// Whether units make the same rows of their sources by both texts: a unit that goes on from its commit may make rows again
/// that it has sent by the text before.
fn check_reading(before: &Cut, now: &Cut) -> Result<(), String> {
    let parts = |cut: &Cut| {
        let json = &cut.whole().json;
        let mut sources = json["sources"].clone();
        for source in sources.as_object_mut().into_iter().flat_map(serde_json::Map::values_mut) {
            let keys = source.as_object_mut();
            let is_of_records = |key: &str| key != "node" && !NOT_OF_RECORDS.contains(&key);
            keys.into_iter().for_each(|keys| keys.retain(|key, _| is_of_records(key)));
        }
        let above: Vec<serde_json::Value> =
            cut.above.iter().map(|name| json["operators"][&**name].clone()).collect();
        (sources, above)
    };
    let ((sources, above), (now_sources, now_above)) = (parts(before), parts(now));
    if sources != now_sources {
        return Err("its sources would make other records".to_owned());
    }
    if above != now_above {
        return Err("units read its sources, and the operators above the key are other ones".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use arrow_array::{Float64Array, Int64Array};
    use arrow_schema::Schema;

    use super::*;

    fn schema(fields: &[(&str, DataType)]) -> SchemaRef {
        let fields: Vec<Field> =
            fields.iter().map(|(name, of)| Field::new(*name, of.clone(), true)).collect();
        Arc::new(Schema::new(fields))
    }

    #[test]
    fn columns_go_by_their_names_and_those_that_are_not_there_are_null() {
        let inner = |names: &[&str]| {
            DataType::Struct(names.iter().map(|name| Field::new(*name, DataType::Int64, true)).collect())
        };
        let was = schema(&[("n", DataType::Int64), ("old", DataType::Int64), ("said", inner(&["a", "b"]))]);
        let is = schema(&[("x", DataType::Float64), ("said", inner(&["b", "c"])), ("n", DataType::Int64)]);
        let numbers = |from: i64| Arc::new(Int64Array::from(vec![from, from + 1])) as ArrayRef;
        let DataType::Struct(fields) = was.field(2).data_type().clone() else { unreachable!() };
        let said = Arc::new(StructArray::new(fields, vec![numbers(5), numbers(7)], None)) as ArrayRef;
        let rows = RecordBatch::try_new(was, vec![numbers(1), numbers(3), said]).unwrap();
        let adapted = adapt(&rows, &is).unwrap();
        assert_eq!(adapted.schema(), is);
        assert_eq!(adapted.column(0).as_ref(), &Float64Array::from(vec![None, None]));
        let said = adapted.column(1).as_struct();
        assert_eq!((said.column(0), said.column(1).null_count()), (&numbers(7), 2));
        assert_eq!(adapted.column(2), &numbers(1));
        let error = adapt(&rows, &schema(&[("n", DataType::Utf8)])).unwrap_err().to_string();
        assert!(error.contains("\"n\" is Int64 by one text of the job and Utf8 by another"), "{error}");
    }
}
