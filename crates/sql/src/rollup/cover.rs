//! Which rollup answers for which span of time.
//!
//! The coarsest takes the whole intervals inside of the bounds; the rest at the two edges goes to the next finer one,
//! and in the end to the rows of files. So each instant is answered for once, by intervals that are in the bounds
//! whole.
//!
//! Rows that are no longer kept but for a rollup are, as rows of that rollup, at the start of their interval: they
//! are in the bounds if their interval begins there.

use crate::bounds::Bounds;

/// A rollup that may answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    /// Its place among the rollups of its table.
    pub(super) index: usize,
    /// Length of its intervals in nanoseconds.
    pub(super) every: i128,
    /// From here on it has everything.
    pub(super) from: i128,
}

/// Who answers for a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Rollup(usize, Bounds),
    Files(Bounds),
}

/// Divides bounds among `levels`, finer ones first, and files, which have everything from `files_from` on.
pub(super) fn cover(bounds: Bounds, levels: &[Level], files_from: i128) -> Vec<Piece> {
    let mut out = Vec::new();
    divide(bounds, levels, files_from, &mut out);
    out
}

fn divide(bounds: Bounds, levels: &[Level], files_from: i128, out: &mut Vec<Piece>) {
    if bounds.is_empty() {
        return;
    }
    let Some((level, finer)) = levels.split_last() else {
        out.push(Piece::Files(bounds));
        return;
    };
    let begin = ceil(bounds.from.max(level.from), level.every);
    let mut end = floor(bounds.to, level.every);
    let finer_from = finer.iter().map(|level| level.from).fold(files_from, i128::min);
    if bounds.to <= finer_from {
        // There is nothing finer in the last interval.
        end = bounds.to;
    }
    if begin >= end {
        divide(bounds, finer, files_from, out);
        return;
    }
    divide(Bounds { to: begin, ..bounds }, finer, files_from, out);
    out.push(Piece::Rollup(level.index, Bounds { from: begin, to: end }));
    divide(Bounds { from: end, ..bounds }, finer, files_from, out);
}

/// The start of an interval at or after an instant; the ends of the type stay.
fn ceil(at: i128, every: i128) -> i128 {
    match floor(at, every) {
        floor if floor == at => at,
        floor => floor.saturating_add(every),
    }
}

fn floor(at: i128, every: i128) -> i128 {
    if at == i128::MIN || at == i128::MAX { at } else { at.div_euclid(every).saturating_mul(every) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(from: i128, to: i128, levels: &[(i128, i128)], files_from: i128, expected: &str) {
        let levels: Vec<Level> = levels
            .iter()
            .enumerate()
            .map(|(index, (every, from))| Level { index, every: *every, from: *from })
            .collect();
        let end = |at: i128| match at {
            i128::MIN => "-".to_owned(),
            i128::MAX => "+".to_owned(),
            at => at.to_string(),
        };
        let pieces: Vec<String> = cover(Bounds { from, to }, &levels, files_from)
            .into_iter()
            .map(|piece| match piece {
                Piece::Rollup(index, span) => format!("r{index} {}..{}", end(span.from), end(span.to)),
                Piece::Files(span) => format!("files {}..{}", end(span.from), end(span.to)),
            })
            .collect();
        assert_eq!(pieces.join(", "), expected);
    }

    const OPEN: (i128, i128) = (i128::MIN, i128::MAX);

    #[test]
    fn edges_go_to_finer_ones() {
        let both = [(10, i128::MIN), (100, i128::MIN)];
        check(OPEN.0, OPEN.1, &both, 0, "r1 -..+");
        check(100, 300, &both, 0, "r1 100..300");
        check(95, 317, &both, 0, "files 95..100, r1 100..300, r0 300..310, files 310..317");
        check(85, 317, &both, 0, "files 85..90, r0 90..100, r1 100..300, r0 300..310, files 310..317");
        check(103, 180, &both, 0, "files 103..110, r0 110..180");
        check(103, 108, &both, 0, "files 103..108");
        check(-15, OPEN.1, &both, -100, "files -15..-10, r0 -10..0, r1 0..+");
        check(5, 5, &both, 0, "");
        check(5, 25, &[], 0, "files 5..25");
    }

    #[test]
    fn before_all_finer_data_intervals_stand_at_their_start() {
        check(95, 317, &[(100, i128::MIN)], 1_000, "files 95..100, r0 100..317");
        check(95, 317, &[(10, 300), (100, i128::MIN)], 1_000, "files 95..100, r1 100..300, r0 300..317");
    }

    #[test]
    fn a_rollup_that_forgets_leaves_the_rest_to_others() {
        check(OPEN.0, OPEN.1, &[(10, 250)], 0, "files -..250, r0 250..+");
        check(OPEN.0, OPEN.1, &[(10, 250), (100, i128::MIN)], 900, "r1 -..+");
        check(120, 420, &[(10, 250), (100, i128::MIN)], 900, "files 120..200, r1 200..400, r0 400..420");
    }
}
