//! `relay`: passes every record on in buffers of its own, as a stage of a pipeline that owns its packets does.
//!
//! The copy is the point: it represents stages that change the records they pass on, and our relay benchmark
//! counts it. Where nothing needs copying, link to the upstream operator instead.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{BinaryViewType, ByteViewType, StringViewType};
use arrow_array::{
    Array, ArrayRef, BooleanArray, FixedSizeBinaryArray, GenericByteViewArray, PrimitiveArray, RecordBatch,
    RecordBatchOptions, StructArray, UInt32Array, downcast_primitive_array,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow_schema::DataType;
use arrow_select::take::take;
use thalweg_flow::{InputId, Operator, Output};
use thalweg_types::{Batch, Error};

use crate::job_file::keys::KeySpec;

use super::{NamedOutput, OperatorCheck, OperatorPlugin, Prepared, Tasks};

pub struct Relay;

impl OperatorPlugin for Relay {
    fn name(&self) -> &'static str {
        "relay"
    }

    fn doc(&self) -> &'static str {
        "copies every record"
    }

    fn page(&self) -> &'static str {
        include_str!("relay.md")
    }

    fn options(&self) -> &'static [KeySpec] {
        &[]
    }

    fn check(&self, check: &OperatorCheck<'_>) -> Option<Prepared> {
        let outputs = vec![NamedOutput { name: "records".to_owned(), schema: check.input().schema.clone() }];
        Some(Prepared::one(1, outputs, Tasks::Declared, |_| Ok(Box::new(RelayOperator))))
    }
}

struct RelayOperator;

impl Operator for RelayOperator {
    fn process(&mut self, _: InputId, batch: Batch, out: &mut Output<'_>) -> Result<(), Error> {
        let batch = batch.compact();
        let records = batch.records();
        let columns = records.columns().iter().map(copy).collect::<Result<Vec<_>, Error>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.len()));
        let copied = RecordBatch::try_new_with_options(records.schema(), columns, &options)
            .map_err(|error| Error::internal("a copied column differs in type").with_source(error))?;
        out.emit(0, batch.with_records(copied));
        Ok(())
    }
}

/// The same elements in buffers of their own.
fn copy(column: &ArrayRef) -> Result<ArrayRef, Error> {
    let column: &dyn Array = column.as_ref();
    let nulls = column.nulls().map(copy_nulls);
    Ok(downcast_primitive_array!(
        column => Arc::new(copy_primitive(column, nulls)) as ArrayRef,
        DataType::Boolean => {
            Arc::new(BooleanArray::new(copy_bits(column.as_boolean().values()), nulls))
        }
        DataType::Utf8View => copy_views::<StringViewType>(column.as_string_view(), nulls),
        DataType::BinaryView => copy_views::<BinaryViewType>(column.as_binary_view(), nulls),
        DataType::FixedSizeBinary(width) => {
            let values = column.as_fixed_size_binary();
            let data = Buffer::from(values.value_data());
            Arc::new(FixedSizeBinaryArray::new(*width, data, nulls))
        }
        DataType::Struct(fields) => {
            let columns = column.as_struct().columns().iter().map(copy).collect::<Result<Vec<_>, Error>>()?;
            Arc::new(StructArray::new(fields.clone(), columns, nulls))
        }
        other => {
            let _ = other;
            let every = UInt32Array::from_iter_values(0..column.len() as u32);
            take(column, &every, None).map_err(|error| Error::internal("copy a column").with_source(error))?
        }
    ))
}

fn copy_bits(bits: &BooleanBuffer) -> BooleanBuffer {
    BooleanBuffer::new(Buffer::from(bits.inner().as_slice()), bits.offset(), bits.len())
}

fn copy_nulls(nulls: &NullBuffer) -> NullBuffer {
    NullBuffer::new(copy_bits(nulls.inner()))
}

fn copy_primitive<T: arrow_array::ArrowPrimitiveType>(
    column: &PrimitiveArray<T>,
    nulls: Option<NullBuffer>,
) -> PrimitiveArray<T> {
    PrimitiveArray::<T>::new(ScalarBuffer::from(column.values().to_vec()), nulls)
        .with_data_type(column.data_type().clone())
}

