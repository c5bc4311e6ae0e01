//! `--set PATH=VALUE`: values of this run laid over the tree of the job file.
//!
//! The value is YAML. Keys that are missing on the way are created; a number steps into a list.

use crate::diagnostic::{Diagnostic, Diagnostics, Span, Texts};

use super::tree::{self, Key, Node, Scalar, Style, Value};

/// Splits `PATH=VALUE` at the first `=`.
pub(crate) fn split(argument: &str) -> Option<(&str, &str)> {
    argument
        .split_once('=')
        .filter(|(path, _)| !path.is_empty() && path.split('.').all(|step| !step.is_empty()))
}

/// Lays text `index` of `texts` (the value of `--set path=…`) over the tree.
pub(crate) fn apply(root: &mut Node, texts: &Texts, index: usize, path: &str) -> Result<(), Diagnostics> {
    let value = tree::parse(texts, index)?;
    let span = value.span;
    let mut at = root;
    for (number, step) in path.split('.').enumerate() {
        if at.is_null() {
            at.value = Value::Map(Vec::new());
        }
        let described = at.describe();
        at = match &mut at.value {
            Value::Map(entries) => {
                let position = entries.iter().position(|(key, _)| key.text == step).unwrap_or_else(|| {
                    let nothing = Scalar { text: String::new(), style: Style::Plain };
                    entries.push((
                        Key { text: step.to_owned(), span },
                        Node { span, value: Value::Scalar(nothing) },
                    ));
                    entries.len() - 1
                });
                &mut entries[position].1
            }
            Value::List(items) => {
                let count = items.len();
                let Some(item) = step.parse::<usize>().ok().and_then(|place| items.get_mut(place)) else {
                    return Err(refuse(texts, index, format!("{step:?} is no place of a list of {count}")));
                };
                item
            }
            Value::Scalar(_) => {
                let before: Vec<&str> = path.split('.').take(number).collect();
                let message = format!("{:?} is {described} and has no keys", before.join("."));
                return Err(refuse(texts, index, message));
            }
        };
    }
    *at = value;
    Ok(())
}

fn refuse(texts: &Texts, index: usize, message: String) -> Diagnostics {
    let end = texts.get(index).text.len();
    Diagnostics::one(Diagnostic::new(texts, Span::new(index, 0..end), message))
}
