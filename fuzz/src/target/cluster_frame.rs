//! Frames between nodes: the first byte says whether the checksum is made right first, the rest is the frame.
//!
//! Without that no code after the check would ever be reached.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Decimal128Array, FixedSizeBinaryArray, Float64Array, Int64Array, ListArray,
    RecordBatch, StringViewArray, StructArray, TimestampMicrosecondArray,
};
use thalweg_cluster::frame::{
    Builder, Door, Frame, Head, Places, Reply, Row, RowFrame, Sender, Settings, Spec, tick,
};
use thalweg_cluster::positions::{Mark, Origin, Position};

use crate::{Target, nothing_more};

pub const TARGET: Target = Target { name: "cluster_frame", run, seeds, words: &[], allowance: nothing_more };

pub fn run(data: &[u8]) {
    let frame = match data {
        [0, frame @ ..] => frame.to_vec(),
        [_, frame @ ..] => sealed(frame.to_vec()),
        [] => return,
    };
    let Ok(Frame::Rows(rows)) = Frame::parse(&frame) else { return };
    assert!(rows.places.marks.is_sorted_by(|one, next| one < next), "marks that do not ascend");
    let records = made();
    let Ok(inputs) = rows.decode(|input| (input < 2).then(|| records.schema())) else { return };
    assert_eq!(inputs.iter().map(|input| input.records.num_rows()).sum::<usize>(), rows.len());
    if let [only] = inputs.as_slice() {
        again(&rows, only.input, &only.records);
    }
}

/// What was read is written, and reads back the same.
fn again(rows: &RowFrame, input: u32, records: &RecordBatch) {
    let Head { spec, origin, lineage, after, task_time, .. } = rows.head;
    let mut builder = Builder::new(Sender { spec, origin, lineage }, after, Settings::default());
    let Places { marks, arrivals, replies, .. } = &rows.places;
    let places = marks.iter().zip(arrivals).enumerate().map(|(row, (mark, arrival))| Row {
        row: row as u32,
        position: mark.position,
        arrival: *arrival,
        reply: replies.get(row).cloned().flatten(),
    });
    // Foreign rows may be larger than ours.
    if builder.push(input, records, places).is_ok_and(|refused| !refused.is_empty()) {
        return;
    }
    let mut from = 0;
    while let Some(frame) = builder.cut(task_time) {
        let Ok(Frame::Rows(part)) = Frame::parse(&frame) else { panic!("a frame of ours is one") };
        let to = from + part.len();
        assert_eq!(part.places.marks, marks[from..to]);
        assert_eq!(part.places.arrivals, arrivals[from..to]);
        let read = part.decode(|_| Some(records.schema())).expect("a frame of ours has rows");
        assert_eq!(read[0].records, records.slice(from, to - from));
        from = to;
    }
    assert_eq!(from, rows.len());
}

/// With the right checksum: that of all bytes but its own four, which are after magic and version.
fn sealed(mut frame: Vec<u8>) -> Vec<u8> {
    if frame.len() >= 8 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&frame[..4]);
        hasher.update(&frame[8..]);
        frame[4..8].copy_from_slice(&hasher.finalize().to_le_bytes());
    }
    frame
}

const ROWS: i64 = 40;

/// A column of each form that values have.
fn made() -> RecordBatch {
    let numbers = || 0..ROWS;
    let addresses = numbers().map(|row| {
        let mut octets = [if row % 2 == 0 { 0 } else { 7 }; 16];
        octets[10..12].fill(0xff);
        octets
    });
    let names = StringViewArray::from_iter(
        numbers().map(|row| (row % 5 > 0).then(|| "a merchant's name".repeat(row as usize % 2 + 1))),
    );
    let lists = ListArray::from_iter_primitive::<arrow_array::types::Int64Type, _, _>(
        numbers().map(|row| (row % 4 > 0).then(|| vec![Some(row), None])),
    );
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("ts", Arc::new(TimestampMicrosecondArray::from_iter_values(numbers().map(|row| 5_000 + 40 * row)))),
        ("wide", Arc::new(Int64Array::from_iter_values(numbers().map(|row| row << 58)))),
        (
            "float",
            Arc::new(Float64Array::from_iter(numbers().map(|row| (row % 3 > 0).then_some(row as f64)))),
        ),
        ("decimal", Arc::new(Decimal128Array::from_iter_values(numbers().map(|row| i128::from(row) << 70)))),
        ("bool", Arc::new(BooleanArray::from_iter(numbers().map(|row| Some(row % 2 == 0))))),
        ("name", Arc::new(names.clone())),
        ("ip", Arc::new(FixedSizeBinaryArray::try_from_iter(addresses).expect("16 bytes each"))),
        ("list", Arc::new(lists)),
        (
            "struct",
            Arc::new(StructArray::from(vec![(
                Arc::new(
                    arrow_array::RecordBatch::try_from_iter([("name", Arc::new(names.clone()) as ArrayRef)])
                        .expect("one column")
                        .schema()
                        .field(0)
                        .clone(),
                ),
                Arc::new(names) as ArrayRef,
            )])),
        ),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true)))
        .expect("columns of one length")
}

fn seeds() -> Vec<Vec<u8>> {
    let records = made();
    let origin = Origin::Unit { stage: 1, partition: 2 };
    let (spec, after) = (3, Mark { position: Position { offset: 9, row: 1 }, made: 2 });
    let rows = |count: u32, inputs: u32, waits: bool| {
        let sender = Sender { spec, origin, lineage: Some(4) };
        let door = Arc::new(Door { node: "alpha".into(), incarnation: 5 });
        let mut builder = Builder::new(sender, after, Settings::default());
        for row in 0..count {
            let position = Position { offset: 9 + u64::from(row) / 3, row: 2 + row % 3 / 2 };
            let reply = waits.then(|| Reply { door: Arc::clone(&door), request: 7, line: row });
            let place = Row { row, position, arrival: 5_000, reply };
            builder.push(row / 2 % inputs, &records, [place]).expect("types of fields");
        }
        builder.cut(Some(4_000)).expect("rows")
    };
    let head = Head { spec, origin, lineage: None, after, arrival: 5_000, task_time: None };
    let job = |job: String| Spec { number: 3, semantics: 1, job }.encode(&Settings::default());
    let mut frames = vec![
        tick(&head),
        job("name: fraud\n".to_owned()).expect("a short job"),
        job("name: fraud\n".repeat(200)).expect("a short job"),
    ];
    for (count, inputs, waits) in [(1, 1, false), (1, 1, true), (4, 2, true), (40, 1, false), (40, 2, false)]
    {
        frames.push(rows(count, inputs, waits));
    }
    frames.iter().flat_map(|frame| [0, 1].map(|kind| [&[kind], frame.as_slice()].concat())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_frames_whose_rows_can_be_read() {
        for seed in seeds() {
            match Frame::parse(&seed[1..]).expect("a frame") {
                Frame::Rows(rows) => {
                    let schema = made().schema();
                    assert!(rows.decode(|_| Some(Arc::clone(&schema))).is_ok());
                }
                Frame::Tick(_) | Frame::Spec(_) => {}
            }
        }
    }
}
