//! Validity of a column under construction.

use arrow_buffer::NullBuffer;

/// The validity of `rows` rows, `nulls` of which are null; `None` if none is.
///
/// # Panics
/// If a row is not below `rows`.
pub fn validity(rows: usize, nulls: &[u32]) -> Option<NullBuffer> {
    if nulls.is_empty() {
        return None;
    }
    let mut valid = vec![true; rows];
    for row in nulls {
        valid[*row as usize] = false;
    }
    Some(NullBuffer::from(valid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_rows_are_null() {
        assert_eq!(validity(3, &[]), None);
        let nulls = validity(4, &[1, 3]).unwrap();
        assert_eq!(nulls.iter().collect::<Vec<_>>(), [true, false, true, false]);
    }
}
