//! Made-up reverse-DNS rows for benchmarks and tests: a function of a seed and the address.
//!
//! What is modelled, and after what:
//! * Providers own runs of /16s; within one, a /20 is a pool with one habit of naming, and a tenth of its
//!   rows break it.
//! * A quarter of the /24s of a provider in use is empty, a third full, the rest half or sparsely filled.
//!   At [`FULL_ROWS`] rows that takes 57 % of the /16s. A smaller set takes fewer /16s of the same fill: what
//!   a row costs does not depend on how many there are.
//! * Of all names 70 % have their own address in them, in one of twelve styles by pool; 15 % are host names
//!   (`srv04.fra1.isp.net`, `ae-3.r02.isp.net`, `mail.customer.com`); 15 % have labels that look random.
//!   One row in a hundred has an empty name.
//! * The set that this represents has 1.2 billion rows in 55 GB, 46 bytes a line, which gzip makes 5.7 GB,
//!   4.75 bytes a line. `lookup_speed` prints both figures for these rows.
//!
//! What is not: names in other scripts, names above 60 bytes, and the long tail of hosters with one domain
//! for every address, of which there are more outside.

use std::io::Write as _;

/// Rows of the set that this represents.
pub const FULL_ROWS: u64 = 1_200_000_000;
/// Rows of a /16 in use, on average.
const ROWS_PER_BLOCK: f64 = 65_536.0 * 0.493;

const WORDS: [&str; 48] = [
    "alta", "arc", "atlas", "axis", "blue", "bright", "cable", "cedar", "city", "clear", "core", "delta",
    "east", "echo", "fiber", "first", "giga", "green", "harbor", "hill", "inter", "iris", "jet", "kilo",
    "lake", "link", "luna", "metro", "mono", "nexus", "north", "nova", "omni", "orbit", "pacific", "peak",
    "plan", "quad", "river", "sky", "south", "star", "swift", "tele", "terra", "uni", "vista", "west",
];
const ENDINGS: [&str; 10] = ["net", "com", "net.br", "ne.jp", "de", "co.uk", "fr", "it", "ru", "com.au"];
const POOLS: [&str; 10] =
    ["dyn", "pool", "dsl", "cust", "static", "res", "bb", "dynamic.pool", "hsd1", "dip0"];
const SITES: [&str; 12] =
    ["fra1", "nyc", "ams2", "lon", "sjc", "par", "tyo1", "sao", "mad", "waw", "syd", "chi3"];
const ROLES: [&str; 14] =
    ["mail", "www", "ns", "srv", "vps", "gw", "web", "db", "mx", "node", "host", "vpn", "static", "cloud"];

/// A set of made-up rows.
#[derive(Clone, Copy, Debug)]
pub struct MadeUp {
    seed: u64,
    /// Of 2^32, how many /16s are in use.
    share: u64,
}

/// Mixes two numbers into one that looks random (the finish of SplitMix64).
fn mix(a: u64, b: u64) -> u64 {
    let mut z = a ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn pick<'a>(words: &[&'a str], hash: u64) -> &'a str {
    words[(hash % words.len() as u64) as usize]
}

impl MadeUp {
    /// A set of about `rows` rows.
    pub fn new(seed: u64, rows: u64) -> Self {
        let share = rows as f64 / (65_536.0 * ROWS_PER_BLOCK);
        Self { seed, share: (share.min(1.0) * 4_294_967_296.0) as u64 }
    }

    /// Whether the set has a row for this address.
    pub fn has(&self, address: u32) -> bool {
        if mix(self.seed, u64::from(address >> 16)) & 0xffff_ffff >= self.share {
            return false;
        }
        let fill = mix(self.seed ^ 1, u64::from(address >> 8)) % 100;
        let row = mix(self.seed ^ 2, u64::from(address)) % 256;
        match fill {
            0..25 => false,
            25..60 => true,
            60..85 => row < 128,
            _ => row < 26,
        }
    }

    /// Whether any address of a /16 has a row.
    pub fn uses(&self, block: u16) -> bool {
        mix(self.seed, u64::from(block)) & 0xffff_ffff < self.share
    }

    /// Writes the name of an address that the set has; an empty one for one row in a hundred.
    pub fn name(&self, address: u32, out: &mut Vec<u8>) {
        out.clear();
        let row = mix(self.seed ^ 3, u64::from(address));
        if row.is_multiple_of(100) {
            return;
        }
        let provider = mix(self.seed ^ 4, u64::from(address >> 19));
        let pool = mix(self.seed ^ 5, u64::from(address >> 12));
        // A tenth of the rows does not do as its pool does.
        let habit = if (row >> 8).is_multiple_of(10) { row >> 16 } else { pool };
        // Nothing can fail: a vector takes all that is written.
        let _ = match habit % 100 {
            0..70 => own_address(provider, pool, address, out),
            70..85 => host(provider, pool, row >> 32, out),
            _ => random(provider, pool, row >> 20, out),
        };
    }

    /// All rows in order of their addresses.
    pub fn rows(&self) -> impl Iterator<Item = u32> {
        let set = *self;
        (0..=u16::MAX)
            .filter(move |block| set.uses(*block))
            .flat_map(|block| (0..=u16::MAX).map(move |low| u32::from(block) << 16 | u32::from(low)))
            .filter(move |address| set.has(*address))
    }

