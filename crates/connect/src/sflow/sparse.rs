//! Columns of wide rows of which each row fills few: a value that is not set costs nothing.
//!
//! A column is as long as the last row that was set; the rows between are padded with nulls when a later one is set, or
//! at the end. A column that no row set shares one block of zeros with all others like it.

use std::sync::{Arc, LazyLock};

use arrow_array::builder::make_view;
use arrow_array::{
    ArrayRef, BooleanArray, FixedSizeBinaryArray, Float64Array, Int64Array, StringViewArray, UInt64Array,
};
use arrow_buffer::{ArrowNativeType, BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use thalweg_types::{DataType, TimeUnit};

use super::xdr::Address;

/// Bytes of zeros that empty columns share.
const ZEROS: usize = 1 << 20;

static SHARED_ZEROS: LazyLock<Buffer> = LazyLock::new(|| new_zeros(ZEROS));

/// Words of sixteen bytes, as the widest values are, so that they are aligned for all.
fn new_zeros(bytes: usize) -> Buffer {
    Buffer::from_vec(vec![0_u128; bytes.div_ceil(16)])
}

fn zeros(bytes: usize) -> Buffer {
    if bytes <= ZEROS {
        SHARED_ZEROS.slice_with_length(0, bytes)
    } else {
        new_zeros(bytes).slice_with_length(0, bytes)
    }
}

fn all_null(rows: usize) -> NullBuffer {
    NullBuffer::new(BooleanBuffer::new(zeros(rows.div_ceil(8)), 0, rows))
}

/// Which rows of a column are set. Rows come in ascending order.
#[derive(Debug, Default)]
struct Rows {
    /// One bit a row, from the first null on; empty where all rows so far are set.
    bits: Vec<u64>,
}

impl Rows {
    /// The rows `from..to` are null.
    #[cold]
    fn skip(&mut self, from: usize, to: usize) {
        if self.bits.is_empty() {
            self.bits = vec![u64::MAX; from / 64];
            self.bits.push((1 << (from % 64)) - 1);
        }
        self.bits.resize(to / 64 + 1, 0);
    }

    /// Row `row` is set; rows before it were set or skipped.
    #[inline]
    fn set(&mut self, row: usize) {
        if !self.bits.is_empty() {
            if row / 64 == self.bits.len() {
                self.bits.push(0);
            }
            self.bits[row / 64] |= 1 << (row % 64);
        }
    }

    fn finish(&mut self, rows: usize) -> Option<NullBuffer> {
        if self.bits.is_empty() {
            return None;
        }
        let bits = std::mem::take(&mut self.bits);
        Some(NullBuffer::new(BooleanBuffer::new(Buffer::from_vec(bits), 0, rows)))
    }
}

/// A column of values of one width.
#[derive(Debug)]
pub(crate) struct Sparse<T> {
    values: Vec<T>,
    rows: Rows,
}

impl<T> Default for Sparse<T> {
    fn default() -> Self {
        Self { values: Vec::new(), rows: Rows::default() }
    }
}

impl<T: Copy + Default> Sparse<T> {
    /// Sets a row, unless it is set already: the first to know a value says it.
    #[inline]
    pub(crate) fn set(&mut self, row: usize, value: T) {
        let len = self.values.len();
        if row < len {
            return;
        }
        if row > len {
            self.pad(row);
        }
        self.values.push(value);
        self.rows.set(row);
    }

    #[inline]
    pub(crate) fn set_some(&mut self, row: usize, value: Option<T>) {
        if let Some(value) = value {
            self.set(row, value);
        }
    }

    /// The value of the row.
    pub(crate) fn get(&self, row: usize) -> Option<T> {
        // Only the last row is ever asked for, and the last one of a column is set.
        (row + 1 == self.values.len()).then(|| self.values[row])
    }

    fn pad(&mut self, rows: usize) {
        self.rows.skip(self.values.len(), rows);
        self.values.resize(rows, T::default());
    }

    /// The values of all rows and the nulls among them.
    fn take(&mut self, rows: usize) -> (Vec<T>, Option<NullBuffer>) {
        if self.values.len() < rows {
            self.pad(rows);
        }
        // The next block is likely to have as many.
        let values = std::mem::replace(&mut self.values, Vec::with_capacity(rows));
        (values, self.rows.finish(rows))
    }
}

/// A column of a row's struct.
pub(crate) trait Column {
    fn data_type() -> DataType;

    /// The column with `rows` rows; it is empty after that.
    fn finish(&mut self, rows: usize) -> ArrayRef;
}

macro_rules! numbers {
    ($native:ty, $data_type:expr, $array:ty) => {
        impl Column for Sparse<$native> {
            fn data_type() -> DataType {
                $data_type
            }

            fn finish(&mut self, rows: usize) -> ArrayRef {
                let (values, nulls) = self.buffers(rows);
                Arc::new(<$array>::new(ScalarBuffer::new(values, 0, rows), nulls))
            }
        }
    };
}

numbers!(u64, DataType::UInt64, UInt64Array);
numbers!(i64, DataType::Int64, Int64Array);
numbers!(f64, DataType::Float64, Float64Array);

impl<T: Copy + Default + ArrowNativeType> Sparse<T> {
    fn buffers(&mut self, rows: usize) -> (Buffer, Option<NullBuffer>) {
        if self.values.is_empty() {
            return (zeros(rows * size_of::<T>()), Some(all_null(rows)));
        }
        let (values, nulls) = self.take(rows);
        (Buffer::from_vec(values), nulls)
    }
}

macro_rules! timestamps {
    ($(#[$doc:meta])* $name:ident, $unit:expr) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        pub(crate) struct $name(pub(crate) Sparse<i64>);

        impl Column for $name {
            fn data_type() -> DataType {
                DataType::Timestamp($unit)
            }

            fn finish(&mut self, rows: usize) -> ArrayRef {
                let (values, nulls) = self.0.buffers(rows);
                $unit.column(ScalarBuffer::new(values, 0, rows), nulls)
            }
        }
    };
}

timestamps!(
    /// Microseconds since the epoch.
    MicroTimes,
    TimeUnit::Micro
);
timestamps!(
    /// Nanoseconds since the epoch.
    NanoTimes,
    TimeUnit::Nano
);

/// A column of addresses.
#[derive(Debug, Default)]
pub(crate) struct Addresses(Sparse<u128>);

impl Addresses {
    #[inline]
    pub(crate) fn set(&mut self, row: usize, address: Address) {
        self.0.set(row, u128::from_ne_bytes(address));
    }

    #[inline]
    pub(crate) fn set_some(&mut self, row: usize, address: Option<Address>) {
        if let Some(address) = address {
            self.set(row, address);
        }
    }
}

impl Column for Addresses {
    fn data_type() -> DataType {
        DataType::Ip
    }

    fn finish(&mut self, rows: usize) -> ArrayRef {
        let (values, nulls) = self.0.buffers(rows);
        Arc::new(FixedSizeBinaryArray::new(16, values, nulls))
    }
}

/// A column of yes and no.
#[derive(Debug, Default)]
pub(crate) struct Flags(Sparse<u8>);

impl Flags {
    #[inline]
    pub(crate) fn set(&mut self, row: usize, flag: bool) {
        self.0.set(row, u8::from(flag));
    }
}

impl Column for Flags {
    fn data_type() -> DataType {
        DataType::Bool
    }

    fn finish(&mut self, rows: usize) -> ArrayRef {
        let (values, nulls) = self.0.buffers(rows);
        let flags = BooleanBuffer::collect_bool(rows, |row| values[row] != 0);
        Arc::new(BooleanArray::new(flags, nulls))
    }
}

/// MAC addresses whose texts are remembered; a segment of a network has few.
const KNOWN_MACS: usize = 64;

/// A column of texts; those up to 12 bytes lie in their views.
///
/// Invariant: every view is that of a `str`, in `data` or in the view itself.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    views: Sparse<u128>,
    data: Vec<u8>,
    /// MAC addresses and the views of their texts, by a few of their bits; empty where none was set.
    macs: Vec<Option<([u8; 6], u128)>>,
}

impl Texts {
    /// Sets a MAC address as `aa:bb:cc:dd:ee:ff`.
    #[inline]
    pub(crate) fn set_mac(&mut self, row: usize, mac: [u8; 6]) {
        if row < self.views.values.len() {
            return;
        }
        if self.macs.is_empty() {
            self.macs.resize(KNOWN_MACS, None);
        }
        let place = usize::from(mac[5] ^ mac[4].rotate_left(3)) % KNOWN_MACS;
        let view = match self.macs[place] {
            Some((known, view)) if known == mac => view,
            _ => {
                let text = mac_text(mac);
                let view = make_view(text.as_bytes(), 0, self.data.len() as u32);
                self.data.extend_from_slice(text.as_bytes());
                self.macs[place] = Some((mac, view));
                view
            }
        };
        self.views.set(row, view);
    }

    #[inline]
    pub(crate) fn set(&mut self, row: usize, text: &str) {
        if row < self.views.values.len() {
            return;
        }
        // Blocks are far below 4 GiB, so the place fits.
        let view = make_view(text.as_bytes(), 0, self.data.len() as u32);
        if text.len() > 12 {
            self.data.extend_from_slice(text.as_bytes());
        }
        self.views.set(row, view);
    }

    /// Sets a text from outside, which may not be UTF-8: invalid bytes are replaced.
    pub(crate) fn set_bytes(&mut self, row: usize, text: &[u8]) {
        self.set(row, &String::from_utf8_lossy(text));
    }
}

impl Column for Texts {
    fn data_type() -> DataType {
        DataType::String
    }

    fn finish(&mut self, rows: usize) -> ArrayRef {
        let (views, nulls) = self.views.buffers(rows);
        let data = Buffer::from_vec(std::mem::take(&mut self.data));
        // The data that they point to is gone.
        self.macs.clear();
        Arc::new(text_array(ScalarBuffer::new(views, 0, rows), data, nulls))
    }
}

/// Texts without a second look at each of them, which took a third of the time of decoding.
#[expect(
    unsafe_code,
    reason = "the views are known to be of valid texts: cargo run --example sflow_speed shows the cost"
)]
fn text_array(views: ScalarBuffer<u128>, data: Buffer, nulls: Option<NullBuffer>) -> StringViewArray {
    // SAFETY: each view was made by `make_view` from a `str`, whose bytes are in it or were appended to `data` at the
    // place that it names (the invariant of `Texts`), or is zero, which is the empty text. Rows that are padded are
    // zero and null.
    unsafe { StringViewArray::new_unchecked(views, vec![data], nulls) }
}

