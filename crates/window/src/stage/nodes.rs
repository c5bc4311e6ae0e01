//! What a stage's plan is made of. Queries with a part of their plans in common share its node.

use thalweg_expr::Bound;
use thalweg_types::{DataType, HashKey, Micros};

use super::dirty::Dirty;
use super::leaf::Leaf;
use super::tags::Tags;
use crate::groups::Groups;
use crate::query::Window as WindowKind;
use crate::reservoir::CursorId;

pub(super) struct Grouping {
    pub(super) id: u32,
    pub(super) columns: Vec<usize>,
    pub(super) table: Groups,
    pub(super) layout: usize,
    pub(super) dirty: Dirty,
    pub(super) tags: Tags,
}

impl Grouping {
    /// Without groups; `hash_key` is that of their tags.
    pub(super) fn new(id: u32, columns: Vec<usize>, layout: usize, hash_key: HashKey) -> Self {
        let (table, dirty, tags) = (Groups::new(hash_key), Dirty::default(), Tags::default());
        Self { id, columns, table, layout, dirty, tags }
    }

    pub(super) fn bytes(&self) -> usize {
        self.table.bytes() + self.dirty.bytes() + self.tags.bytes()
    }
}

pub(super) struct Filter {
    pub(super) fingerprint: String,
    /// `None`: every record that came after the query was added.
    pub(super) condition: Option<Bound>,
    /// All queries that have it are guarded.
    pub(super) is_guarded: bool,
    pub(super) layout: usize,
}

pub(super) struct Arg {
    pub(super) fingerprint: String,
    pub(super) data_type: DataType,
    /// `None` where no query has it any more, but for records that are there.
    pub(super) value: Option<Bound>,
    /// All queries that have it are guarded.
    pub(super) is_guarded: bool,
    pub(super) layout: usize,
}

pub(super) struct Window {
    pub(super) kind: WindowKind,
    pub(super) delay: Micros,
    pub(super) head: Option<CursorId>,
    pub(super) tail: Option<CursorId>,
}

pub(super) struct LeafNode {
    pub(super) id: u32,
    pub(super) window: usize,
    pub(super) filter: Option<usize>,
    /// `None`: one group.
    pub(super) grouping: Option<usize>,
    pub(super) leaf: Leaf,
}
