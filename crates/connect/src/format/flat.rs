//! Records as flat rows: the fields inside struct columns become columns next to the others.

use thalweg_types::{DataType, Field};

/// A field that holds a value of its own.
pub(crate) struct Leaf<'a> {
    pub(crate) field: &'a Field,
    /// Its place in the schema, then in each struct below.
    pub(crate) path: Vec<usize>,
    names: Vec<&'a str>,
}

impl Leaf<'_> {
    /// The names on the way to it: `card_1h.spent`.
    pub(crate) fn name(&self, between: &str) -> String {
        self.names.join(between)
    }
}

/// The leaves of a schema, in order. Fields that are left out where they are null are not among them: a row has no
/// place for a value that is there at times only.
pub(crate) fn leaves(fields: &[Field]) -> Vec<Leaf<'_>> {
    let mut found = Vec::new();
    collect(fields, &mut Vec::new(), &mut Vec::new(), &mut found);
    found
}

fn collect<'a>(
    fields: &'a [Field],
    names: &mut Vec<&'a str>,
    path: &mut Vec<usize>,
    found: &mut Vec<Leaf<'a>>,
) {
    for (place, field) in fields.iter().enumerate().filter(|(_, field)| !field.omit_null) {
        names.push(&field.name);
        path.push(place);
        match &field.data_type {
            DataType::Struct(inner) => collect(inner, names, path, found),
            _ => found.push(Leaf { field, path: path.clone(), names: names.clone() }),
        }
        names.pop();
        path.pop();
    }
}
