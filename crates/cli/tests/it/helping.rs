//! `thalweg help`: commands, the reference and the documents.

use std::io::Read as _;
use std::process::Stdio;

use super::Place;

fn help(words: &[&str]) -> super::Ended {
    Place::with(&[]).thalweg(&[&["help"], words].concat())
}

#[test]
fn every_topic_of_the_list_is_printed() {
    let list = help(&["topics"]).ends_with(0).stdout;
    // A topic begins its line and is set apart from its meaning; other lines are of words with one blank between.
    let topics = list.lines().filter_map(|line| line.split_once("  ")).map(|(topic, _)| topic);
    let topics: Vec<&str> =
        topics.filter(|topic| !topic.is_empty() && !topic.contains(' ') && *topic != "topic").collect();
    for expected in ["run", "jobs", "sources", "csv", "metrics", "postgres", "expressions", "operations"] {
        assert!(topics.contains(&expected), "{expected} in {topics:?}");
    }
    assert!(topics.len() > 50, "{topics:?}");
    for topic in topics {
        let ended = help(&[topic]).ends_with(0);
        assert!(ended.stdout.len() > 80, "{topic}: {}", ended.stdout);
        assert_eq!(ended.stderr, "", "{topic}");
    }
}

#[test]
fn the_help_of_a_command_is_that_of_its_flag() {
    let place = Place::with(&[]);
    for command in [&[][..], &["run"], &["verify"], &["table", "build-lookup"]] {
        let flag = place.thalweg(&[command, &["--help"]].concat()).ends_with(0).stdout;
        assert_eq!(help(command).ends_with(0).stdout, flag, "{command:?}");
    }
    assert!(help(&[]).stdout.contains("thalweg help topics"));
}

#[test]
fn a_word_with_several_meanings_prints_them_all() {
    let sql = help(&["sql"]).ends_with(0).stdout;
    assert!(sql.starts_with("Query the tables of jobs") && sql.contains("SQL OVER TABLES"), "{sql}");
    let both = help(&["file"]).ends_with(0).stdout;
    assert!(both.contains("Source file\n") && both.contains("Sink file\n"), "{both}");
    let one = help(&["source", "file"]).ends_with(0).stdout;
    assert!(one.starts_with("Source file\n---") && !one.contains("Sink file"), "{one}");
    assert!(help(&["document", "sql"]).ends_with(0).stdout.starts_with("SQL OVER TABLES"));
}

#[test]
fn a_key_says_where_it_may_be_written() {
    let text = help(&["lateness"]).ends_with(0).stdout;
    assert!(text.contains("Of every source: duration; default `10s`."), "{text}");
    let text = help(&["key", "retention"]).ends_with(0).stdout;
    for place in ["Of `state`", "Of every source", "Of sink table"] {
        assert!(text.contains(place), "{place}: {text}");
    }
}

#[test]
fn an_unknown_topic_names_the_nearest_one() {
    for (words, hint) in [
        (&["flie"][..], "did you mean \"file\"?"),
        (&["postgre"], "did you mean \"postgres\"?"),
        (&["latenes"], "did you mean \"lateness\"?"),
        (&["source", "influx"], "`thalweg help topics` lists all topics"),
        (&["xyzzy"], "`thalweg help topics` lists all topics"),
    ] {
        let ended = help(words).ends_with(2);
        assert_eq!(ended.stdout, "");
        let wanted = format!("error: there is no help topic {:?}", words.join(" "));
        assert!(ended.stderr.starts_with(&wanted) && ended.stderr.contains(hint), "{}", ended.stderr);
    }
}

#[test]
fn text_fits_a_terminal() {
    for topic in [&["sources"][..], &["csv"], &["operators"], &["sink", "table"], &["topics"]] {
        for line in help(topic).ends_with(0).stdout.lines() {
            let is_code = line.starts_with("    ");
            assert!(is_code || line.chars().count() <= 80, "{topic:?}: {line}");
        }
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let place = Place::with(&[]);
    let mut child =
        place.command(&["help", "operations"]).stdout(Stdio::piped()).spawn().expect("the binary runs");
    let mut first = [0; 16];
    let mut stdout = child.stdout.take().expect("it is piped");
    stdout.read_exact(&mut first).expect("the beginning");
    drop(stdout);
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}
