//! Frames of an append-only file.

use thalweg_storage::frame::{Chain, FrameReader};

use crate::{Target, nothing_more};

pub const TARGET: Target = Target { name: "frame", run, seeds, words: &[], allowance: nothing_more };

const IDENTITY: u64 = 7;

pub fn run(data: &[u8]) {
    let mut reader = FrameReader::new(data, 0, Chain::new(IDENTITY));
    let mut chain = Chain::new(IDENTITY);
    let mut written = Vec::new();
    while let Ok(Some(frame)) = reader.next_frame() {
        chain.push(frame.payload, &mut written);
    }
    let end = usize::try_from(reader.position()).expect("a position in memory");
    assert_eq!(written, data[..end], "the frame read equals the frame written");
    assert_eq!(reader.chain(), chain);
}

fn seeds() -> Vec<Vec<u8>> {
    let file = |payloads: &[&[u8]]| {
        let (mut chain, mut out) = (Chain::new(IDENTITY), Vec::new());
        for payload in payloads {
            chain.push(payload, &mut out);
        }
        out
    };
    vec![file(&[]), file(&[b""]), file(&[b"one", b"", b"three"]), file(&[&[0; 300], &[0xf7; 40]])]
}
