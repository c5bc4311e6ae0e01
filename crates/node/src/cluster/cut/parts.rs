//! The parts of a job as jobs of their own.

use std::sync::Arc;

use thalweg_connect::Options;
use thalweg_connect::sink::null::NullPlugin;
use thalweg_types::{DataType, Field, Schema};

use super::levels::Stream;
use super::{Reads, StageCut};
use crate::job_file::{CheckedInput, CheckedJob, CheckedOperator, CheckedSink, Endpoint, NodeRef};
use crate::operator::Links;

/// The part of a job from one key to the next.
pub(super) struct Inside {
    pub(super) keyed: usize,
    /// In their order, the keyed one included.
    pub(super) operators: Vec<usize>,
    pub(super) sinks: Vec<CheckedSink>,
    pub(super) reply: Option<Endpoint>,
    /// What it reads, in the job.
    pub(super) streams: Vec<Endpoint>,
    /// What sends its rows on.
    pub(super) next: Option<CheckedSink>,
}

impl Inside {
    /// Where something of the job is in this part.
    fn moved(&self, endpoint: Endpoint) -> Endpoint {
        let inside = match endpoint.node {
            NodeRef::Operator(place) => self.operators.iter().position(|other| *other == place),
            NodeRef::Source(_) => None,
        };
        match inside {
            Some(place) => Endpoint { node: NodeRef::Operator(place), ..endpoint },
            None => {
                let passes = self.streams.iter().position(|stream| *stream == endpoint);
                from_log(passes.expect("it comes to this part"))
            }
        }
    }
}

/// The sinks that a node writes, in a stage after the last key.
pub(super) struct Exit {
    pub(super) name: Arc<str>,
    pub(super) node: Arc<str>,
    pub(super) sinks: Vec<CheckedSink>,
    /// What they read, each once.
    pub(super) inputs: Vec<CheckedInput>,
}

impl Exit {
    /// Has the sinks read from their stage what they read in the job, and gives the sink that sends it there.
    pub(super) fn sending(&mut self, job: &CheckedJob) -> CheckedSink {
        for input in self.sinks.iter_mut().flat_map(|sink| &mut sink.inputs) {
            let known = self.inputs.iter().position(|known| known.endpoint == input.endpoint);
            let number = known.unwrap_or_else(|| {
                self.inputs.push(input.clone());
                self.inputs.len() - 1
            });
            input.endpoint = from_log(number);
            input.spread = None;
        }
        sending(job, &self.name, self.inputs.clone())
    }

    pub(super) fn stage(self, job: &CheckedJob) -> StageCut {
        let Self { name, node, sinks, inputs } = self;
        let streams: Vec<Schema> = inputs.iter().map(|input| schema_of(job, input.endpoint)).collect();
        let mut source = job.sources[0].clone();
        source.reply = None;
        let (operators, sources) = (Vec::new(), vec![source]);
        StageCut {
            operator: Arc::clone(&name),
            name,
            place: 0,
            keys: vec![Vec::new(); streams.len()],
            streams: streams.into(),
            unanswered: Arc::default(),
            said: Arc::default(),
            answers_later: false,
            senders: 0,
            partitions: 1,
            reads: Reads::Log,
            node: Some(node),
            job: CheckedJob { operators, sinks, sources, warnings: Vec::new(), ..job.clone() },
        }
    }
}

/// An input of a stage, by its number.
fn from_log(number: usize) -> Endpoint {
    // Output 1 carries rejects.
    Endpoint { node: NodeRef::Source(0), output: if number == 0 { 0 } else { number + 1 } }
}

/// A sink whose plug-in is missing yet, which sends `inputs` to another stage.
fn onward(name: Arc<str>, inputs: Vec<CheckedInput>, schema: Schema) -> CheckedSink {
    CheckedSink {
        name,
        plugin: Arc::new(NullPlugin),
        inputs: inputs.into_iter().map(|input| CheckedInput { spread: None, ..input }).collect(),
        union: None,
        format: None,
        options: Options::default(),
        schema,
        unit: None,
        node: None,
    }
}

/// A sink that sends on to the stage of `name` what that reads.
pub(super) fn sending(job: &CheckedJob, name: &str, inputs: Vec<CheckedInput>) -> CheckedSink {
    let schema = schema_of(job, inputs[0].endpoint);
    onward(format!("({name})").into(), inputs, schema)
}

/// The name of the column with what a stage of a chain says of a record. No field of a job has brackets in its name.
fn said_name(place: usize) -> String {
    format!("(said {place})")
}