    /// All rows, /24 by /24 in an order that has nothing to do with their addresses.
    pub fn scattered_rows(&self) -> impl Iterator<Item = u32> {
        let set = *self;
        (0..1_u32 << 24)
            .map(|place| place.wrapping_mul(0x9e_3779) & 0xff_ffff)
            .filter(move |net| set.uses((net >> 8) as u16))
            .flat_map(|net| (0..256).map(move |low: u32| net << 8 | low.wrapping_mul(77) & 0xff))
            .filter(move |address| set.has(*address))
    }
}

fn domain(hash: u64, out: &mut Vec<u8>) -> std::io::Result<()> {
    let (first, second) = (pick(&WORDS, hash >> 8), pick(&WORDS, hash >> 20));
    write!(out, "{first}{second}.{}", pick(&ENDINGS, hash >> 32))
}

fn own_address(provider: u64, pool: u64, address: u32, out: &mut Vec<u8>) -> std::io::Result<()> {
    let [a, b, c, d] = address.to_be_bytes();
    match (pool >> 8) % 12 {
        0 => write!(out, "host-{a}-{b}-{c}-{d}."),
        1 => write!(out, "{d}.{c}.{b}.{a}."),
        2 => write!(out, "ip-{a:02x}{b:02x}{c:02x}{d:02x}."),
        3 => write!(out, "{a:03}-{b:03}-{c:03}-{d:03}."),
        4 => write!(out, "{a}-{b}-{c}-{d}-static."),
        5 => write!(out, "c-{a}-{b}-{c}-{d}."),
        6 => write!(out, "ip{a:03}{b:03}{c:03}{d:03}."),
        7 => write!(out, "cpe-{c}-{d}."),
        8 => write!(out, "{d}-{c}-{b}-{a}."),
        9 => write!(out, "{a:02X}{b:02X}{c:02X}{d:02X}."),
        10 => write!(out, "user{address}."),
        _ => write!(out, "dynamic-{a:03}.{b:03}.{c:03}.{d:03}."),
    }?;
    write!(out, "{}.", pick(&POOLS, pool >> 16))?;
    if pool >> 24 & 1 == 0 {
        write!(out, "{}.", pick(&SITES, pool >> 25))?;
    }
    domain(provider, out)
}

fn host(provider: u64, pool: u64, row: u64, out: &mut Vec<u8>) -> std::io::Result<()> {
    let (role, site) = (pick(&ROLES, row), pick(&SITES, pool >> 25));
    match (row >> 5) % 8 {
        0..3 => write!(out, "{role}{:02}.{site}.", (row >> 10) % 100)?,
        3..5 => write!(out, "{role}-{}.", (row >> 10) % 2000)?,
        5 => write!(out, "ae-{}.r{:02}.{site}.", (row >> 10) % 30, (row >> 16) % 20)?,
        6 => write!(out, "{role}{}-{}.{site}.", (row >> 10) % 10, pick(&WORDS, row >> 14))?,
        // A customer's own name, which nobody else has.
        _ => {
            write!(out, "{role}.")?;
            return domain(mix(row, pool), out);
        }
    }
    domain(provider, out)
}

fn random(provider: u64, pool: u64, row: u64, out: &mut Vec<u8>) -> std::io::Result<()> {
    let length = 7 + (pool >> 8) % 6;
    let mut digits = mix(row, pool);
    match (pool >> 12) % 3 {
        0 => write!(out, "{:012x}", digits & 0xffff_ffff_ffff)?,
        _ => {
            for _ in 0..length {
                out.push(b"abcdefghijklmnopqrstuvwxyz0123456789"[(digits % 36) as usize]);
                digits /= 36;
            }
        }
    }
    write!(out, ".{}.", pick(&POOLS, pool >> 16))?;
    domain(provider, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_as_many_and_as_long_as_documented() {
        let set = MadeUp::new(7, 4_000_000);
        let (mut rows, mut bytes, mut empty, mut own) = (0_u64, 0_u64, 0_u64, 0_u64);
        let mut name = Vec::new();
        for address in set.rows() {
            set.name(address, &mut name);
            rows += 1;
            bytes += name.len() as u64;
            empty += u64::from(name.is_empty());
            let key = std::net::Ipv4Addr::from(address).to_ipv6_mapped().octets();
            own += u64::from(super::super::shape::own_address(&name, &key, true).is_some());
        }
        assert!((3_000_000..5_000_000).contains(&rows), "{rows}");
        assert!((28..40).contains(&(bytes / rows)), "{}", bytes / rows);
        assert!((5..20).contains(&(empty * 1000 / rows)), "{empty}");
        assert!((60..85).contains(&(own * 100 / rows)), "{own} of {rows}");
    }

    #[test]
    fn scattered_rows_are_the_same_rows() {
        let set = MadeUp::new(7, 400_000);
        let mut scattered: Vec<u32> = set.scattered_rows().collect();
        assert!(!scattered.is_sorted());
        scattered.sort_unstable();
        assert!(scattered.into_iter().eq(set.rows()));
    }
}
