//! Named fields in order.

use std::sync::Arc;

use arrow_schema as arrow;

use crate::DataType;
use crate::data_type::ParseTypeError;

/// How a field's values are written in the input of a source, where they differ from the usual form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reading {
    /// As its type is read everywhere.
    #[default]
    Plain,
    /// `ipv4_int`: an `ip` from a whole number of 32 bits, 3232235777 for 192.168.1.1.
    Ipv4Int,
}

impl Reading {
    /// The name for [`Reading::Ipv4Int`] in a schema.
    pub const IPV4_INT: &'static str = "ipv4_int";
}

/// One field of a record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    pub name: String,
    pub data_type: DataType,
    pub nullable: bool,
    /// Left out of NDJSON where it is null, as the answer's `late`, `duplicate`, `errors` and `since` are,
    /// and never a CSV column.
    pub omit_null: bool,
    /// For readers of text alone: fields that differ in it alone hold the same values.
    pub reading: Reading,
}

/// Key of the Arrow field metadata that carries [`Field::omit_null`].
const OMIT_NULL: &str = "thalweg.omit_null";

impl Field {
    pub fn new(name: impl Into<String>, data_type: DataType) -> Self {
        Self { name: name.into(), data_type, nullable: false, omit_null: false, reading: Reading::Plain }
    }

    /// A field as a schema declares it: a type, or `ipv4_int`, with `?` where it may be null.
    ///
    /// # Errors
    /// If the text without its mark is not a type or a reading.
    pub fn declared(name: impl Into<String>, text: &str) -> Result<Self, ParseTypeError> {
        let text = text.trim();
        let (text, is_nullable) =
            text.strip_suffix('?').map_or((text, false), |text| (text.trim_end(), true));
        let field = if text == Reading::IPV4_INT {
            Self { reading: Reading::Ipv4Int, ..Self::new(name, DataType::Ip) }
        } else {
            Self::new(name, DataType::parse(text)?)
        };
        Ok(if is_nullable { field.nullable() } else { field })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_declared_by_type_reading_and_mark() {
        let plain = Field::declared("a", " ip ?").unwrap();
        assert_eq!(plain, Field::new("a", DataType::Ip).nullable());
        let number = Field::declared("a", "ipv4_int?").unwrap();
        assert_eq!(number, Field { reading: Reading::Ipv4Int, ..plain.clone() });
        assert_eq!(number.to_arrow(), plain.to_arrow(), "the held values are the same");
        assert!(!Field::declared("a", "ipv4_int").unwrap().nullable);
        for text in ["ipv4_int??", "ipv6_int", "?", ""] {
            assert!(Field::declared("a", text).is_err(), "{text:?}");
        }
    }
}
