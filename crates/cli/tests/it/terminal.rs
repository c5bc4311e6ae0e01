//! What a person sees: the same commands, with a terminal at standard error.

use std::fs::File;
use std::io::Read as _;
use std::process::Stdio;

use nix::pty::{Winsize, openpty};

use super::Place;

/// Runs a command at a pseudo-terminal; its exit code, standard output, and the text on the terminal.
fn at_a_terminal(place: &Place, args: &[&str]) -> (Option<i32>, String, String) {
    let size = Winsize { ws_row: 40, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
    let terminal = openpty(&size, None).expect("a pseudo-terminal");
    let mut command = place.command(args);
    command.env("TERM", "xterm-256color").env_remove("NO_COLOR").stderr(Stdio::from(terminal.slave));
    let child = command.spawn().expect("the binary runs");
    // The command holds the other end itself.
    drop(command);
    let mut master = File::from(terminal.master);
    let shown = std::thread::spawn(move || {
        let (mut shown, mut piece) = (Vec::new(), [0; 4_096]);
        // The end of a terminal is an error, if no process holds its other end any more.
        while let Ok(count @ 1..) = master.read(&mut piece) {
            shown.extend_from_slice(&piece[..count]);
        }
        String::from_utf8_lossy(&shown).into_owned()
    });
    let output = child.wait_with_output().expect("its output");
    let stdout = String::from_utf8(output.stdout).expect("stdout is UTF-8");
    (output.status.code(), stdout, shown.join().expect("what was shown"))
}

/// The lines that stay: after the last carriage return of each, without escape sequences.
fn lines(shown: &str) -> Vec<String> {
    let without_escapes = |text: &str| {
        let mut plain = String::new();
        let mut characters = text.chars();
        while let Some(character) = characters.next() {
            match character {
                '\u{1b}' => drop(characters.by_ref().skip(1).find(|end| end.is_ascii_alphabetic())),
                other => plain.push(other),
            }
        }
        plain
    };
    let kept = |line: &str| {
        without_escapes(line.trim_end_matches('\r')).rsplit('\r').next().unwrap_or_default().to_owned()
    };
    shown.split('\n').map(kept).filter(|line| !line.trim().is_empty()).collect()
}

#[test]
fn a_run_shows_its_progress_and_leaves_its_summary() {
    const RECORDS: u64 = 2_000_000;
    let mut payments = "ts,card,amount\n".to_owned();
    for n in 0..RECORDS {
        payments.push_str(&format!("{},c{},1.5\n", 1_700_000_000_000_u64 + n * 1_000, n % 1_000));
    }
    let job = "
name: demo
sources:
  payments: { type: file, path: payments.csv, time: ts, schema: { ts: timestamp(ms), card: string, amount: float64 } }
operators:
  features:
    type: metrics
    input: payments
    partition_by: [card]
    queries: { q: SELECT sum(amount) AS spent FROM payments GROUP BY card OVER SLIDING 1 HOUR }
sinks: { out: { type: file, input: features, path: out.ndjson, format: ndjson } }
";
    let place = Place::with(&[("payments.csv", &payments), ("job.yaml", job)]);
    let (code, stdout, shown) = at_a_terminal(&place, &["run", "job.yaml"]);
    assert_eq!((code, &*stdout), (Some(0), ""), "{shown}");
    let left = lines(&shown);
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(left[0].starts_with("state was kept in a temporary folder"), "{left:?}");
    assert!(left[1].starts_with(&format!("records={RECORDS} answers={RECORDS} rejects=0 ")), "{left:?}");
    assert!(
        shown.contains("% ") && shown.contains("eta ") && shown.contains(" records "),
        "a bar: {shown:?}"
    );
}

#[test]
fn warnings_and_mistakes_are_all_that_is_shown_beside() {
    let bad = "name: demo\nsources: { s: { type: file, path: in.csv, schema: { n: int64 }, tiem: n } }\nsinks: { o: { type: 'null', input: s } }\n";
    let good = bad.replace(", tiem: n", "");
    let place = Place::with(&[("in.csv", "n\nx\ny\n"), ("bad.yaml", bad), ("good.yaml", &good)]);
    for args in [["check", "good.yaml"], ["explain", "good.yaml"]] {
        let (code, stdout, shown) = at_a_terminal(&place, &args);
        assert_eq!((code, lines(&shown)), (Some(0), Vec::new()), "{args:?}");
        assert!(!stdout.contains('\u{1b}'), "{stdout}");
    }
    let (code, _, shown) = at_a_terminal(&place, &["check", "bad.yaml"]);
    assert_eq!(code, Some(2));
    assert!(lines(&shown)[0].contains("tiem"), "{shown}");
    let (code, _, shown) = at_a_terminal(&place, &["run", "good.yaml"]);
    let left = lines(&shown);
    assert_eq!(code, Some(1), "{left:?}");
    assert!(left[0].starts_with("rejects of source s: parse: 2"), "{left:?}");
    let last = left.last().expect("a summary");
    assert!(last.contains("error=\"2 of 2 records of source s are rejects; `reject_limit` "), "{last}");
}