fn mac_text(mac: [u8; 6]) -> String {
    let [a, b, c, d, e, f] = mac;
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}

/// Makes the struct of a wide row: a column for each field, its schema, and its columns as arrays.
///
/// `rare` fields are left out of NDJSON where they are null.
macro_rules! wide_row {
    ($(#[$doc:meta])* $name:ident { $($field:ident : $kind:ty $(= $mark:ident)?,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        pub(crate) struct $name {
            $(pub(crate) $field: $kind,)*
        }

        impl $name {
            /// The fields in the order of the columns.
            pub(crate) fn fields() -> Vec<thalweg_types::Field> {
                vec![$({
                    let field = thalweg_types::Field::new(
                        stringify!($field),
                        <$kind as $crate::sflow::sparse::Column>::data_type(),
                    );
                    $crate::sflow::sparse::wide_row!(@mark field $($mark)?)
                },)*]
            }

            /// The columns with `rows` rows; all are empty after that.
            pub(crate) fn finish(&mut self, rows: usize) -> Vec<arrow_array::ArrayRef> {
                vec![$($crate::sflow::sparse::Column::finish(&mut self.$field, rows),)*]
            }
        }
    };
    (@mark $field:ident) => { $field.nullable() };
    (@mark $field:ident always) => { $field };
    (@mark $field:ident rare) => { $field.omit_null() };
}

