//! Arrays that hold their rows and nothing else.
//!
//! A slice shares the buffers of the array that it was cut from, and so does an array of views. The writer of Arrow
//! IPC cuts most buffers to the rows; views, the values of dictionaries, and the values of lists it writes as they are.
//! A batch of 8,192 rows whose views point into a page of a Parquet file would have the whole page with it.
//!
//! Nothing becomes larger: views of the same bytes still share them, and an array all of whose buffers are used stays as it is.

use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    BinaryType, BinaryViewType, ByteArrayType, ByteViewType, Int16Type, Int32Type, Int64Type,
    LargeBinaryType, LargeUtf8Type, RunEndIndexType, StringViewType, Utf8Type,
};
use arrow_array::{
    Array, ArrayRef, FixedSizeBinaryArray, FixedSizeListArray, GenericByteArray, GenericByteViewArray,
    GenericListArray, GenericListViewArray, MapArray, OffsetSizeTrait, PrimitiveArray, RecordBatch,
    RecordBatchOptions, RunArray, StructArray, UInt64Array, UnionArray,
};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, FieldRef, Schema, SchemaRef, UnionFields};
use arrow_select::dictionary::garbage_collect_any_dictionary;
use arrow_select::take::take;
use foldhash::{HashMap, HashMapExt};

use super::Addresses;
use crate::output::address;
use crate::output::cell::ADDRESS;

/// A text of at most this number of bytes is in its view.
const INLINE: usize = 12;

/// Makes compact batches of one schema.
pub(super) struct Compact {
    schema: SchemaRef,
    addresses: Addresses,
}

impl Compact {
    pub(super) fn new(schema: &SchemaRef, addresses: Addresses) -> Self {
        let schema = match addresses {
            Addresses::Binary => Arc::clone(schema),
            Addresses::Text => Arc::new(Schema::new_with_metadata(
                schema.fields().iter().map(with_texts).collect::<Vec<_>>(),
                schema.metadata().clone(),
            )),
        };
        Self { schema, addresses }
    }

    /// The schema of the batches of [`Compact::batch`].
    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The same rows.
    ///
    /// # Errors
    /// If the columns are not those of the schema.
    pub(super) fn batch(&self, batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
        let columns = batch.columns().iter().map(|column| self.array(column)).collect::<Result<_, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
    }

    fn field(&self, field: &FieldRef) -> FieldRef {
        match self.addresses {
            Addresses::Binary => Arc::clone(field),
            Addresses::Text => with_texts(field),
        }
    }

    fn array(&self, array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        Ok(match array.data_type() {
            DataType::Utf8View => views::<StringViewType>(array)?,
            DataType::BinaryView => views::<BinaryViewType>(array)?,
            DataType::Utf8 => bytes::<Utf8Type>(array),
            DataType::LargeUtf8 => bytes::<LargeUtf8Type>(array),
            DataType::Binary => bytes::<BinaryType>(array),
            DataType::LargeBinary => bytes::<LargeBinaryType>(array),
            DataType::FixedSizeBinary(ADDRESS) if self.addresses == Addresses::Text => {
                Arc::new(texts(array.as_fixed_size_binary()))
            }
            DataType::List(field) => self.list::<i32>(field, array)?,
            DataType::LargeList(field) => self.list::<i64>(field, array)?,
            DataType::ListView(field) => self.list_view::<i32>(field, array)?,
            DataType::LargeListView(field) => self.list_view::<i64>(field, array)?,
            DataType::FixedSizeList(field, size) => {
                let list = array.as_fixed_size_list();
                let values = self.array(list.values())?;
                let nulls = list.nulls().cloned();
                let field = self.field(field);
                Arc::new(FixedSizeListArray::try_new_with_length(field, *size, values, nulls, list.len())?)
            }
            DataType::Map(field, is_sorted) => {
                let map = array.as_map();
                let entries: ArrayRef = Arc::new(map.entries().clone());
                let (offsets, entries) = parts(map.offsets(), map.nulls(), &entries)?;
                let entries = self.array(&entries)?.as_struct().clone();
                let nulls = map.nulls().cloned();
                Arc::new(MapArray::try_new(self.field(field), offsets, entries, nulls, *is_sorted)?)
            }
            DataType::Struct(fields) => {
                let all = array.as_struct();
                let columns =
                    all.columns().iter().map(|column| self.array(column)).collect::<Result<_, _>>()?;
                let fields = fields.iter().map(|field| self.field(field)).collect();
                Arc::new(StructArray::try_new_with_length(fields, columns, all.nulls().cloned(), all.len())?)
            }
            DataType::Dictionary(..) => {
                let used = garbage_collect_any_dictionary(array.as_any_dictionary())?;
                let used = used.as_any_dictionary();
                used.with_values(self.array(used.values())?)
            }
            DataType::Union(fields, _) => self.union(fields, array.as_union())?,
            DataType::RunEndEncoded(ends, _) => match ends.data_type() {
                DataType::Int16 => self.runs::<Int16Type>(array)?,
                DataType::Int32 => self.runs::<Int32Type>(array)?,
                _ => self.runs::<Int64Type>(array)?,
            },
            _ => Arc::clone(array),
        })
    }