/// The stages of an operator of several keys, which reads `records`.
pub(super) fn chain(job: &CheckedJob, part: &Inside, links: &Links, records: &Schema) -> Vec<StageCut> {
    let operator = &job.operators[part.keyed];
    let last = links.keys.len() - 1;
    let stage = |(place, key): (usize, &Vec<usize>)| {
        let said: Vec<Schema> = links.says[..place.min(last)].to_vec();
        let columns = said
            .iter()
            .enumerate()
            .map(|(number, said)| Field::new(said_name(number), DataType::Struct(said.fields().to_vec())));
        let streams = vec![Schema::new(records.fields().iter().cloned().chain(columns).collect::<Vec<_>>())];
        let input = |output: usize| CheckedInput {
            endpoint: Endpoint { node: NodeRef::Source(0), output },
            spread: None,
            ..operator.inputs[0].clone()
        };
        // Output 1 carries rejects.
        let inputs: Vec<CheckedInput> =
            std::iter::once(0).chain((0..said.len()).map(|place| place + 2)).map(input).collect();
        let link = CheckedOperator {
            prepared: (links.link)(place),
            tasks: 1,
            partitions: 1,
            parallelism: None,
            inputs: if place == last { inputs.clone() } else { vec![input(0)] },
            ..operator.clone()
        };
        let job = if place == last {
            let mut job = stage_job(job, part);
            let at = part.operators.iter().position(|other| *other == part.keyed).expect("it is inside");
            job.operators[at] = link;
            job
        } else {
            let own = CheckedInput {
                endpoint: Endpoint { node: NodeRef::Operator(0), output: 0 },
                ..operator.inputs[0].clone()
            };
            let inputs = inputs.into_iter().chain([own]).collect();
            let sink = onward(said_name(place).into(), inputs, records.clone());
            let mut source = job.sources[0].clone();
            source.reply = None;
            let (operators, sinks) = (vec![link], vec![sink]);
            CheckedJob { operators, sinks, sources: vec![source], warnings: Vec::new(), ..job.clone() }
        };
        StageCut {
            name: format!("{}-{}", operator.name, place + 1).into(),
            operator: Arc::clone(&operator.name),
            place: 0,
            streams: streams.into(),
            unanswered: Arc::default(),
            said: said.into(),
            keys: vec![key.clone()],
            answers_later: false,
            senders: 0,
            partitions: if key.is_empty() { 1 } else { operator.partitions },
            reads: Reads::Log,
            node: None,
            job,
        }
    };
    links.keys.iter().enumerate().map(stage).collect()
}

/// A part of a job, with one source in place of all that its keyed operator reads. Its first sink takes what the next keyed
/// operator reads, where there is one.
pub(super) fn stage_job(job: &CheckedJob, part: &Inside) -> CheckedJob {
    let operators = part.operators.iter().map(|place| {
        let operator = job.operators[*place].clone();
        let inputs = operator.inputs.iter().enumerate().map(|(number, input)| CheckedInput {
            endpoint: match *place == part.keyed {
                true => from_log(number),
                false => part.moved(input.endpoint),
            },
            ..input.clone()
        });
        CheckedOperator { inputs: inputs.collect(), tasks: 1, partitions: 1, parallelism: None, ..operator }
    });
    let operators: Vec<CheckedOperator> = operators.collect();
    let moved = |mut sink: CheckedSink| {
        sink.inputs.iter_mut().for_each(|input| input.endpoint = part.moved(input.endpoint));
        sink
    };
    let sinks = part.next.iter().chain(&part.sinks).cloned().map(moved).collect();
    let mut source = job.sources[0].clone();
    source.reply = part.reply.map(|reply| part.moved(reply));
    CheckedJob { operators, sinks, sources: vec![source], warnings: Vec::new(), ..job.clone() }
}

/// What is above the key, with a sink that takes what the stage of the `keyed` operator reads; its plug-in is missing yet.
pub(super) fn door_job(job: &CheckedJob, keyed: usize, above: &[usize], reads: &[Stream]) -> CheckedJob {
    let moved = |mut input: CheckedInput| {
        if let NodeRef::Operator(place) = input.endpoint.node {
            let place = above.iter().position(|other| *other == place).expect("what it reads is above");
            input.endpoint.node = NodeRef::Operator(place);
        }
        input
    };
    let operators = above.iter().map(|place| {
        let operator = job.operators[*place].clone();
        let inputs = operator.inputs.into_iter().map(moved).collect();
        CheckedOperator { inputs, ..operator }
    });
    let operators: Vec<CheckedOperator> = operators.collect();
    let inputs = reads.iter().map(|stream| moved(stream.input.clone())).collect();
    let name = Arc::clone(&job.operators[keyed].name);
    let sink = onward(name, inputs, schema_of(job, job.operators[keyed].inputs[0].endpoint));
    let mut sources = job.sources.clone();
    for (place, source) in sources.iter_mut().enumerate() {
        // Their answers come from elsewhere: it does not matter what the sink of replies is given.
        source.reply = Some(Endpoint { node: NodeRef::Source(place), output: 0 });
    }
    let sinks = vec![sink];
    CheckedJob { operators, sources, sinks, warnings: Vec::new(), is_door: true, ..job.clone() }
}

pub(super) fn schema_of(job: &CheckedJob, endpoint: Endpoint) -> Schema {
    match endpoint.node {
        NodeRef::Source(place) => {
            let source = &job.sources[place];
            let kinds = source.plugin.outputs(&source.options);
            // Output 1 carries rejects.
            let kind = endpoint.output.saturating_sub(1);
            kinds
                .get(kind)
                .filter(|_| endpoint.output > 1)
                .map_or_else(|| source.schema.clone(), |kind| kind.schema.clone())
        }
        NodeRef::Operator(place) => job.operators[place].prepared.outputs[endpoint.output].schema.clone(),
    }
}