pub(crate) use wide_row;

#[cfg(test)]
mod tests {
    use arrow_array::Array;
    use arrow_array::cast::AsArray;
    use arrow_array::types::UInt64Type;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_column_holds_what_was_set_and_nulls_elsewhere(
            rows in proptest::collection::vec(proptest::option::of((any::<u64>(), ".{0,20}")), 0..300),
        ) {
            let (mut numbers, mut texts) = (Sparse::<u64>::default(), Texts::default());
            for round in 0..2 {
                for (row, value) in rows.iter().enumerate() {
                    if let Some((number, text)) = value {
                        numbers.set(row, number ^ round);
                        numbers.set(row, 7);
                        texts.set(row, text);
                        texts.set(row, "the second to know");
                        prop_assert_eq!(numbers.get(row), Some(number ^ round));
                    }
                }
                let (numbers, texts) = (numbers.finish(rows.len()), texts.finish(rows.len()));
                let got = numbers.as_primitive::<UInt64Type>().iter().zip(texts.as_string_view().iter());
                let got: Vec<_> = got.map(|(number, text)| number.zip(text.map(str::to_owned))).collect();
                let expected: Vec<_> =
                    rows.iter().map(|row| row.clone().map(|(number, text)| (number ^ round, text))).collect();
                prop_assert_eq!(got, expected);
            }
        }
    }

    proptest! {
        #[test]
        fn mac_addresses_are_their_texts_remembered_or_not(
            macs in proptest::collection::vec(proptest::option::of((0_u8..3, any::<u8>(), 0_u8..4)), 0..200),
        ) {
            let mut texts = Texts::default();
            for _ in 0..2 {
                for (row, mac) in macs.iter().enumerate() {
                    if let Some((first, fifth, last)) = mac {
                        texts.set_mac(row, [*first, 0xab, 0, 9, *fifth, *last]);
                        texts.set_mac(row, [0; 6]);
                    }
                }
                let column = texts.finish(macs.len());
                let column = column.as_string_view();
                let whole = StringViewArray::try_new(
                    column.views().clone(), column.data_buffers().to_vec(), column.nulls().cloned());
                prop_assert!(whole.is_ok(), "{whole:?}");
                for (row, mac) in macs.iter().enumerate() {
                    let expected = mac.map(|(first, fifth, last)| {
                        format!("{first:02x}:ab:00:09:{fifth:02x}:{last:02x}")
                    });
                    prop_assert_eq!(column.is_valid(row).then(|| column.value(row).to_owned()), expected);
                }
            }
        }
    }

    #[test]
    fn columns_that_nobody_set_share_their_bytes() {
        let [mut one, mut other] = [Sparse::<u64>::default(), Sparse::<u64>::default()];
        let (one, other) = (one.finish(1_000), other.finish(1_000));
        assert_eq!((one.len(), one.null_count()), (1_000, 1_000));
        let place = |column: &ArrayRef| column.as_primitive::<UInt64Type>().values().as_ptr();
        assert_eq!(place(&one), place(&other));
    }
}
