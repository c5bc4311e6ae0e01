//! Models of the design in Python, where they are at hand: each has to find nothing wrong.
//!
//! They were written before the code, and attack the same rules with less around them: a link between two units, chains
//! of stages with doors, time and lateness, membership.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Models, with the numbers of schedules that they take.
const MODELS: [(&str, &[&str]); 4] =
    [("positions.py", &["500"]), ("chain.py", &["100"]), ("lateness.py", &[]), ("membership.py", &[])];

/// Folder of the models: where `THALWEG_MODELS` says, or next to the folder of real data.
fn folder() -> PathBuf {
    if let Some(folder) = std::env::var_os("THALWEG_MODELS") {
        return folder.into();
    }
    let named = std::env::var_os("THALWEG_DATA").map(PathBuf::from);
    let data = named.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"));
    data.join("../models")
}

#[test]
#[ignore = "needs the models"]
fn models_find_nothing_wrong() {
    for (model, arguments) in MODELS {
        let path = folder().join(model);
        let mut command = Command::new("python3");
        // Hashes of Python choose the order in which a model looks at its nodes.
        command.arg(&path).args(arguments).env("PYTHONHASHSEED", "0").env("PYTHONDONTWRITEBYTECODE", "1");
        let output = command.output().expect("python3 is installed");
        let (text, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{}: {}\n{text}{errors}", path.display(), output.status);
        assert!(!text.trim().is_empty(), "{model} says nothing");
        if !arguments.is_empty() {
            assert!(text.contains("wrong: 0") || text.contains("wrong 0"), "{model}: {text}");
        }
    }
}

/// The figures that the rule of silence was chosen for.
#[test]
#[ignore = "needs the models"]
fn the_model_of_membership_and_the_fold_notice_deaths_alike() {
    let output = Command::new("python3")
        .arg(folder().join("membership.py"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("python3 is installed");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut compared = 0;
    for line in text.lines().filter(|line| line.contains("die at once")) {
        // `10 nodes, 9 die at once: all noticed after 27.25 s as written, 3.0 s with the median …`
        let number = |text: &str| text.split_whitespace().rev().find_map(|word| word.parse::<f64>().ok());
        let nodes = number(line.split(" nodes").next().unwrap_or(line)).expect("a number of nodes");
        let died = number(line.split(" die").next().unwrap_or(line)).expect("a number of deaths");
        let after = number(line.split(" s with the median").next().unwrap_or(line)).expect("a time");
        assert_eq!(crate::fold::tests::noticed_after(nodes as usize, died as usize), after, "{line}");
        compared += 1;
    }
    assert!(compared >= 5, "{text}");
}
