//! Lists whose places are numbers that others keep: what goes leaves its place free for another.

/// Puts something into the first free place, which it returns.
pub(crate) fn put<T>(slots: &mut Vec<Option<T>>, value: T) -> usize {
    let place = slots.iter().position(Option::is_none).unwrap_or(slots.len());
    if place == slots.len() {
        slots.push(None);
    }
    slots[place] = Some(value);
    place
}
