//! Fragments in every order, twice, overlapping, and too many of them.

use proptest::prelude::*;

use super::*;
use crate::sflow::packet::Packet;

const PORT: u16 = 6_343;

/// A datagram of `bytes` bytes to a port, its header included.
fn datagram(port: u16, bytes: usize) -> Vec<u8> {
    let port = port.to_be_bytes();
    let length = (bytes as u16).to_be_bytes();
    let mut datagram = vec![0, 9, port[0], port[1], length[0], length[1], 0, 0];
    datagram.extend((8..bytes).map(|place| (place * 7 % 251) as u8));
    datagram
}

/// A fragment as it is on the wire.
fn on_wire(is_v6: bool, id: u16, start: usize, is_last: bool, data: &[u8]) -> Vec<u8> {
    let id = id.to_be_bytes();
    if is_v6 {
        let length = (8 + data.len() as u16).to_be_bytes();
        let place = (start as u16 | u16::from(!is_last)).to_be_bytes();
        let mut packet = vec![0x60, 0, 0, 0, length[0], length[1], 44, 64];
        packet.extend([[0xfe; 16], [0xfd; 16]].concat());
        packet.extend([17, 0, place[0], place[1], 0, 0, id[0], id[1]]);
        packet.extend(data);
        packet
    } else {
        let length = (20 + data.len() as u16).to_be_bytes();
        let place = ((start as u16 / 8) | if is_last { 0 } else { 0x2000 }).to_be_bytes();
        let head = [0x45, 0, length[0], length[1], id[0], id[1], place[0], place[1], 64, 17, 0, 0];
        [&head, &[192, 0, 2, 1, 192, 0, 2, 2][..], data].concat()
    }
}

fn fragment(packet: &[u8], time: Micros) -> Fragment {
    let packet = Packet::ip(packet);
    let ip = packet.ip.unwrap();
    Fragment::new(&packet.part.unwrap(), ip.source, ip.destination, time).unwrap()
}

/// All fragments of a datagram, of `size` bytes each.
fn split(is_v6: bool, id: u16, datagram: &[u8], size: usize) -> Vec<Vec<u8>> {
    let count = datagram.len().div_ceil(size);
    let parts = datagram.chunks(size).enumerate();
    parts.map(|(number, data)| on_wire(is_v6, id, number * size, number + 1 == count, data)).collect()
}

struct Run {
    fragments: Fragments,
    out: Vec<Joined>,
}

impl Run {
    fn new() -> Self {
        Self { fragments: Fragments::new(PORT), out: Vec::new() }
    }

    fn add(&mut self, packets: &[Vec<u8>]) -> &mut Self {
        self.at(0, packets)
    }

    fn at(&mut self, time: Micros, packets: &[Vec<u8>]) -> &mut Self {
        self.fragments.expire(time, &mut self.out);
        for packet in packets {
            self.fragments.add(fragment(packet, time), &mut self.out);
        }
        self
    }

    fn end(&mut self) -> &mut Self {
        self.fragments.end(&mut self.out);
        assert_eq!((self.fragments.bytes, self.fragments.open.len(), self.fragments.by_age.len()), (0, 0, 0));
        self
    }

    /// Payloads of the datagrams to the port.
    fn given(&self) -> Vec<Vec<u8>> {
        let payload = |joined: &Joined| Packet::ip(&joined.packet).udp().map(|(_, payload)| payload.to_vec());
        self.out.iter().filter_map(payload).collect()
    }
}

fn counts(incomplete: u64, headless: u64, contradictory: u64) -> FragmentCounts {
    FragmentCounts { incomplete, headless, contradictory, ..FragmentCounts::default() }
}

proptest! {
    #[test]
    fn datagrams_come_together_whatever_the_order_and_however_often(
        sizes in proptest::collection::vec((9_usize..3_000, 1_usize..40, any::<bool>()), 1..6),
        order in any::<u64>(),
        twice in any::<bool>(),
    ) {
        let mut packets = Vec::new();
        let mut expected = Vec::new();
        for (id, (bytes, size, is_v6)) in sizes.into_iter().enumerate() {
            let datagram = datagram(PORT, bytes);
            let all = split(is_v6, id as u16, &datagram, size * 8);
            if all.len() > 1 {
                expected.push(datagram[8..].to_vec());
                packets.extend(all);
            }
        }
        if twice {
            packets = packets.into_iter().flat_map(|packet| [packet.clone(), packet]).collect();
        }
        let mut packets: Vec<(usize, Vec<u8>)> = packets.into_iter().enumerate().collect();
        packets.sort_by_key(|(number, _)| hash_bytes(&(*number as u64 ^ order).to_le_bytes()));
        let packets: Vec<Vec<u8>> = packets.into_iter().map(|(_, packet)| packet).collect();
        let mut run = Run::new();
        run.add(&packets).end();
        let mut given = run.given();
        given.sort();
        expected.sort();
        prop_assert_eq!(given, expected);
        prop_assert_eq!(run.fragments.counts, FragmentCounts::default());
    }

    #[test]
    fn parts_of_any_kind_give_nothing_that_was_not_there_and_stay_within_bounds(
        parts in proptest::collection::vec((0_u16..4, 0_usize..64, 0_usize..12, any::<[bool; 3]>(), 0_i64..3), 0..60),
    ) {
        let whole = datagram(PORT, 8 * 80);
        let mut run = Run::new();
        for (id, at, length, [is_last, is_v6, is_wrong], seconds) in parts {
            if at == 0 && is_last {
                continue;
            }
            let mut data = whole[at * 8..(at + length) * 8].to_vec();
            if is_wrong && let Some(byte) = data.last_mut() {
                *byte ^= 1;
            }
            run.at(seconds * 4_000_000, &[on_wire(is_v6, id, at * 8, is_last, &data)]);
            let sum: usize = run.fragments.open.values().map(|open| open.bytes).sum();
            prop_assert_eq!(sum, run.fragments.bytes);
        }
        run.end();
    }
}

