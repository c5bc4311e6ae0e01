//! The leaves of a plan and their windows: which of them read a GROUP BY, and what of it they still need.
//!
//! Not here: what a leaf does with records (`leaf`), groups themselves (`nodes`).

use thalweg_types::Micros;

use super::nodes::{Face, LeafNode, Window};
use crate::plan;
use crate::reservoir::CursorId;

/// Windows and leaves keep their places; those of dropped queries are free for others.
#[derive(Default)]
pub(super) struct Leaves {
    pub(super) windows: Vec<Option<Window>>,
    pub(super) nodes: Vec<Option<LeafNode>>,
}

impl Leaves {
    pub(super) fn iter(&self) -> impl Iterator<Item = &LeafNode> {
        self.nodes.iter().flatten()
    }

    pub(super) fn get(&self, place: usize) -> Option<&LeafNode> {
        self.nodes[place].as_ref()
    }

    pub(super) fn window(&self, node: &LeafNode) -> &Window {
        self.windows[node.window].as_ref().expect("a leaf's window is in the plan")
    }

    pub(super) fn bytes(&self) -> usize {
        self.iter().map(|node| node.leaf.bytes()).sum()
    }

    /// Whether a query is without GROUP BY.
    pub(super) fn is_whole(&self) -> bool {
        self.iter().any(|node| node.grouping.is_none())
    }

    /// The leaves that read the GROUP BY at a place, and what its groups are to them.
    pub(super) fn readers(&self, place: Option<usize>) -> impl Iterator<Item = (&LeafNode, Face)> {
        self.iter().filter_map(move |node| Some((node, node.face(place)?)))
    }

    /// As [`Leaves::readers`].
    pub(super) fn readers_mut(
        &mut self,
        place: Option<usize>,
    ) -> impl Iterator<Item = (&mut LeafNode, Face)> {
        self.nodes.iter_mut().flatten().filter_map(move |node| {
            let face = node.face(place)?;
            Some((node, face))
        })
    }

    /// The cursors of all windows that read a grouping.
    pub(super) fn cursors_of(&self, grouping: usize) -> Vec<CursorId> {
        let mut cursors: Vec<_> = self
            .readers(Some(grouping))
            .filter_map(|(node, _)| self.windows[node.window].as_ref())
            .flat_map(Window::cursors)
            .collect();
        cursors.sort_unstable();
        cursors.dedup();
        cursors
    }

    /// Newest time at or below which a group is in no window any more; the smallest there is where that never comes.
    pub(super) fn dead_bound(&self, grouping: usize, now: Micros) -> Micros {
        let bound = self.readers(Some(grouping)).map(|(node, _)| {
            let window = self.window(node);
            plan::dead_below(window.kind, now.saturating_sub(window.delay))
        });
        bound.min().unwrap_or(now)
    }
}