    fn list<O: OffsetSizeTrait>(&self, field: &FieldRef, array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        let list = array.as_list::<O>();
        let (offsets, values) = parts(list.offsets(), list.nulls(), list.values())?;
        let values = self.array(&values)?;
        let nulls = list.nulls().cloned();
        Ok(Arc::new(GenericListArray::try_new(self.field(field), offsets, values, nulls)?))
    }

    /// Lists that may be anywhere among the values, several at the same place.
    fn list_view<O: OffsetSizeTrait>(
        &self,
        field: &FieldRef,
        array: &ArrayRef,
    ) -> Result<ArrayRef, ArrowError> {
        let list = array.as_list_view::<O>();
        let (mut offsets, mut sizes) = (list.offsets().clone(), list.sizes().clone());
        let mut values = Arc::clone(list.values());
        let lengths = lengths(sizes.iter().map(|size| size.as_usize()), list.nulls());
        if lengths.iter().fold(0usize, |sum, length| sum.saturating_add(*length)) < values.len() {
            let starts = offsets.iter().map(|offset| offset.as_usize());
            values = taken(&values, starts.zip(lengths.iter().copied()))?;
            let packed = OffsetBuffer::<O>::from_lengths(lengths.iter().copied());
            offsets = packed.inner().slice(0, lengths.len());
            sizes = lengths.iter().map(|length| O::usize_as(*length)).collect();
        }
        let values = self.array(&values)?;
        let nulls = list.nulls().cloned();
        Ok(Arc::new(GenericListViewArray::try_new(self.field(field), offsets, sizes, values, nulls)?))
    }

    fn union(&self, fields: &UnionFields, array: &UnionArray) -> Result<ArrayRef, ArrowError> {
        let mut children = Vec::with_capacity(fields.len());
        let mut offsets = array.offsets().map(|offsets| offsets.to_vec());
        for (id, _) in fields.iter() {
            let mut child = Arc::clone(array.child(id));
            if let Some(offsets) = &mut offsets {
                let mut rows: Vec<(usize, usize)> = Vec::new();
                for (offset, _) in offsets.iter_mut().zip(array.type_ids()).filter(|(_, kind)| **kind == id) {
                    rows.push((*offset as usize, 1));
                    *offset = rows.len() as i32 - 1;
                }
                child = taken(&child, rows.into_iter())?;
            }
            children.push(self.array(&child)?);
        }
        let fields = fields.iter().map(|(id, field)| (id, self.field(field))).collect();
        let offsets = offsets.map(ScalarBuffer::from);
        Ok(Arc::new(UnionArray::try_new(fields, array.type_ids().clone(), offsets, children)?))
    }

    fn runs<R: RunEndIndexType>(&self, array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        let runs = array.as_any().downcast_ref::<RunArray<R>>();
        let runs = runs.ok_or_else(|| ArrowError::CastError("runs of another type".to_owned()))?;
        let ends = PrimitiveArray::<R>::from_iter_values(runs.run_ends().sliced_values());
        // Addresses stay as they are, as in `kind_with_texts`.
        let plain = Compact { schema: Arc::clone(&self.schema), addresses: Addresses::Binary };
        let made = RunArray::<R>::try_new(&ends, &plain.array(&runs.values_slice())?)?;
        // It gives its fields names of its own.
        Ok(if made.data_type() == array.data_type() { Arc::new(made) } else { Arc::clone(array) })
    }
}

/// The field, with texts in the place of addresses at any depth.
fn with_texts(field: &FieldRef) -> FieldRef {
    let kind = kind_with_texts(field.data_type());
    if kind == *field.data_type() {
        return Arc::clone(field);
    }
    Arc::new(field.as_ref().clone().with_data_type(kind))
}

