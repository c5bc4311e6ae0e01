//! `--set PATH=VALUE`: values of this run laid over the tree of the job file.
//!
//! The value is YAML. Keys that are missing on the way are created; a number steps into a list.
//! A path that is a name in the job file's `shortcuts` stands for the paths there: `{}` in the replacements is the
//! value.

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
    let Some(shortcut) = shortcut(root, path) else { return lay(root, texts, index, path, value) };
    for (key, mut node) in shortcut {
        fill(&mut node, &value);
        if !key.text.split('.').all(|step| !step.is_empty()) {
            return Err(refuse(
                texts,
                index,
                format!("shortcut {path:?} names {:?}, which is no path", key.text),
            ));
        }
        lay(root, texts, index, &key.text, node)?;
    }
    Ok(())
}

/// The paths of a shortcut in the job file.
fn shortcut(root: &Node, path: &str) -> Option<Vec<(Key, Node)>> {
    let entry = |node: &Node, name: &str| match &node.value {
        Value::Map(entries) => entries.iter().find(|(key, _)| key.text == name).map(|(_, node)| node.clone()),
        _ => None,
    };
    match entry(&entry(root, "shortcuts")?, path)?.value {
        Value::Map(entries) => Some(entries),
        _ => None,
    }
}

/// Puts the value in the place of every `{}`.
fn fill(node: &mut Node, value: &Node) {
    match &mut node.value {
        Value::Scalar(scalar) if scalar.text == "{}" => *node = value.clone(),
        Value::Scalar(_) => {}
        Value::List(items) => items.iter_mut().for_each(|item| fill(item, value)),
        Value::Map(entries) => entries.iter_mut().for_each(|(_, node)| fill(node, value)),
    }
}

fn lay(root: &mut Node, texts: &Texts, index: usize, path: &str, value: Node) -> Result<(), Diagnostics> {
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
