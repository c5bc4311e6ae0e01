//! However rows are cut into frames, the same rows arrive, once each and in order.

use arrow_array::Int64Array;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use proptest::prelude::*;

use super::*;
use crate::positions::{Through, Verdict};

/// A row as its receiver sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    input: u32,
    /// The mark after it.
    mark: Mark,
    arrival: i64,
    value: i64,
    /// Request and line for which an answer is wanted.
    reply: Option<(u64, u32)>,
}

/// What a unit makes for a destination: of each position some rows of some inputs.
fn made_rows() -> impl Strategy<Value = Vec<Seen>> {
    let rows = proptest::collection::vec((0_u32..3, 0_u8..3), 0..4);
    proptest::collection::vec((0_u64..3, 0_u32..4, rows), 1..25).prop_map(|positions| {
        let (mut position, mut seen) = (at(0, 0), Vec::new());
        for (messages, further, rows) in positions {
            position = match messages {
                0 => at(position.offset, position.row + further),
                _ => at(position.offset + messages, further),
            };
            for (input, waits) in rows {
                let before = seen.last().map_or(Mark::START, |last: &Seen| last.mark);
                let value = seen.len() as i64;
                seen.push(Seen {
                    input,
                    mark: before.next(position).unwrap(),
                    arrival: ARRIVAL + position.offset as i64,
                    value,
                    reply: (waits == 0).then_some((position.offset * 1_000, position.row)),
                });
            }
        }
        seen
    })
}

/// Sends rows from number `from` on: `steps` says how many come before the next cuts, and to how many bytes frames grow.
fn send(rows: &[Seen], from: usize, steps: &[(usize, usize)]) -> Vec<Vec<u8>> {
    let doors = ["a", "ö"].map(|node| Arc::new(Door { node: node.into(), incarnation: 5 }));
    let after = if from == 0 { Mark::START } else { rows[from - 1].mark };
    let (mut frames, mut sent, mut steps) = (Vec::new(), from, steps.iter().cycle());
    let grow_to = steps.next().map_or(0, |step| step.1);
    let mut builder = Builder::new(sender(), after, Settings { grow_to, ..Settings::default() });
    while sent < rows.len() {
        let to = rows.len().min(sent + steps.next().map_or(1, |step| step.0));
        for same in rows[sent..to].chunk_by(|one, other| one.input == other.input) {
            let values: Vec<i64> = same.iter().map(|seen| seen.value).collect();
            let picked = same.iter().enumerate().map(|(number, seen)| Row {
                row: number as u32,
                position: seen.mark.position,
                arrival: seen.arrival,
                reply: seen.reply.map(|(request, line)| Reply {
                    door: Arc::clone(&doors[request as usize / 1_000 % 2]),
                    request,
                    line,
                }),
            });
            builder.push(same[0].input, &column(Arc::new(Int64Array::from(values))), picked).unwrap();
        }
        sent = to;
        frames.extend(std::iter::from_fn(|| builder.cut(None)));
    }
    frames
}

fn see(frame: &RowFrame) -> Vec<Seen> {
    let schema = column(Arc::new(Int64Array::from(vec![0]))).schema();
    let inputs = frame.decode(|_| Some(Arc::clone(&schema))).unwrap();
    let mut values: Vec<(u32, std::vec::IntoIter<i64>)> = inputs
        .iter()
        .map(|rows| {
            (rows.input, rows.records.column(0).as_primitive::<Int64Type>().values().to_vec().into_iter())
        })
        .collect();
    let of_runs = frame.places.runs.iter().flat_map(|run| std::iter::repeat_n(run.input, run.rows as usize));
    let mut seen = Vec::new();
    for (row, input) in of_runs.enumerate() {
        let of_input = values.iter_mut().find(|(number, _)| *number == input).unwrap();
        let reply = frame.places.replies.get(row).and_then(Option::as_ref);
        seen.push(Seen {
            input,
            mark: frame.places.marks[row],
            arrival: frame.places.arrivals[row],
            value: of_input.1.next().unwrap(),
            reply: reply.map(|reply| (reply.request, reply.line)),
        });
    }
    seen
}

