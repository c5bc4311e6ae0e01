//! How long texts may become, by the lengths of what they are made of: so that a reader can say how many rows it takes at
//! once, before any is evaluated.

use arrow_array::cast::AsArray as _;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::DataType as Arrow;
use thalweg_types::DataType;

use super::evaluation::MAX_MADE;
use crate::bound::{Op, Typed};
use crate::function::Function;

/// Longest text of a number, a time or an address.
const SHORT: usize = 96;

/// Bytes that the text or blob of a row has at most; 0 for nodes of other types.
pub(crate) fn most_text(node: &Typed, records: &RecordBatch) -> usize {
    if !matches!(node.data_type, DataType::String | DataType::Bytes) {
        return 0;
    }
    let of = |node: &Typed| most_text(node, records);
    let longest = |nodes: &[Typed]| nodes.iter().map(of).max().unwrap_or(0);
    match &node.op {
        Op::Column { index, path, .. } => longest_at(records, *index, path),
        Op::Constant(array) => longest_of(array),
        Op::Concat(items) | Op::Call(Function::Concat, items) => {
            let sum = items.iter().map(of).fold(0, usize::saturating_add);
            sum.min(longest(items).max(MAX_MADE))
        }
        Op::Call(Function::Replace, args) => {
            let text = of(&args[0]);
            text.saturating_mul(of(&args[2]).max(1)).min(text.max(MAX_MADE))
        }
        Op::Call(Function::Lower | Function::Upper, args) => of(&args[0]).saturating_mul(3),
        Op::Call(_, args) => longest(args),
        Op::Case { branches, otherwise } => {
            branches.iter().map(|(_, then)| of(then)).max().unwrap_or(0).max(of(otherwise))
        }
        Op::Cast(a) if matches!(a.data_type, DataType::String | DataType::Bytes) => of(a),
        _ => SHORT,
    }
}

/// Bytes of texts that a row has read and made by all operators together, at most: what its evaluation costs beyond a little
/// for each of them.
pub(crate) fn most_work(root: &Typed, records: &RecordBatch) -> usize {
    let mut bytes = 0_usize;
    root.visit(&mut |node| {
        if !matches!(node.op, Op::Column { .. } | Op::Constant(_)) {
            let read = node.children().into_iter().map(|child| most_text(child, records));
            bytes = read.fold(bytes.saturating_add(most_text(node, records)), usize::saturating_add);
        }
    });
    bytes
}

fn longest_at(records: &RecordBatch, index: usize, path: &[usize]) -> usize {
    let mut array = records.columns().get(index);
    for member in path {
        array =
            array.and_then(|array| array.as_struct_opt()).and_then(|parent| parent.columns().get(*member));
    }
    array.map_or(0, longest_of)
}

/// The longest text or blob of a column of views.
pub(crate) fn longest_of(array: &ArrayRef) -> usize {
    // The length stands in the first bytes of a view.
    let most = |views: &[u128]| views.iter().map(|view| *view as u32).max().unwrap_or(0) as usize;
    match array.data_type() {
        Arrow::Utf8View => most(array.as_string_view().views()),
        Arrow::BinaryView => most(array.as_binary_view().views()),
        _ => 0,
    }
}
