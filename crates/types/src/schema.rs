//! Named fields in order.

use std::sync::Arc;

use arrow_schema as arrow;

use crate::DataType;

/// One field of a record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    pub name: String,
    pub data_type: DataType,
    pub nullable: bool,
    /// Left out of NDJSON where it is null, as the answer's `late`, `duplicate`, `errors` and `since` are,
    /// and never a CSV column.
    pub omit_null: bool,
}

/// Key of the Arrow field metadata that carries [`Field::omit_null`].
const OMIT_NULL: &str = "thalweg.omit_null";

impl Field {
    pub fn new(name: impl Into<String>, data_type: DataType) -> Self {
        Self { name: name.into(), data_type, nullable: false, omit_null: false }
    }

    #[must_use]
    pub fn nullable(mut self) -> Self {
        self.nullable = true;
        self
    }

    /// A nullable field that is left out of NDJSON where it is null.
    #[must_use]
    pub fn omit_null(mut self) -> Self {
        self.nullable = true;
        self.omit_null = true;
        self
    }

    /// The Arrow field; always nullable there, so that a batch is never refused for a declared promise.
    pub fn to_arrow(&self) -> arrow::Field {
        let field = arrow::Field::new(&self.name, self.data_type.to_arrow(), true);
        if self.omit_null {
            field.with_metadata([(OMIT_NULL.to_owned(), "true".to_owned())].into())
        } else {
            field
        }
    }
}

/// The fields of a stream, in order, with unique names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    fields: Arc<[Field]>,
    arrow: arrow::SchemaRef,
}

impl Schema {
    pub fn new(fields: impl Into<Vec<Field>>) -> Self {
        let fields: Vec<Field> = fields.into();
        let arrow = Arc::new(arrow::Schema::new(fields.iter().map(Field::to_arrow).collect::<Vec<_>>()));
        Self { fields: fields.into(), arrow }
    }

    pub fn empty() -> Self {
        Self::new(Vec::new())
    }

    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    pub fn arrow(&self) -> &arrow::SchemaRef {
        &self.arrow
    }

    /// Place and description of a field.
    pub fn field(&self, name: &str) -> Option<(usize, &Field)> {
        self.fields.iter().enumerate().find(|(_, field)| field.name == name)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|field| field.name.as_str())
    }
}