fn steps() -> impl Strategy<Value = Vec<(usize, usize)>> {
    proptest::collection::vec((1_usize..30, 0_usize..600), 1..5)
}

proptest! {
    #[test]
    fn any_cutting_gives_the_same_rows_and_marks(rows in made_rows(), steps in steps(), from in 0_usize..20) {
        let from = from.min(rows.len());
        let mut seen = Vec::new();
        for frame in send(&rows, from, &steps) {
            let frame = parse_rows(&frame);
            let number = from + seen.len();
            let before = if number == 0 { Mark::START } else { rows[number - 1].mark };
            prop_assert_eq!(frame.head.after, before, "a function of the input, not of the cuts");
            seen.extend(see(&frame));
        }
        prop_assert_eq!(&seen, &rows[from..]);
    }

    /// Two senders of the same input cut otherwise; one begins anew now and then. Frames of both come in their order,
    /// some twice and some never.
    #[test]
    fn every_row_counts_once_and_in_order_and_a_lost_frame_is_a_gap(
        rows in made_rows(),
        cuts in [steps(), steps()],
        turns in proptest::collection::vec((any::<bool>(), 0_u8..8), 0..60),
    ) {
        let mut queues = cuts.map(|steps| send(&rows, 0, &steps).into_iter());
        let (mut through, mut counted) = (Through::default(), Vec::new());
        let take = |through: &mut Through, counted: &mut Vec<Seen>, frame: &[u8]| {
            let frame = parse_rows(frame);
            let before = through.of(UNIT);
            match through.take(frame.head.origin, frame.head.after, &frame.places.marks) {
                Verdict::From(first) => counted.extend(&see(&frame)[first..]),
                Verdict::Gap(found) => {
                    assert_eq!(found, before);
                    assert!(frame.head.after > before, "a gap without missing rows");
                    assert!(counted.len() < rows.len(), "a gap although nothing is missing");
                }
            }
            assert_eq!(*counted, rows[..counted.len()]);
            assert_eq!(through.of(UNIT), counted.last().map_or(Mark::START, |last| last.mark));
        };
        for (queue, fate) in turns {
            let Some(frame) = queues[usize::from(queue)].next() else { continue };
            let times = match fate { 0 => 0, 1 => 2, _ => 1 };
            (0..times).for_each(|_| take(&mut through, &mut counted, &frame));
        }
        // The unit goes back to its checkpoint, and the gap closes.
        send(&rows, 0, &[(7, 300)]).iter().for_each(|frame| take(&mut through, &mut counted, frame));
        prop_assert_eq!(counted, rows);
    }
}

#[test]
fn a_frame_may_end_inside_of_a_position() {
    let values: Vec<i64> = (0..10).collect();
    let records = column(Arc::new(Int64Array::from(values)));
    let mut builder = Builder::new(sender(), Mark::START, Settings { grow_to: 100, ..Settings::default() });
    builder.push(0, &records, (0..10).map(|number| row(number, at(7, 7)))).unwrap();
    let afters: Vec<(u32, usize)> = std::iter::from_fn(|| builder.cut(None))
        .map(|frame| parse_rows(&frame))
        .map(|frame| (frame.head.after.made, frame.len()))
        .collect();
    assert_eq!(afters, [(0, 3), (3, 3), (6, 3), (9, 1)]);
}

#[test]
#[should_panic(expected = "a row of position 4.9 comes after 5.0+1")]
fn positions_that_run_back_are_a_mistake_of_the_sender() {
    let records = column(Arc::new(Int64Array::from(vec![1, 2])));
    let mut builder = Builder::new(sender(), Mark::START, Settings::default());
    let _ = builder.push(0, &records, [row(0, at(5, 0)), row(1, at(4, 9))]);
}
