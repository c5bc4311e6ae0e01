//! Changed, cut and foreign bytes: an error that names the place, and nothing else.

use arrow_array::Int64Array;
use proptest::prelude::*;
use thalweg_types::Class;

use super::*;

/// One of each kind, small and compressed.
fn samples() -> Vec<Vec<u8>> {
    let seeds: Vec<Option<i64>> =
        (0..40).map(|seed| (seed % 7 != 0).then_some(seed * seed * 1_000)).collect();
    let Sender { spec, origin, lineage } = sender();
    let head = Head { spec, origin, lineage, after: Mark::START, arrival: 5, task_time: Some(4) };
    let settings = Settings::default();
    let job = |job: &str| Spec { number: 1, semantics: 2, job: job.to_owned() }.encode(&settings).unwrap();
    let mut samples = vec![tick(&head), job("name: x"), job(&"name: x\n".repeat(200))];
    samples.extend(frames_of(&made::batch(&schema(), &seeds[..3]), settings));
    samples.extend(frames_of(&made::batch(&schema(), &seeds), settings));
    samples.extend(requests());
    samples
}

/// Rows of two inputs, for which two doors wait.
fn requests() -> Vec<Vec<u8>> {
    let mut builder = Builder::new(sender(), Mark::START, Settings::default());
    let doors = ["a", "b"].map(|node| Arc::new(Door { node: node.into(), incarnation: 1 }));
    for number in 0..6_u32 {
        let reply = Reply { door: Arc::clone(&doors[number as usize % 2]), request: 9, line: number };
        let row = Row { reply: (number != 3).then_some(reply), ..row(0, at(number.into(), number)) };
        builder.push(number / 2 % 2, &column(Arc::new(Int64Array::from(vec![7]))), [row]).unwrap();
    }
    vec![builder.cut(None).unwrap()]
}

/// Reads all of a frame.
fn read(frame: &[u8]) -> Result<(), FrameError> {
    match Frame::parse(frame)? {
        Frame::Rows(rows) => {
            let records = rows.decode(|input| (input < 2).then(schema))?;
            assert_eq!(records.iter().map(|rows| rows.records.num_rows()).sum::<usize>(), rows.len());
            Ok(())
        }
        Frame::Tick(_) | Frame::Spec(_) => Ok(()),
    }
}

#[test]
fn every_flipped_bit_is_found() {
    for frame in samples() {
        for bit in 0..frame.len() * 8 {
            let mut flipped = frame.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let error = Frame::parse(&flipped).unwrap_err();
            assert_eq!(error.class(), Class::Corrupt, "bit {bit}: {error}");
        }
    }
}

#[test]
fn every_cut_is_found_with_and_without_its_checksum() {
    for frame in samples() {
        for len in 0..frame.len() {
            let mut cut = frame[..len].to_vec();
            assert!(
                matches!(Frame::parse(&cut), Err(FrameError::Damaged { .. })),
                "{len} of {}",
                frame.len()
            );
            if len >= 8 {
                head::seal(&mut cut);
                assert!(
                    matches!(Frame::parse(&cut), Err(FrameError::Damaged { .. })),
                    "{len} of {}",
                    frame.len()
                );
            }
        }
        let mut longer = frame;
        longer.push(0);
        head::seal(&mut longer);
        assert!(matches!(read(&longer), Err(FrameError::Damaged { .. })));
    }
}

#[test]
fn what_a_frame_is_not_is_named() {
    for (at, byte, expected) in [
        (0, 0, "damaged frame: magic at byte 0 of the frame: expected [f7, 54, 4b], got [00, 54, 4b]"),
        (3, 0, "damaged frame: version at byte 3 of the frame: expected 1, got 0"),
        (3, 2, "frame has format version 2, expected at most 1"),
        (8, 0, "damaged frame: kind at byte 8 of the frame: expected 1 to 3, got 0"),
        (8, 4, "damaged frame: kind at byte 8 of the frame: expected 1 to 3, got 4"),
        (9, 2, "damaged frame: encoding at byte 9 of the frame: expected 1, got 2"),
        (10, 0x80, "damaged frame: flags at byte 10 of the frame: expected some of 0x7f, got 0x80"),
    ] {
        let mut frame = requests().remove(0);
        frame[at] = byte;
        head::seal(&mut frame);
        let error = Frame::parse(&frame).unwrap_err();
        assert_eq!((error.to_string().as_str(), error.class()), (expected, Class::Corrupt));
        assert!(thalweg_types::Error::from(error).hint().is_some());
    }
    let mut frame = requests().remove(0);
    frame[4] ^= 1;
    let error = Frame::parse(&frame).unwrap_err().to_string();
    assert!(error.starts_with("damaged frame: checksum at byte 4 of the frame: expected 0x"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// As somebody would write them who knows the format.
    #[test]
    fn foreign_bytes_with_a_right_checksum_are_an_error_or_a_frame(
        which in any::<prop::sample::Index>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let mut frame = which.get(&samples()).clone();
        for (place, byte) in changes {
            let place = place.index(frame.len());
            frame[place] = byte;
        }
        if let Some(cut) = cut {
            frame.truncate(cut.index(frame.len()).max(8));
        }
        head::seal(&mut frame);
        let _ = read(&frame);
    }

    #[test]
    fn bodies_of_any_bytes_are_an_error_or_rows(flags in 0_u8..0x80, body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let Sender { spec, origin, lineage } = sender();
        let head = Head { spec, origin, lineage, after: Mark::START, arrival: 5, task_time: Some(4) };
        let fields = head.flags();
        let put_fields = |frame: &mut Vec<u8>| {
            head.put(frame);
            frame.extend_from_slice(&[3, 0]);
        };
        let mut frame = with_body(Kind::Rows, fields, put_fields, &body, 0.0);
        frame[10] |= flags & !1;
        head::seal(&mut frame);
        let _ = read(&frame);
    }
}
