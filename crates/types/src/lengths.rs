//! How long the texts of a column are, without a look at them.

use arrow_array::ArrayRef;
use arrow_array::cast::AsArray;

/// The length of each text or blob of a column of views, by physical row.
#[derive(Clone, Copy, Debug)]
pub struct TextLengths<'a>(&'a [u128]);

impl<'a> TextLengths<'a> {
    /// `None` for columns of other types.
    pub fn of(column: &'a ArrayRef) -> Option<Self> {
        let texts = column.as_string_view_opt().map(|texts| &texts.views()[..]);
        texts.or_else(|| column.as_binary_view_opt().map(|blobs| &blobs.views()[..])).map(Self)
    }

    /// Bytes of the text of a row; where it is null, usually 0.
    #[inline]
    pub fn at(self, row: u32) -> usize {
        // The lower half of a view's first word is the length.
        self.0[row as usize] as u32 as usize
    }

    /// Bytes of the longest text in some rows; 0 if there are no texts.
    pub fn longest(self, rows: impl Iterator<Item = u32>) -> usize {
        rows.map(|row| self.at(row)).max().unwrap_or(0)
    }

    /// Bytes of the longest text of all.
    pub fn longest_of_all(self) -> usize {
        self.0.iter().map(|view| *view as u32).max().unwrap_or(0) as usize
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{BinaryViewArray, Int64Array, StringViewArray};

    use super::*;

    #[test]
    fn texts_and_blobs_say_how_long_they_are() {
        let long = "x".repeat(1_000);
        let texts: ArrayRef = Arc::new(StringViewArray::from(vec![Some("abc"), None, Some(&long), Some("")]));
        let lengths = TextLengths::of(&texts).unwrap();
        assert_eq!((0..4).map(|row| lengths.at(row)).collect::<Vec<_>>(), [3, 0, 1_000, 0]);
        assert_eq!(lengths.longest([0, 1, 3].into_iter()), 3);
        assert_eq!((lengths.longest([].into_iter()), lengths.longest_of_all()), (0, 1_000));
        let sliced = texts.slice(3, 1);
        assert_eq!(TextLengths::of(&sliced).unwrap().longest_of_all(), 0);
        let blobs: ArrayRef = Arc::new(BinaryViewArray::from_iter_values([b"12".as_slice(), b"1"]));
        assert_eq!(TextLengths::of(&blobs).unwrap().at(0), 2);
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        assert!(TextLengths::of(&numbers).is_none());
    }
}
