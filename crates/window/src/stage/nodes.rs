//! What a stage's plan is made of. Queries with a part of their plans in common share its node.
//!
//! Not here: the lists that they are in (`plan`, `leaves`), queries themselves (`queries`).

use smallvec::SmallVec;
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
    /// Fields and expressions over them, bound to the columns that the stage reads.
    pub(super) keys: Vec<Bound>,
    /// All queries that have it are guarded.
    pub(super) is_guarded: bool,
    pub(super) table: Groups,
    pub(super) layout: usize,
    pub(super) dirty: Dirty,
    pub(super) tags: Tags,
    /// Where its groups are values within groups of another.
    pub(super) values_of: Option<ValuesOf>,
}

/// The values of an argument in each group of a GROUP BY, as `count(distinct)` counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ValuesOf {
    /// Place of the GROUP BY; `None`: one group.
    pub(super) grouping: Option<usize>,
    /// Place of the argument in the layout.
    pub(super) arg: usize,
    /// Place of the filter: records that it does not let through have no value.
    pub(super) filter: Option<usize>,
}

impl Grouping {
    /// Without groups; `hash_key` is that of their tags.
    pub(super) fn new(id: u32, keys: Vec<Bound>, layout: usize, hash_key: HashKey) -> Self {
        let (table, dirty, tags) = (Groups::new(hash_key), Dirty::default(), Tags::default());
        Self { id, keys, is_guarded: false, table, layout, dirty, tags, values_of: None }
    }

    /// Whether it has these keys, in whatever order.
    pub(super) fn is_by(&self, keys: &[Bound]) -> bool {
        let has = |key: &Bound| self.keys.iter().any(|own| own.fingerprint() == key.fingerprint());
        self.values_of.is_none() && self.keys.len() == keys.len() && keys.iter().all(has)
    }

    /// Columns that the keys read, each once.
    pub(super) fn columns(&self) -> Vec<usize> {
        let mut columns: Vec<usize> = Vec::new();
        for column in self.keys.iter().flat_map(Bound::fields) {
            if !columns.contains(column) {
                columns.push(*column);
            }
        }
        columns
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
    /// Places of the groupings that have the values of its `count(distinct)`, in the order of [`Leaf::valued`].
    pub(super) values: SmallVec<[usize; 1]>,
    pub(super) leaf: Leaf,
}

/// What groups of a GROUP BY are to a leaf that reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Face {
    Groups,
    /// Values of this number among [`Leaf::valued`].
    Values(usize),
}

impl Window {
    pub(super) fn cursors(&self) -> impl Iterator<Item = CursorId> {
        [self.head, self.tail].into_iter().flatten()
    }
}

impl LeafNode {
    /// Places of the groupings that it reads.
    pub(super) fn reads(&self) -> impl Iterator<Item = usize> {
        self.grouping.into_iter().chain(self.values.iter().copied())
    }

    /// What the groups of the GROUP BY at a place are to it, if it reads that; `None`: the one group of all records.
    pub(super) fn face(&self, place: Option<usize>) -> Option<Face> {
        if self.grouping == place {
            return Some(Face::Groups);
        }
        self.values.iter().position(|values| Some(*values) == place).map(Face::Values)
    }
}

/// Name and type of a key as checkpoints have them: those of the field, or the canonical text of an expression, which no
/// field of the same name is taken for. `field` gives name and type of a column.
pub(super) fn name_of_key(key: &Bound, field: impl Fn(usize) -> (String, String)) -> (String, String) {
    match key.as_column() {
        Some(column) => field(column),
        None => (format!("= {}", key.fingerprint()), key.data_type().to_string()),
    }
}