#[test]
fn what_is_missing_is_counted_and_the_beginning_is_used() {
    for is_v6 in [false, true] {
        let whole = datagram(PORT, 1_000);
        let all = split(is_v6, 1, &whole, 400);
        let mut run = Run::new();
        run.add(&all[..1]).add(&all[2..]).end();
        assert_eq!((run.given(), run.fragments.counts), (vec![whole[8..400].to_vec()], counts(1, 0, 0)));
        let mut run = Run::new();
        run.add(&all[1..]).end();
        assert_eq!((run.given().len(), run.fragments.counts), (0, counts(0, 1, 0)));
        // It waits, but not for ever, and is not taken for the next one of its number.
        let mut run = Run::new();
        run.at(0, &all[..2]).at(MOST_AGE, &all[2..]);
        assert_eq!((run.given(), run.out[0].time), (vec![whole[8..].to_vec()], MOST_AGE));
        let mut run = Run::new();
        run.at(0, &all[..2]).at(MOST_AGE + 1, &all[2..]).end();
        assert_eq!((run.given(), run.fragments.counts), (vec![whole[8..800].to_vec()], counts(1, 1, 0)));
    }
}

#[test]
fn overlaps_that_agree_are_all_right_and_others_spoil_the_datagram() {
    let whole = datagram(PORT, 1_000);
    let part = |from: usize, to: usize| on_wire(false, 1, from, to == 1_000, &whole[from..to]);
    let all = [part(0, 400), part(200, 800), part(600, 1_000)];
    let mut run = Run::new();
    run.add(&all).end();
    assert_eq!((run.given(), run.fragments.counts), (vec![whole[8..].to_vec()], counts(0, 0, 0)));
    let mut other = whole.clone();
    other[300] ^= 1;
    let differs = on_wire(false, 1, 200, false, &other[200..800]);
    for packets in [
        vec![all[0].clone(), differs.clone(), all[1].clone(), all[2].clone()],
        vec![differs, all[2].clone(), all[0].clone(), all[1].clone()],
    ] {
        let mut run = Run::new();
        run.add(&packets).end();
        assert_eq!((run.given().len(), run.fragments.counts), (0, counts(0, 0, 1)));
    }
    // Two ends, and bytes after the end.
    for packets in
        [[part(600, 1_000), on_wire(false, 1, 600, true, &[1; 8])], [part(600, 1_000), part(0, 400)]]
    {
        let mut run = Run::new();
        run.add(&packets).add(&[on_wire(false, 1, 1_200, false, &[1; 8])]).end();
        assert_eq!((run.given().len(), run.fragments.counts.contradictory), (0, 1));
    }
    // No fragment: eight does not divide it, nothing in it, beyond the greatest packet.
    for packet in [
        on_wire(false, 1, 0, false, &whole[..401]),
        on_wire(false, 1, 8, true, &[]),
        on_wire(true, 1, 65_528, true, &[0; 8]),
    ] {
        let mut run = Run::new();
        run.add(&[packet]).end();
        assert_eq!((run.given().len(), run.fragments.counts), (0, counts(0, 0, 1)));
    }
}

#[test]
fn other_ports_take_no_room_and_the_oldest_goes_when_there_is_none() {
    let other = datagram(53, 1_000);
    let mut run = Run::new();
    let all = split(false, 1, &other, 400);
    run.add(&all[1..]).add(&all[..1]);
    assert_eq!((run.fragments.bytes, run.fragments.open.len(), run.fragments.counts.passed_over), (0, 0, 3));

    let whole = datagram(PORT, 1_000);
    let mut run = Run::new();
    for id in 0..MOST_OPEN as u16 + 3 {
        run.add(&split(false, id, &whole, 400)[..1]);
    }
    assert_eq!(
        (run.given().len(), run.fragments.counts.crowded, run.fragments.open.len()),
        (3, 3, MOST_OPEN)
    );
    run.end();
    assert_eq!(run.given().len(), MOST_OPEN + 3);

    let large = datagram(PORT, 60_000);
    let mut run = Run::new();
    for id in 0..400 {
        run.add(&split(false, id, &large, 50_000)[..1]);
        assert!(run.fragments.bytes <= MOST_BYTES);
    }
    assert!(run.fragments.counts.crowded > 50);
}

#[test]
fn fragments_that_the_capture_has_cut_give_what_is_there() {
    let whole = datagram(PORT, 1_000);
    let all = split(false, 1, &whole, 400);
    let mut run = Run::new();
    run.add(&[all[0].clone(), all[1][..120].to_vec(), all[2].clone()]);
    assert_eq!(run.given(), vec![whole[8..500].to_vec()], "complete, as far as the capture goes");
    assert!(run.out[0].is_cut && !run.out[0].is_incomplete);
}

#[test]
fn what_comes_again_after_its_datagram_is_left_out() {
    let datagram = datagram(PORT, 800);
    let parts = split(false, 7, &datagram, 400);
    let (first, last) = (&parts[..1], &parts[1..]);
    for again in [first, last, &parts[..]] {
        let mut run = Run::new();
        run.at(0, first).at(100_000, last).at(200_000, again).at(5_150_000, &[]).end();
        assert_eq!(run.given(), [&datagram[8..]]);
        assert_eq!(run.fragments.counts, FragmentCounts::default());
    }
    let mut run = Run::new();
    run.at(0, &parts).at(5_000_001, &parts).end();
    assert_eq!(run.given().len(), 2, "the number of a datagram is given to others in time");
}
