//! Who is silent: members from which nothing came while others beat.
//!
//! No clock decides it, only the order of the log: a broker that is frozen for eight seconds freezes all beats alike, and
//! nobody is silent after it.

use std::collections::BTreeMap;

use thalweg_types::Offset;

use super::{Member, SILENT_BEATS};
use crate::control::Name;
use crate::rules::{Rule, holds};

/// Members that are silent: at least one other has beaten since, and the median of those that have has sent twelve.
///
/// All are judged by the same beats, so the order of names does not matter. The author of the last beat is not among
/// them, as nobody has beaten since.
pub(super) fn silent(members: &BTreeMap<Name, Member>) -> Vec<Name> {
    // In a live cluster the twelfth last beat of each is older than the last sign of life of each, and this is all.
    let twelfths = || members.values().filter_map(twelfth);
    let newest = twelfths().max();
    let oldest = members.values().map(|member| member.heard).min();
    let (Some(newest), Some(oldest)) = (newest, oldest) else { return lone(members) };
    if newest <= oldest {
        return lone(members);
    }
    let mut last: Vec<Offset> = members.values().filter_map(Member::last_beat).collect();
    let mut twelfth: Vec<Offset> = twelfths().collect();
    last.sort_unstable();
    twelfth.sort_unstable();
    let after =
        |offsets: &[Offset], since| offsets.len() - offsets.partition_point(|offset| *offset <= since);
    members
        .iter()
        .filter(|(_, member)| {
            // Own beats are not among these: none is after the last sign of life.
            has_passed(after(&last, member.heard), after(&twelfth, member.heard), members.len())
        })
        .map(|(name, _)| name.clone())
        .collect()
}

/// Whether twelve beats of the median have passed since an offset.
pub(super) fn twelve_since(members: &BTreeMap<Name, Member>, since: Offset) -> bool {
    let last = members.values().filter_map(Member::last_beat).filter(|offset| *offset > since).count();
    let twelfth = members.values().filter_map(twelfth).filter(|offset| *offset > since).count();
    has_passed(last, twelfth, members.len())
}

/// Of `beaten` members that have beaten since, `twelve` have done so twelve times. The upper median of n numbers is at
/// least twelve if half of them are, rounded up.
fn has_passed(beaten: usize, twelve: usize, members: usize) -> bool {
    if !holds(Rule::MedianOfBeats) {
        // Stricter than a mean of twelve, and like it waits for all.
        return members > 1 && twelve + 1 >= members;
    }
    beaten > 0 && 2 * twelve >= beaten
}

/// The offset of the twelfth last beat.
fn twelfth(member: &Member) -> Option<Offset> {
    (member.beats.len() == SILENT_BEATS).then(|| member.beats[0])
}

/// Nobody, but for the test that takes the rule away: a member that is alone.
fn lone(members: &BTreeMap<Name, Member>) -> Vec<Name> {
    if !holds(Rule::AloneIsNeverSilent) && members.len() == 1 {
        return members
            .iter()
            .filter(|(_, member)| member.beats.len() == SILENT_BEATS)
            .map(|(name, _)| name.clone())
            .collect();
    }
    Vec::new()
}
