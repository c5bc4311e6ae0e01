//! Counts of units and doors. There are as many series as a node has units; the node bounds those, and counts the rest.

use thalweg_node::cluster_view::NodeFigures;

use super::text::Text;

pub(super) fn write(figures: &NodeFigures, text: &mut Text) {
    text.group(&[(Vec::new(), figures.cluster)]);
    let units = figures.units.iter().map(|(of, unit)| {
        let labels = vec![
            ("job", of.job.as_str()),
            ("stage", of.stage.as_str()),
            ("partition", of.partition.as_str()),
        ];
        (labels, *unit)
    });
    text.group(&units.collect::<Vec<_>>());
    let doors = figures.doors.iter().map(|(job, door)| (vec![("job", job.as_str())], *door));
    text.group(&doors.collect::<Vec<_>>());
}
