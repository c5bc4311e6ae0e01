//! Rules of the fold, one after the other, and all of them in schedules at random.

pub(crate) mod kit;
mod log;
mod model;
mod rules;

use self::kit::Log;

/// Seconds after which the last of `died` members is noticed, of `nodes` that beat four times a second, in turn.
pub(crate) fn noticed_after(nodes: usize, died: usize) -> f64 {
    let letter = |number: usize| char::from(b'a' + (number % 26) as u8);
    let names: Vec<String> =
        (0..nodes).map(|node| format!("{}{}", letter(node / 26), letter(node))).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut log = Log::with(&names);
    for round in 1..1_000 {
        for name in &names[..nodes - died] {
            log.beats(name, 1);
        }
        if log.members().len() == nodes - died {
            return f64::from(round) / 4.0;
        }
    }
    f64::INFINITY
}
