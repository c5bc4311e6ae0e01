//! A JSON array as a row of elements, so that one that is no good costs no other.
//!
//! Elements are found by their commas. Where one is no JSON, its end is where brackets and strings say so if nothing
//! else in it is looked at; where even these do not end, it reaches to the end of the text.

use std::borrow::Cow;
use std::ops::Range;

use super::decode::describe_json;
use super::json::{JsonError, skip_blanks, value_end};

/// The text between two commas of an array.
pub(crate) enum Element {
    /// A JSON value of any kind, without blanks around it.
    Value(Range<usize>),
    /// No JSON, with the reason.
    Broken(Range<usize>, Cow<'static, str>),
}

/// The elements of an array, in order.
pub(crate) struct Array<'a> {
    text: &'a [u8],
    at: usize,
    number: u64,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The next element begins at `at`.
    Open,
    /// The array has ended, before `at`.
    Closed,
    /// The text has ended, and the array had not.
    Cut,
}

impl<'a> Array<'a> {
    /// `None` where the text does not begin as an array.
    pub(crate) fn begin(text: &'a [u8]) -> Option<Self> {
        let open = skip_blanks(text, 0);
        if text.get(open) != Some(&b'[') {
            return None;
        }
        let at = skip_blanks(text, open + 1);
        let is_empty = text.get(at) == Some(&b']');
        let state = if is_empty { State::Closed } else { State::Open };
        Some(Self { text, at: at + usize::from(is_empty), number: 0, state })
    }

    /// Whether something follows the end of the array; known when all elements have been given.
    pub(crate) fn is_followed(&self) -> bool {
        self.state == State::Closed && skip_blanks(self.text, self.at) < self.text.len()
    }

    /// Whether the text has ended before the array: then the last element that was given may not be whole.
    pub(crate) fn is_cut(&self) -> bool {
        self.state == State::Cut
    }

    /// The number of the last element that was given, from 1.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    fn broken(&self, place: Range<usize>, error: JsonError) -> Element {
        let reason = match error.at {
            at if at >= self.text.len() => format!("expected {}, got the end of the body", error.expected),
            _ => {
                let error = JsonError { at: error.at - place.start, ..error };
                describe_json(error, &self.text[place.clone()]).into_owned()
            }
        };
        Element::Broken(place, Cow::Owned(format!("element {} of the array: {reason}", self.number)))
    }

    /// Goes on after an element that ends at `end`.
    fn pass(&mut self, end: usize) {
        self.at = (end + 1).min(self.text.len());
        self.state = match self.text.get(end) {
            Some(b',') => State::Open,
            Some(_) => State::Closed,
            None => State::Cut,
        };
    }
}

impl Iterator for Array<'_> {
    type Item = Element;

    fn next(&mut self) -> Option<Element> {
        if self.state != State::Open {
            return None;
        }
        self.number += 1;
        let start = skip_blanks(self.text, self.at);
        let read = value_end(self.text, start, 0).and_then(|end| {
            let after = skip_blanks(self.text, end);
            match self.text.get(after) {
                Some(b',' | b']') => Ok((end, after)),
                _ => Err(JsonError { at: after, expected: "a comma or the end of the array" }),
            }
        });
        Some(match read {
            Ok((end, after)) => {
                self.pass(after);
                Element::Value(start..end)
            }
            Err(error) => {
                let end = guessed_end(self.text, start);
                self.pass(end);
                let inside = self.text[start..end].trim_ascii_end().len();
                let error = match self.state {
                    State::Cut if inside > 0 => {
                        JsonError { at: self.text.len(), expected: "a comma or the end of the array" }
                    }
                    _ => error,
                };
                if inside == 0 && self.state != State::Cut {
                    let reason =
                        format!("element {} of the array: expected a JSON value, got nothing", self.number);
                    return Some(Element::Broken(start..start, Cow::Owned(reason)));
                }
                self.broken(start..start + inside, error)
            }
        })
    }
}

/// The place of the comma or bracket that ends a broken element, by brackets and strings alone; the end of the text if
/// there is none.
fn guessed_end(text: &[u8], start: usize) -> usize {
    let (mut at, mut depth, mut is_string) = (start, 0_u64, false);
    while let Some(byte) = text.get(at) {
        match byte {
            b'\\' if is_string => at += 1,
            b'"' => is_string = !is_string,
            _ if is_string => {}
            b'{' | b'[' => depth += 1,
            b']' | b',' if depth == 0 => return at,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever the bytes, elements are given in order, with nothing but commas, brackets and blanks between them.
        #[test]
        fn elements_leave_nothing_out(text in "\\[[\\[\\]{},:\"\\\\1a \n]{0,60}") {
            let mut array = Array::begin(text.as_bytes()).unwrap();
            let mut end = 0;
            let is_between = |from: usize, to: usize| {
                text[from..to].bytes().all(|byte| b"[], \n".contains(&byte))
            };
            for element in array.by_ref() {
                let (Element::Value(place) | Element::Broken(place, _)) = element;
                prop_assert!(end <= place.start && is_between(end, place.start), "{text:?} {place:?}");
                end = place.end;
            }
            let rest = array.at..text.len();
            prop_assert!(end <= rest.start && is_between(end, rest.start), "{text:?} {end} {rest:?}");
            prop_assert!(rest.is_empty() || text[rest].trim().is_empty() || array.is_followed(), "{text:?}");
        }

        /// An array that the standard parser takes has its elements.
        #[test]
        fn an_array_by_the_book_has_its_elements(text in "\\[(([1a{}\":\\[\\]] ?){0,3},?){0,4}\\]") {
            if let Ok(values) = serde_json::from_str::<Vec<serde_json::Value>>(&text) {
                let mut array = Array::begin(text.as_bytes()).unwrap();
                let found: Vec<serde_json::Value> = array
                    .by_ref()
                    .map(|element| match element {
                        Element::Value(place) => serde_json::from_str(&text[place]).unwrap(),
                        Element::Broken(_, reason) => panic!("{text}: {reason}"),
                    })
                    .collect();
                prop_assert_eq!(found, values);
                prop_assert!(!array.is_followed());
            }
        }
    }
}
