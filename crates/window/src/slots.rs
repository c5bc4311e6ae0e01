//! Lists whose places are numbers that others keep: an item that goes leaves its place free for another.

/// Entries from which on a list grows by an eighth.
const LONG: usize = 1 << 16;

/// Makes a list at least `len` long. A long one grows by an eighth and not to its double: such lists are most of a
/// stage's memory, which has a bound.
pub(crate) fn grow<T>(list: &mut Vec<T>, len: usize, fill: impl FnMut() -> T) {
    if len <= list.len() {
        return;
    }
    if len > list.capacity() && len > LONG {
        list.reserve_exact((len - list.len()).max(list.len() / 8));
    }
    list.resize_with(len, fill);
}

/// Makes a list at most `len` long, and gives its memory back.
pub(crate) fn cut<T>(list: &mut Vec<T>, len: usize) {
    if len < list.len() {
        list.truncate(len);
        list.shrink_to_fit();
    }
}

/// Puts something into the first free place, which it returns.
pub(crate) fn put<T>(slots: &mut Vec<Option<T>>, value: T) -> usize {
    let place = slots.iter().position(Option::is_none).unwrap_or(slots.len());
    if place == slots.len() {
        slots.push(None);
    }
    slots[place] = Some(value);
    place
}
