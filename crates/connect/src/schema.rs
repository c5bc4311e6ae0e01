//! From an Arrow schema back to ours, for operators that see the columns before they get the fields.

use arrow_schema as arrow;
use thalweg_types::{DataType, Field, Schema, TimeUnit};

/// Key of the Arrow field metadata by which [`Field::to_arrow`] marks fields that are left out where null.
const OMIT_NULL: &str = "thalweg.omit_null";

/// The schema that [`Schema::arrow`] was made of; nullability is not kept there, so every field is nullable.
///
/// # Panics
/// On an Arrow type that no field type maps to.
pub(crate) fn schema_of(schema: &arrow::Schema) -> Schema {
    Schema::new(schema.fields().iter().map(|field| field_of(field)).collect::<Vec<_>>())
}

fn field_of(field: &arrow::Field) -> Field {
    let ours = Field::new(field.name(), type_of(field.data_type())).nullable();
    if field.metadata().contains_key(OMIT_NULL) { ours.omit_null() } else { ours }
}

fn type_of(data_type: &arrow::DataType) -> DataType {
    match data_type {
        arrow::DataType::Boolean => DataType::Bool,
        arrow::DataType::Int64 => DataType::Int64,
        arrow::DataType::UInt64 => DataType::UInt64,
        arrow::DataType::Float64 => DataType::Float64,
        arrow::DataType::Decimal128(precision, scale) | arrow::DataType::Decimal256(precision, scale) => {
            DataType::Decimal { precision: *precision, scale: *scale }
        }
        arrow::DataType::Utf8View | arrow::DataType::Null => DataType::String,
        arrow::DataType::BinaryView => DataType::Bytes,
        arrow::DataType::FixedSizeBinary(16) => DataType::Ip,
        arrow::DataType::Timestamp(unit, _) => DataType::Timestamp(TimeUnit::of_arrow(*unit)),
        arrow::DataType::List(item) => DataType::List(Box::new(type_of(item.data_type()))),
        arrow::DataType::Struct(fields) => {
            DataType::Struct(fields.iter().map(|field| field_of(field)).collect())
        }
        other => panic!("no field type maps to Arrow type {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arrow_schema_leads_back_to_the_fields() {
        let fields = vec![
            Field::new("card", DataType::String).nullable(),
            Field::new("late", DataType::List(Box::new(DataType::String))).omit_null(),
            Field::new(
                "card_1h",
                DataType::Struct(vec![
                    Field::new("spent", DataType::Decimal { precision: 40, scale: 2 }).nullable(),
                    Field::new("since", DataType::Timestamp(TimeUnit::Micro)).omit_null(),
                ]),
            )
            .nullable(),
        ];
        assert_eq!(schema_of(Schema::new(fields.clone()).arrow()).fields(), fields);
    }
}
