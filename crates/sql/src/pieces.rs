//! How a scan is divided among the query's threads.
//!
//! Whichever thread is free takes the next piece (DataFusion's work stealing), so the last ones have to be
//! small: those files are divided by row groups. The others are not, as each piece opens its file once more.

use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::FileGroup;
use thalweg_table::ROW_GROUP;

/// Up to this number of pieces for each thread are parts of files.
const PARTS: usize = 16;

/// Files with their rows, in pieces for `threads` threads, in the order that they came in.
pub(crate) fn pieces(files: Vec<(PartitionedFile, u64)>, threads: usize) -> Vec<FileGroup> {
    let mut left = if threads > 1 { PARTS * threads } else { 0 };
    let mut pieces = Vec::with_capacity(files.len() + left);
    for (file, rows) in files.into_iter().rev() {
        let row_groups = usize::try_from(rows).unwrap_or(usize::MAX).div_ceil(ROW_GROUP);
        let parts = row_groups.min(left);
        left -= parts;
        if parts < 2 {
            pieces.push(file);
            continue;
        }
        // A row group belongs to the range that it begins in.
        let bytes = file.object_meta.size;
        let bound = |part: usize| (bytes as u128 * part as u128 / parts as u128) as i64;
        pieces.extend((0..parts).rev().map(|part| file.clone().with_range(bound(part), bound(part + 1))));
    }
    pieces.reverse();
    let each = pieces.len().div_ceil(threads.max(1)).max(1);
    pieces.chunks(each).map(|pieces| FileGroup::new(pieces.to_vec())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, bytes: u64, row_groups: usize) -> (PartitionedFile, u64) {
        (PartitionedFile::new(name, bytes), (row_groups * ROW_GROUP) as u64)
    }

    /// Names and ranges by thread.
    fn shown(files: Vec<(PartitionedFile, u64)>, threads: usize) -> Vec<Vec<String>> {
        let piece = |file: &PartitionedFile| match &file.range {
            Some(range) => format!("{} {}..{}", file.path(), range.start, range.end),
            None => file.path().to_string(),
        };
        pieces(files, threads).iter().map(|group| group.iter().map(piece).collect()).collect()
    }

    #[test]
    fn row_groups_of_a_file_are_pieces() {
        let pieces = shown(vec![file("a", 100, 3)], 2);
        assert_eq!(pieces, [vec!["a 0..33", "a 33..66"], vec!["a 66..100"]]);
    }

    #[test]
    fn small_files_and_those_for_one_thread_stay_whole() {
        assert_eq!(shown(vec![file("a", 100, 1), file("b", 100, 1)], 2), [["a"], ["b"]]);
        assert_eq!(shown(vec![file("a", 100, 8), file("b", 100, 8)], 1), [["a", "b"]]);
    }

    #[test]
    fn only_the_last_files_are_divided() {
        let files = (0..9).map(|number| file(&number.to_string(), 80, 8)).collect();
        let pieces = shown(files, 2).concat();
        assert_eq!(pieces.len(), 5 + 4 * 8);
        assert_eq!(pieces[..6], ["0", "1", "2", "3", "4", "5 0..10"]);
        assert_eq!(pieces.last().map(String::as_str), Some("8 70..80"));
    }

    #[test]
    fn all_bytes_are_in_one_piece_each_where_a_file_is_divided_only_in_part() {
        let files = vec![file("a", 1001, 30), file("b", 999, 7)];
        let pieces = pieces(files, 2);
        let mut end = 0;
        let ranges: Vec<_> =
            pieces.iter().flat_map(FileGroup::iter).filter_map(|piece| piece.range.clone()).collect();
        for range in ranges {
            assert_eq!(range.start, if end == 1001 { 0 } else { end });
            end = range.end;
        }
        assert_eq!(end, 999);
    }
}
