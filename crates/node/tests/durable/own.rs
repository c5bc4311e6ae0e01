//! An operator of a user that does what `metrics` does: answers each record, has several parts, judges, shares in
//! `state.memory`, and has queries that come and go.

use std::collections::BTreeMap;
use std::sync::Mutex;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringViewArray, StructArray};
use thalweg_flow::{Command, InputId, Operator, Output, Partitioning};
use thalweg_node::job_file::keys::KeySpec;
use thalweg_node::operator::{
    Answers, Memory, NamedOutput, OperatorCheck, OperatorPlugin, Part, PartInput, Prepared, Tasks,
};
use thalweg_node::queries::{Present, Queries, QueryCommand, QueryError, QueryPlan, QueryText, Requeried};
use thalweg_types::{Batch, DataType, Field, Schema, Value};

use super::*;

const JOB: &str = "
name: own
cycle: { every: 5ms }
state: { memory: 8MiB }
sources:
  a: { type: file, path: DIR/a.csv, follow: true, poll: 1ms, format: csv, schema: { n: int64, card: string } }
operators:
  t: { type: tally, input: a, partitions: 2 }
sinks:
  out: { type: file, input: t, path: DIR/out.ndjson, format: ndjson }
";

/// What the tasks were told: part, tasks of its first input, memory.
type Told = Arc<Mutex<Vec<(String, u32, Option<usize>)>>>;

/// Counts records of each card whose `n` is above a floor: queries are texts such as `above 3`.
struct Tally(Told);

#[derive(Clone)]
struct Spec {
    input: Schema,
    queries: Vec<QueryText>,
    told: Told,
}

impl Spec {
    fn answers(&self) -> Schema {
        let mut fields = self.input.fields().to_vec();
        fields.push(Field::new("counts", DataType::String));
        Schema::new(fields)
    }

    fn parts(&self) -> Vec<Part> {
        let spec = Arc::new(self.clone());
        let tell = |context: &thalweg_node::operator::TaskContext<'_>, told: &Told| {
            let told = &mut *told.lock().unwrap();
            told.push((context.info.operator.to_string(), context.info.upstream[0], context.memory));
        };
        let card = PartInput::Outer { port: 0, partitioning: Partitioning::Key(vec![1]) };
        let stage = Part {
            label: Some("by card".into()),
            inputs: vec![card],
            outputs: vec![self.answers()],
            tasks: Tasks::Partitions,
            judges: true,
            factory: Arc::new(move |context| {
                tell(context, &spec.told);
                let mut stage =
                    Stage { task: context.info.index, counts: BTreeMap::new(), schema: spec.answers() };
                for query in &spec.queries {
                    stage.add(&query.name, &query.text)?;
                }
                Ok(Box::new(stage))
            }),
        };
        let told = Arc::clone(&self.told);
        let last = Part {
            label: None,
            inputs: vec![PartInput::Part { index: 0, output: 0, partitioning: Partitioning::Global }],
            outputs: vec![self.answers()],
            tasks: Tasks::One,
            judges: false,
            factory: Arc::new(move |context| {
                tell(context, &told);
                Ok(Box::new(Last(context.answers())))
            }),
        };
        vec![stage, last]
    }

    fn requeried(self) -> Requeried {
        Requeried { parts: self.parts(), queries: Arc::new(self) }
    }
}

fn floor(text: &str) -> Result<i64, Error> {
    let floor = text.strip_prefix("above ").and_then(|floor| floor.parse().ok());
    floor.ok_or_else(|| Error::user(format!("expected a query such as `above 3`, got {text:?}")))
}

impl Queries for Spec {
    fn list(&self) -> Vec<QueryText> {
        self.queries.clone()
    }

    fn plan(&self, _: &str, text: &str) -> Result<QueryPlan, QueryError> {
        floor(text)?;
        let key = vec![self.input.fields()[1].clone()];
        Ok(QueryPlan { part: 0, key, split_by: vec![0], words: format!("count {text}") })
    }

