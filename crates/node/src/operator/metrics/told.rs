//! Fields of answers in addition to values: the stages that refused the record as late, those that know its id, and
//! failures.
//!
//! Where the records are answers of an operator above, theirs are passed on: an answer has each of these fields once,
//! first with the texts of the operators above. Two of them may have stages of one name, so the lower one says whose
//! its are (`m2.card`).

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::builder::{ListBuilder, StringViewBuilder};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, new_null_array};
use thalweg_types::{DataType, Field, Schema};

use crate::operator::late::LATE;

/// Their names. Each holds lists of texts, and is left out where it is null. `errors` has the outputs that could not be
/// computed.
pub(super) const TOLD: Told<&str> = Told { late: LATE, duplicate: "duplicate", errors: "errors" };

/// Something for each of these fields.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told<T> {
    pub(super) late: T,
    pub(super) duplicate: T,
    pub(super) errors: T,
}

impl<T> Told<T> {
    /// In the order of the fields in answers.
    pub(super) fn in_order(self) -> [T; Told::<()>::COUNT] {
        [self.late, self.duplicate, self.errors]
    }

    pub(super) fn map<U>(self, made: impl Fn(T) -> U) -> Told<U> {
        Told { late: made(self.late), duplicate: made(self.duplicate), errors: made(self.errors) }
    }
}

impl Told<()> {
    pub(super) const COUNT: usize = 3;
}

/// How the columns of an input go into answers.
#[derive(Clone, Debug)]
pub(super) struct Passing {
    /// Those that answers have as they are.
    pub(super) own: Vec<usize>,
    /// Those that hold texts of operators above.
    pub(super) above: Told<Option<usize>>,
}

impl Passing {
    pub(super) fn of(input: &Schema) -> Self {
        let above =
            TOLD.map(|name| input.field(name).filter(|(_, field)| is_told(field)).map(|(place, _)| place));
        let is_above = |place: usize| above.in_order().contains(&Some(place));
        let own = (0..input.fields().len()).filter(|place| !is_above(*place)).collect();
        Self { own, above }
    }

    /// Whether the records are answers of an operator above.
    pub(super) fn is_answer(&self) -> bool {
        self.above.in_order().iter().any(Option::is_some)
    }
}

pub(super) fn fields() -> [Field; Told::<()>::COUNT] {
    TOLD.map(|name| Field::new(name, names()).omit_null()).in_order()
}

/// Whether an operator above wrote this field about a record.
pub(super) fn is_told(field: &Field) -> bool {
    TOLD.in_order().contains(&field.name.as_str()) && field.data_type == names()
}

fn names() -> DataType {
    DataType::List(Box::new(DataType::String))
}

/// A column of lists: the texts from above, then these texts by row; null if both have none.
pub(super) fn lists(above: Option<&ArrayRef>, texts: &BTreeMap<u32, Vec<String>>, count: usize) -> ArrayRef {
    if texts.is_empty() {
        return above.map_or_else(|| new_null_array(&names().to_arrow(), count), Arc::clone);
    }
    let above = above.map(|above| above.as_list::<i32>());
    let mut lists = ListBuilder::new(StringViewBuilder::new());
    for row in 0..count as u32 {
        let told = above.filter(|above| above.is_valid(row as usize)).map(|above| above.value(row as usize));
        let own = texts.get(&row);
        for text in told.iter().flat_map(|told| told.as_string_view()).flatten() {
            lists.values().append_value(text);
        }
        for text in own.into_iter().flatten() {
            lists.values().append_value(text);
        }
        lists.append(told.is_some() || own.is_some());
    }
    Arc::new(lists.finish())
}