/// Copies whole buffers where most of their bytes are meant, element by element where few are.
fn copy_views<T: ByteViewType>(column: &GenericByteViewArray<T>, nulls: Option<NullBuffer>) -> ArrayRef {
    let held: usize = column.data_buffers().iter().map(Buffer::len).sum();
    let meant: usize =
        column.views().iter().map(|view| *view as u32 as usize).filter(|length| *length > 12).sum();
    if meant * 2 < held {
        return Arc::new(column.gc());
    }
    let buffers: Vec<Buffer> =
        column.data_buffers().iter().map(|buffer| Buffer::from(buffer.as_slice())).collect();
    let views = ScalarBuffer::from(column.views().to_vec());
    match GenericByteViewArray::<T>::try_new(views, buffers, nulls) {
        Ok(copied) => Arc::new(copied),
        Err(_) => Arc::new(column.gc()),
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::builder::{BinaryViewBuilder, StringViewBuilder};
    use proptest::prelude::*;
    use thalweg_flow::{Emit, PerRecord, RecordOperator, Row, collect};
    use thalweg_types::{DataType as FieldKind, Field, Schema, Seq, SeqRange, Seqs};

    use super::*;

    /// The relay of a user who writes operators record by record.
    struct Identity;

    impl RecordOperator for Identity {
        fn process(&mut self, record: Row<'_>, out: &mut Emit<'_>) -> Result<(), Error> {
            out.record(0).copy(record).send()
        }
    }

    proptest! {
        #[test]
        fn an_identity_by_records_is_a_relay(
            rows in proptest::collection::vec((any::<Option<i64>>(), "[a-zé]{0,20}", 0..3_u64, any::<bool>()), 1..40),
        ) {
            let schema = Schema::new(vec![
                Field::new("n", FieldKind::Int64).nullable(),
                Field::new("s", FieldKind::String),
            ]);
            let columns: Vec<ArrayRef> = vec![
                Arc::new(rows.iter().map(|row| row.0).collect::<arrow_array::Int64Array>()),
                Arc::new(arrow_array::StringViewArray::from_iter_values(rows.iter().map(|row| &row.1))),
            ];
            let seqs: Arc<[Seq]> =
                rows.iter().scan(0, |seq, row| { *seq += row.2; Some(*seq) }).collect();
            let range = SeqRange::new(0, seqs[seqs.len() - 1] + 1);
            let taken: Vec<u32> = (0..rows.len() as u32).filter(|row| rows[*row as usize].3).collect();
            let records = RecordBatch::try_new(Arc::clone(schema.arrow()), columns).unwrap();
            let times: Vec<i64> = (0..rows.len() as i64).collect();
            let batch = Batch::new(range, records, times.into(), Seqs::Each(seqs)).with_rows(taken.into());
            let run = |operator: &mut dyn Operator| {
                let id = InputId { port: 0, task: 0 };
                let emitted = collect(|out| operator.process(id, batch.clone(), out)).unwrap();
                let batches = emitted.into_iter().map(|(_, batch)| batch.compact());
                let all = batches.map(|batch| {
                    let seqs: Vec<Seq> = batch.row_numbers().map(|row| batch.seq(row)).collect();
                    (batch.records().clone(), batch.times().to_vec(), seqs)
                });
                all.collect::<Vec<_>>()
            };
            let mut identity = PerRecord::new(Identity, [schema.clone()], [schema.clone()]);
            prop_assert_eq!(run(&mut identity), run(&mut RelayOperator));
        }
    }

    #[test]
    fn copies_are_equal_and_share_nothing() {
        let mut texts = StringViewBuilder::new();
        let mut blobs = BinaryViewBuilder::new();
        for row in 0..100 {
            texts.append_value(format!("text number {row} that is longer than a view"));
            if row % 3 == 0 { blobs.append_null() } else { blobs.append_value([row as u8; 50]) }
        }
        let numbers: ArrayRef =
            Arc::new(arrow_array::Int64Array::from_iter((0..100).map(|row| (row % 7 != 0).then_some(row))));
        let flags: ArrayRef = Arc::new(BooleanArray::from_iter((0..100).map(|row| Some(row % 2 == 0))));
        let columns: Vec<ArrayRef> = vec![Arc::new(texts.finish()), Arc::new(blobs.finish()), numbers, flags];
        for column in columns {
            for slice in [column.clone(), column.slice(13, 60), column.slice(97, 2)] {
                let copied = copy(&slice).unwrap();
                assert_eq!(&copied, &slice);
                let (old, new) = (slice.to_data(), copied.to_data());
                for buffer in old.buffers() {
                    assert!(
                        new.buffers()
                            .iter()
                            .all(|other| other.as_ptr() != buffer.as_ptr() || other.is_empty()),
                        "a buffer of {} is shared",
                        slice.data_type()
                    );
                }
            }
        }
    }
}