    fn with(&self, name: &str, text: &str) -> Result<Requeried, QueryError> {
        floor(text)?;
        let mut spec = self.clone();
        spec.queries.push(QueryText { name: name.to_owned(), text: text.to_owned(), is_added: true });
        Ok(spec.requeried())
    }

    fn without(&self, name: &str) -> Requeried {
        let mut spec = self.clone();
        spec.queries.retain(|query| query.name != name);
        spec.requeried()
    }
}

struct Stage {
    task: u32,
    /// By name, the floor and the count of each card.
    counts: BTreeMap<String, (i64, BTreeMap<String, i64>)>,
    schema: Schema,
}

impl Stage {
    fn add(&mut self, name: &str, text: &str) -> Result<(), Error> {
        self.counts.insert(name.to_owned(), (floor(text)?, BTreeMap::new()));
        Ok(())
    }

    fn read(&self, name: &str, key: &[(String, ArrayRef)]) -> Present {
        assert_eq!(key[0].0, "card");
        let card = key[0].1.as_string_view().value(0);
        let count = self.counts[name].1.get(card).copied().unwrap_or(0);
        let data_type = DataType::Struct(vec![Field::new("n", DataType::Int64)]);
        let arrow_schema::DataType::Struct(fields) = data_type.to_arrow() else { unreachable!() };
        let values = StructArray::new(fields, vec![Arc::new(Int64Array::from(vec![count]))], None);
        Present { data_type, values: Arc::new(values), as_of: None }
    }
}

impl Operator for Stage {
    fn process(&mut self, _: InputId, batch: Batch, out: &mut Output<'_>) -> Result<(), Error> {
        let batch = batch.compact();
        let mut told: Vec<String> = Vec::new();
        for row in 0..batch.len() {
            let value = |column| Value::at(batch.column(column), row);
            let (Value::Int64(n), Value::String(card)) = (value(0), value(1)) else { unreachable!() };
            let counts = self.counts.iter_mut().map(|(name, (floor, counts))| {
                let count = counts.entry(card.clone()).or_default();
                *count += i64::from(n > *floor);
                format!("{name}={count}")
            });
            told.push(counts.collect::<Vec<_>>().join(" "));
        }
        let mut columns = batch.records().columns().to_vec();
        columns.push(Arc::new(StringViewArray::from_iter_values(told)));
        let records = RecordBatch::try_new(Arc::clone(self.schema.arrow()), columns).unwrap();
        out.emit(0, batch.with_records(records));
        Ok(())
    }

    fn command(&mut self, command: &Command, _: &mut Output<'_>) -> Result<(), Error> {
        match command.body.downcast_ref().expect("only queries are asked about") {
            QueryCommand::Add { name, text, reply } => drop(reply.send(self.add(name, text))),
            QueryCommand::Drop { name, reply } => {
                self.counts.remove(name);
                drop(reply.send(Ok(())));
            }
            QueryCommand::Read { name, task, key, reply } if *task == self.task => {
                drop(reply.send(Ok(self.read(name, key))));
            }
            QueryCommand::Read { .. } => {}
        }
        Ok(())
    }
}

struct Last(thalweg_node::operator::AnswerCount);

impl Operator for Last {
    fn process(&mut self, _: InputId, batch: Batch, out: &mut Output<'_>) -> Result<(), Error> {
        self.0.add(batch.len());
        out.emit(0, batch);
        Ok(())
    }
}

impl OperatorPlugin for Tally {
    fn name(&self) -> &'static str {
        "tally"
    }

    fn doc(&self) -> &'static str {
        "counts"
    }

    fn options(&self) -> &'static [KeySpec] {
        &[]
    }

    fn check(&self, check: &OperatorCheck<'_>) -> Option<Prepared> {
        let spec =
            Spec { input: check.input().schema.clone(), queries: Vec::new(), told: Arc::clone(&self.0) };
        let outputs = vec![NamedOutput { name: "answers".to_owned(), schema: spec.answers() }];
        Some(Prepared {
            answers: Some(Answers::default()),
            memory: Some(Memory::Groups),
            ..Prepared::of_parts(outputs, spec.parts()).with_queries(Arc::new(spec))
        })
    }
}