fn kind_with_texts(kind: &DataType) -> DataType {
    match kind {
        DataType::FixedSizeBinary(ADDRESS) => DataType::Utf8,
        DataType::List(field) => DataType::List(with_texts(field)),
        DataType::LargeList(field) => DataType::LargeList(with_texts(field)),
        DataType::ListView(field) => DataType::ListView(with_texts(field)),
        DataType::LargeListView(field) => DataType::LargeListView(with_texts(field)),
        DataType::FixedSizeList(field, size) => DataType::FixedSizeList(with_texts(field), *size),
        DataType::Map(field, is_sorted) => DataType::Map(with_texts(field), *is_sorted),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(with_texts).collect()),
        DataType::Dictionary(keys, values) => {
            DataType::Dictionary(keys.clone(), Box::new(kind_with_texts(values)))
        }
        DataType::Union(fields, mode) => {
            DataType::Union(fields.iter().map(|(id, field)| (id, with_texts(field))).collect(), *mode)
        }
        other => other.clone(),
    }
}

fn texts(addresses: &FixedSizeBinaryArray) -> arrow_array::StringArray {
    let mut out = StringBuilder::with_capacity(addresses.len(), addresses.len() * 16);
    let mut text = String::new();
    for value in addresses {
        text.clear();
        if let Some(bytes) = value {
            address(bytes, &mut text);
        }
        out.append_option(value.is_some().then_some(&text));
    }
    out.finish()
}

/// Views of the bytes that rows have, each once.
fn views<T: ByteViewType>(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let all = array.as_byte_view::<T>();
    let held: usize = all.data_buffers().iter().map(Buffer::len).sum();
    if held == 0 {
        return Ok(Arc::clone(array));
    }
    // A view is, from its low end: length and first bytes of the value, number of its buffer, place in it; 32 bits each.
    let (mut blocks, mut block) = (Vec::new(), Vec::new());
    let mut moved: HashMap<u128, u128> = HashMap::new();
    let mut views = Vec::with_capacity(all.len());
    let mut used = 0;
    for (row, view) in all.views().iter().copied().enumerate() {
        let length = view as u32 as usize;
        if all.is_null(row) {
            views.push(0);
        } else if length <= INLINE {
            views.push(view);
        } else if let Some(view) = moved.get(&view) {
            views.push(*view);
        } else {
            used += length;
            if used >= held {
                return Ok(Arc::clone(array));
            }
            if block.len() + length > i32::MAX as usize {
                blocks.push(Buffer::from_vec(std::mem::take(&mut block)));
            }
            let place = (blocks.len() as u128) << 64 | (block.len() as u128) << 96;
            block.extend_from_slice(AsRef::<[u8]>::as_ref(all.value(row)));
            let new = view & u128::from(u64::MAX) | place;
            moved.insert(view, new);
            views.push(new);
        }
    }
    if !block.is_empty() {
        blocks.push(Buffer::from_vec(block));
    }
    let nulls = all.nulls().cloned();
    Ok(Arc::new(GenericByteViewArray::<T>::try_new(ScalarBuffer::from(views), blocks, nulls)?))
}

/// Values without those under nulls.
fn bytes<T: ByteArrayType>(array: &ArrayRef) -> ArrayRef {
    let all = array.as_bytes::<T>();
    let is_hidden = |row| all.is_null(row) && all.value_length(row) != T::Offset::default();
    if all.null_count() == 0 || !(0..all.len()).any(is_hidden) {
        return Arc::clone(array);
    }
    Arc::new(all.iter().collect::<GenericByteArray<T>>())
}

/// What the lists of rows have of the values, one after the other.
fn parts<O: OffsetSizeTrait>(
    offsets: &OffsetBuffer<O>,
    nulls: Option<&NullBuffer>,
    values: &ArrayRef,
) -> Result<(OffsetBuffer<O>, ArrayRef), ArrowError> {
    let lengths = lengths(offsets.lengths(), nulls);
    let used: usize = lengths.iter().sum();
    let first = offsets[0].as_usize();
    let values = if used == offsets[offsets.len() - 1].as_usize() - first {
        values.slice(first, used)
    } else {
        taken(values, offsets.iter().map(|offset| offset.as_usize()).zip(lengths.iter().copied()))?
    };
    Ok((OffsetBuffer::from_lengths(lengths), values))
}

/// How many values each row has.
fn lengths(all: impl Iterator<Item = usize>, nulls: Option<&NullBuffer>) -> Vec<usize> {
    let length = |(row, length)| if nulls.is_some_and(|nulls| nulls.is_null(row)) { 0 } else { length };
    all.enumerate().map(length).collect()
}

/// The values of some stretches, each by its start and its length.
fn taken(values: &ArrayRef, stretches: impl Iterator<Item = (usize, usize)>) -> Result<ArrayRef, ArrowError> {
    let places = stretches.flat_map(|(from, length)| from..from + length);
    take(values, &UInt64Array::from_iter_values(places.map(|place| place as u64)), None)
}
