//! What a result was measured on.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::report::Table;
use thalweg_harness::project;

/// Machine, commit and command line of this run.
pub(super) fn describe() -> Table {
    let mut table = Table::new(["", "measured on"]);
    let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
    row("processor", processor());
    row("cores", std::thread::available_parallelism().map_or("?".to_owned(), |count| count.to_string()));
    row("memory", memory());
    row("kernel", first_line("/proc/sys/kernel/osrelease"));
    row("disk", disk(&project::root()));
    row("load before", load());
    row("date", output("date", &["-u", "+%Y-%m-%d"]));
    row("commit", commit());
    row("compiler", output("rustc", &["--version"]));
    row("command", format!("`cargo xtask {}`", std::env::args().skip(1).collect::<Vec<_>>().join(" ")));
    table
}

fn first_line(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().next().unwrap_or("?").to_owned()
}

fn value_of(path: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn processor() -> String {
    value_of("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

fn memory() -> String {
    let kib = value_of("/proc/meminfo", "MemTotal")
        .and_then(|text| text.split_whitespace().next().and_then(|number| number.parse::<f64>().ok()));
    kib.map_or("?".to_owned(), |kib| format!("{:.0} GiB", kib / 1024.0 / 1024.0))
}

/// How many threads of the machine were ready to run in the last minute: other work spoils figures.
fn load() -> String {
    first_line("/proc/loadavg").split(' ').next().unwrap_or("?").to_owned()
}

/// File system and device of a folder.
pub(super) fn disk(folder: &Path) -> String {
    let folder = folder.display().to_string();
    let text = output("df", &["--output=fstype,source", &folder]);
    let line = text.lines().last().unwrap_or("?");
    line.split_whitespace().collect::<Vec<_>>().join(" on ")
}

fn commit() -> String {
    let commit = output("git", &["rev-parse", "--short=12", "HEAD"]);
    // Results of this run are no change.
    let others = [".", ":!docs/benchmarks/results"];
    let changed =
        output("git", &[&["status", "--porcelain", "--untracked-files=no", "--"], &others[..]].concat());
    if matches!(changed.as_str(), "" | "?") { commit } else { format!("{commit} with local changes") }
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(project::root()).output();
    match output {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        _ => "?".to_owned(),
    }
}