#[test]
fn an_operator_of_a_user_does_what_metrics_does() {
    let folder = Folder::new();
    fs::write(folder.path("a.csv"), "n,card\n").unwrap();
    let told = Told::default();
    let node = || {
        let options = Node::builder().data_dir(folder.path("data")).workers(2);
        options.operator(Tally(Arc::clone(&told))).open().unwrap()
    };
    let mut lines = 0;
    let mut answer = |text: &str| {
        append_text(&folder.path("a.csv"), text);
        lines += 1;
        eventually("the answer", || folder.read("out.ndjson").lines().count() == lines);
        let out = folder.read("out.ndjson");
        let last: serde_json::Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
        last["counts"].as_str().unwrap().to_owned()
    };

    let first = node();
    let job = folder.start(&first, JOB).unwrap();
    let share = (8 << 20) / 4 * 3 / 2;
    let mut tasks = std::mem::take(&mut *told.lock().unwrap());
    tasks.sort();
    let stage = ("t/by card".to_owned(), 2, Some(share));
    assert_eq!(tasks.len(), 3);
    assert_eq!(
        (&tasks[0].0, tasks[0].1),
        (&"t".to_owned(), 2),
        "two tasks of the stage are before the last part"
    );
    assert_eq!((&tasks[1].0, tasks[1].2), (&stage.0, stage.2));
    assert_eq!(tasks[1].2, tasks[2].2);

    assert_eq!(answer("5,x\n"), "");
    let queries = job.queries("t").unwrap();
    queries.add(job.job(), "big", "above 3").unwrap();
    queries.add(job.job(), "all", "above 0").unwrap();
    assert!(matches!(queries.add(job.job(), "all", "above 9"), Err(QueryError::Exists { .. })));
    assert!(matches!(queries.add(job.job(), "bad", "below 9"), Err(QueryError::Failed(_))));
    assert_eq!(answer("4,x\n"), "all=1 big=1");
    assert_eq!(answer("1,x\n"), "all=2 big=1");
    let key = [("card".to_owned(), Some("x".to_owned()))];
    let present = queries.read(job.job(), "all", &key).unwrap();
    assert_eq!((present.key["card"].as_str(), present.values["n"].as_i64()), (Some("x"), Some(2)));
    queries.drop(job.job(), "big").unwrap();
    assert_eq!(answer("4,x\n"), "all=3");
    assert_eq!(job.summary().answers, 4, "those of the operator, whatever sinks take");
    let before = job.cycles().unwrap().committed;
    eventually("a commit", || job.cycles().unwrap().committed > before + 1);
    job.abort();
    job.wait();
    drop((job, first));

    // Its state began anew, as it saves none; its queries are those of the commit.
    let second = node();
    let job = folder.start(&second, JOB).unwrap();
    assert_eq!(answer("4,x\n"), "all=1");
    job.abort();
    job.wait();
    let without = folder.check_with(JOB, second.check_options());
    let job = second.start_without(without, &[], &["t/all".parse().unwrap()]).unwrap();
    assert_eq!(answer("4,x\n"), "");
    job.abort();
    job.wait();
}

#[test]
fn what_is_said_of_it_is_said_of_any_operator_with_parts() {
    let folder = Folder::new();
    let options = Node::builder().operator(Tally(Told::default())).check_options();
    let mut job = folder.check_with(JOB, &options);
    let queries = Arc::clone(job.operators[0].prepared.queries.as_ref().unwrap());
    let Ok(requeried) = queries.with("all", "above 0") else { panic!("it fits") };
    job.operators[0].prepared.queries = Some(requeried.queries);
    let said = thalweg_node::describe::describe(&job);
    let wanted = "operator t (tally) <- a\n  stage by card: 2 partitions\n    query all: count above 0\n";
    assert!(said.contains(wanted), "{said}");
    assert!(matches!(job.reply_of(0).node, thalweg_node::job_file::NodeRef::Operator(0)));
}
