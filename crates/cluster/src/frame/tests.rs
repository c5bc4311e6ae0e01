//! Frames as a whole: round trips, cuts, formats, damage, foreign bytes.

mod cuts;
mod damage;
mod format;
mod limits;
mod made;
mod values;

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::SchemaRef;

use self::made::{bits, schema};
use super::*;
use crate::positions::{Mark, Origin, Position};

const UNIT: Origin = Origin::Unit { stage: 2, partition: 61 };
const ARRIVAL: i64 = 1_764_316_800_000_000;

fn sender() -> Sender {
    Sender { spec: 3, origin: UNIT, lineage: Some(0x0123_4567_89ab_cdef) }
}

fn at(offset: u64, row: u32) -> Position {
    Position { offset, row }
}

/// Row `row` of a batch, made from a position, without anybody who waits.
fn row(row: u32, position: Position) -> Row {
    Row { row, position, arrival: ARRIVAL + i64::from(row), reply: None }
}

fn parse_rows(frame: &[u8]) -> RowFrame {
    match Frame::parse(frame).unwrap() {
        Frame::Rows(rows) => rows,
        other => panic!("expected rows, got {other:?}"),
    }
}

fn decode(frame: &RowFrame, schemas: &[SchemaRef]) -> Vec<InputRows> {
    frame.decode(|input| schemas.get(input as usize).cloned()).unwrap()
}

/// The frames of all rows of a batch, of input 0, one for each position.
fn frames_of(records: &RecordBatch, settings: Settings) -> Vec<Vec<u8>> {
    let mut builder = Builder::new(sender(), Mark::START, settings);
    let rows = (0..records.num_rows() as u32).map(|number| row(number, at(number.into(), 0)));
    assert_eq!(builder.push(0, records, rows), Ok(vec![]));
    std::iter::from_fn(|| builder.cut(Some(ARRIVAL - 5_000_000))).collect()
}

fn column(columns: ArrayRef) -> RecordBatch {
    RecordBatch::try_from_iter([("field", columns)]).unwrap()
}

#[track_caller]
fn assert_same(read: &RecordBatch, written: &RecordBatch) {
    assert_eq!(read.schema(), written.schema());
    assert_eq!(read.num_rows(), written.num_rows());
    for (read, written) in read.columns().iter().zip(written.columns()) {
        assert_eq!(bits(read), bits(written));
    }
}

#[test]
fn a_frame_says_what_it_was_given() {
    let records = made::batch(&schema(), &[Some(1), None, Some(-7)]);
    let door = Arc::new(Door { node: "alpha".into(), incarnation: 77 });
    let reply = |line| Some(Reply { door: Arc::clone(&door), request: 1_000, line });
    let after = Mark { position: at(40, 2), made: 1 };
    let mut builder = Builder::new(sender(), after, Settings::default());
    let rows = [
        Row { reply: reply(4), ..row(0, at(40, 2)) },
        row(1, at(40, 9)),
        Row { reply: reply(2), ..row(2, at(41, 0)) },
    ];
    assert_eq!(builder.push(5, &records, rows.clone()), Ok(vec![]));
    assert!(!builder.is_empty() && builder.bytes() > 0);
    let frame = parse_rows(&builder.cut(None).unwrap());
    assert!(builder.is_empty() && builder.bytes() == 0 && builder.cut(None).is_none());

    let Sender { spec, origin, lineage } = sender();
    assert_eq!(frame.head, Head { spec, origin, lineage, after, arrival: ARRIVAL, task_time: None });
    assert_eq!(frame.len(), 3);
    assert_eq!(frame.places.runs, [Run { input: 5, rows: 3 }]);
    let marks = [(at(40, 2), 2), (at(40, 9), 1), (at(41, 0), 1)];
    assert_eq!(frame.places.marks, marks.map(|(position, made)| Mark { position, made }));
    assert_eq!(builder.last(), frame.places.marks[2]);
    assert_eq!(frame.places.arrivals, [0, 1, 2].map(|later| ARRIVAL + later));
    assert_eq!(frame.places.replies, rows.map(|row| row.reply));
    let inputs = frame.decode(|input| (input == 5).then(schema)).unwrap();
    assert_eq!(inputs.len(), 1);
    assert_same(&inputs[0].records, &records);
    let unknown = frame.decode(|_| None);
    assert_eq!(unknown, Err(FrameError::UnknownInput { spec: 3, input: 5 }));
}

#[test]
fn ticks_and_specs_read_back() {
    let head = Head {
        spec: 9,
        origin: Origin::Door { incarnation: u64::MAX },
        lineage: None,
        after: Mark { position: at(7, 1), made: 3 },
        arrival: i64::MIN,
        task_time: Some(i64::MAX),
    };
    assert!(matches!(Frame::parse(&tick(&head)), Ok(Frame::Tick(read)) if read == head));
    for job in ["", "name: fraud\n", &"operators:\n".repeat(1_000)] {
        let spec = Spec { number: 12, semantics: 4, job: job.to_owned() };
        let frame = spec.encode(&Settings::default()).unwrap();
        assert!(frame.len() < 300, "compressed");
        assert!(matches!(Frame::parse(&frame), Ok(Frame::Spec(read)) if read == spec));
    }
}
