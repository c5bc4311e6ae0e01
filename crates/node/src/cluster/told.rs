//! What the control log says, in words for the log of the node.

use std::collections::BTreeMap;

use thalweg_cluster::control::{Name, Record};
use thalweg_cluster::fold::{Applied, Change, Void};
use thalweg_types::Offset;

/// Tells of a record what an operator wants to know.
pub(super) fn tell(offset: Offset, record: &Record, applied: &Applied) {
    // Of nodes that start with one job each puts it into the log, and the first counts.
    if let (Record::Spec(spec), Some(void)) = (record, &applied.void)
        && !matches!(void, Void::Number { .. } | Void::Nothing)
    {
        tracing::warn!(job = %spec.job, number = spec.number, why = %void, "a text of the job does not count");
    }
    for change in &applied.changes {
        match change {
            Change::Joined { process, .. } => tracing::info!(node = %process.name, "a node is a member"),
            Change::Left { process } => tracing::info!(node = %process.name, "a node has left"),
            Change::Silent { process, .. } => {
                tracing::warn!(node = %process.name, "a node is silent, and no member any more: its units go to others");
            }
            Change::Drains { name, on: true } => tracing::info!(node = %name, "a node is to be drained"),
            Change::Drains { name, on: false } => tracing::info!(node = %name, "a node may have units again"),
            Change::Trouble { unit, name } => {
                tracing::warn!(%unit, node = %name, "a node names a unit as in trouble");
            }
            Change::Job { job, number } => tracing::info!(%job, number, "the job has a new text"),
            Change::Stopped { job } => tracing::info!(%job, "the job was stopped"),
            Change::Version { to } => tracing::info!(to, "the control log has a new version"),
            _ => {}
        }
    }
    if let Some(moves) = moves(&applied.changes) {
        tracing::info!(plan = offset, "units have other nodes: {moves}");
    }
}

/// How many units have gone from where to where: `3 from a to b, 1 to c`. `None` if none has.
fn moves(changes: &[Change]) -> Option<String> {
    let mut moves: BTreeMap<(Option<&Name>, Option<&Name>), usize> = BTreeMap::new();
    for change in changes {
        if let Change::Moved { from, to, .. } = change {
            *moves.entry((from.as_ref(), to.as_ref())).or_default() += 1;
        }
    }
    let told = moves.into_iter().map(|((from, to), count)| {
        let from = from.map(|from| format!(" from {from}")).unwrap_or_default();
        let to = to.map_or_else(|| " to nobody".to_owned(), |to| format!(" to {to}"));
        format!("{count}{from}{to}")
    });
    let told: Vec<String> = told.collect();
    (!told.is_empty()).then(|| told.join(", "))
}

#[cfg(test)]
mod tests {
    use thalweg_cluster::control::Unit;

    use super::*;

    #[test]
    fn moves_are_told_by_where_they_go() {
        let name = |name: &str| Name::new(name).unwrap();
        let moved = |partition, from: Option<&str>, to: Option<&str>| Change::Moved {
            unit: Unit { job: name("j"), stage: name("s"), partition },
            from: from.map(name),
            to: to.map(name),
        };
        let changes = [
            moved(0, Some("a"), Some("b")),
            Change::Planned,
            moved(1, None, Some("c")),
            moved(2, Some("a"), Some("b")),
            moved(3, Some("b"), None),
        ];
        assert_eq!(moves(&changes).unwrap(), "1 to c, 2 from a to b, 1 from b to nobody");
        assert_eq!(moves(&[Change::Planned]), None);
    }
}
