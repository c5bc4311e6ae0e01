//! Datagrams of sFlow, as agents send them.

use std::net::IpAddr;

use thalweg_connect::sflow::{block, decoder};
use thalweg_types::SeqRange;

use crate::{Target, nothing_more};

pub const TARGET: Target = Target { name: "sflow", run, seeds, words: WORDS, allowance: nothing_more };

const WORDS: &[&str] = &[
    "\0\0\0\x05\0\0\0\x01",
    "\0\0\0\x02",
    "\0\0\0\x03",
    "\0\0\0\x01\0\0\0\x10",
    "\0\0\x03\u{7f}",
    "\0\0\x07\u{7f}",
    "\x45\0",
    "\x08\0",
    "\x47",
    "\x7f\x7f\x7f\x7f",
];

/// Every sample is one row at most, and every row is in the range of its datagram.
pub fn run(data: &[u8]) {
    let sender = IpAddr::from([192, 0, 2, 1]);
    let block = block(0, [(0, sender, data)]);
    let range = SeqRange::new(0, u64::from(block.count));
    let decoded = decoder("fuzz").decode(&block, range, 0).expect("a block of ours");
    let mut batches = vec![&decoded.records];
    batches.extend(decoded.rejects.as_ref());
    batches.extend(&decoded.others);
    let mut seqs: Vec<u64> =
        batches.iter().flat_map(|batch| batch.row_numbers().map(|row| batch.seq(row))).collect();
    seqs.sort_unstable();
    assert!(seqs.iter().all(|seq| *seq < range.end), "a row outside its datagram");
    assert!(seqs.windows(2).all(|pair| pair[0] != pair[1]), "two rows of one sample");
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn seeds() -> Vec<Vec<u8>> {
    // An Ethernet frame with IPv4 and TCP.
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    frame.extend([0x45, 0, 0, 40, 0, 9, 0x40, 0, 63, 6, 0, 0, 192, 0, 2, 1, 198, 51, 100, 2]);
    frame.extend([1, 187, 195, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x12, 0, 0, 0, 0, 0, 0, 0, 0]);
    let head = words(&[5, 1, 0x0a00_0001, 0, 7, 60_000, 1]);
    let flow = [
        words(&[1, 32 + 24 + 56 + 8 + 16, 1, 3, 100, 200, 0, 3, 4, 2, 1, 16 + 56, 1, 60, 4, 56]),
        frame,
        words(&[1001, 16, 1, 0, 2, 0]),
    ];
    let counters = words(&[2, 20 + 88 - 8 + 8, 1, 3, 1, 1, 88]).into_iter().chain([0; 88]);
    let gateway = words(&[
        3, 104, 1, 0, 3, 10, 20, 0, 0, 3, 0, 4, 1, 1003, 52, 1, 9, 1, 2, 3, 1, 2, 2, 8, 9, 1, 7, 100,
    ]);
    let discarded = words(&[5, 48, 1, 0, 3, 0, 3, 4, 258, 1, 1038, 8, 4, 0x6e66_5f68]);
    vec![
        [head.clone(), flow.concat()].concat(),
        head.iter().copied().chain(counters).collect(),
        [head.clone(), gateway].concat(),
        [head, discarded].concat(),
        words(&[0x0005_0001, 1, 2, 3, 4, 5]),
        words(&[5, 2, 0x2001_0db8, 0, 0, 1, 0, 7, 60_000, 0]),
    ]
}
