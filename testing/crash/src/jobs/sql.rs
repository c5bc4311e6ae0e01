//! The program's own SQL over a data directory, while the engine runs or after it has ended.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

pub(super) struct Sql {
    pub(super) binary: PathBuf,
    pub(super) data: PathBuf,
}

impl Sql {
    /// The rows of an answer as lines of CSV, without the head; `None`: there is no table yet.
    pub(super) fn lines(&self, sql: &str) -> Result<Option<Vec<String>>> {
        let text = self.ask(sql, "csv")?;
        Ok(text.map(|text| text.lines().skip(1).map(str::to_owned).collect()))
    }

    /// The same as objects.
    pub(super) fn records(&self, sql: &str) -> Result<Option<Vec<Value>>> {
        let Some(text) = self.ask(sql, "ndjson")? else { return Ok(None) };
        let record = |line| serde_json::from_str(line).with_context(|| format!("read a row: {line}"));
        text.lines().map(record).collect::<Result<_>>().map(Some)
    }

    fn ask(&self, sql: &str, format: &str) -> Result<Option<String>> {
        let mut command = Command::new(&self.binary);
        command.args(["sql", sql, "--format", format, "--data-dir"]).arg(&self.data);
        let output = command.output().context("run thalweg sql")?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let is_early = ["no table", "has no folder `jobs`", "is not there"];
            if is_early.iter().any(|text| said.contains(text)) {
                return Ok(None);
            }
            bail!("thalweg sql {sql:?}: {}: {said}", output.status);
        }
        String::from_utf8(output.stdout).context("rows are no text").map(Some)
    }
}
