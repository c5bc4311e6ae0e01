//! Examples on a page: files that go in, a job, and its output.
//!
//! A fenced block whose info string has a second word is part of an example:
//!
//! ```text
//! csv payments.csv     a file of the job's folder, or the input on `stdin`, or requests to source `NAME` (`send:NAME`)
//! yaml job             the job: it runs to its end
//! yaml job check       the job: it is checked, because another system or a file of bytes would be needed
//! json out.ndjson      the output of the job then: a file, or `stdout`
//! ```
//!
//! On the page each block has its file's name above it instead.

/// A job with everything around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    /// Where it is: `source file`.
    pub name: String,
    pub inputs: Vec<Block>,
    pub job: String,
    pub run: Run,
    /// What the job writes, by file.
    pub outputs: Vec<Block>,
}

/// How far an example can be tried without other systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// Until it ends.
    ToItsEnd,
    /// `thalweg check` takes it.
    Check,
}

/// A file of an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    pub file: String,
    pub text: String,
}

enum Part<'a> {
    Line(&'a str),
    /// Language, the words after it, and the lines between the fences.
    Fenced {
        language: &'a str,
        words: Vec<&'a str>,
        text: String,
    },
}

fn parts(page: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(info) = line.strip_prefix("```") else {
            parts.push(Part::Line(line));
            continue;
        };
        let mut words = info.split_whitespace();
        let language = words.next().unwrap_or_default();
        let text = lines.by_ref().take_while(|line| *line != "```").map(|line| format!("{line}\n")).collect();
        parts.push(Part::Fenced { language, words: words.collect(), text });
    }
    parts
}

/// The examples of a page. A block of output belongs to the job before it, any other one to the job after it.
pub(super) fn examples(name: &str, page: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    let mut inputs = Vec::new();
    for part in parts(page) {
        let Part::Fenced { words, text, .. } = part else { continue };
        match words.as_slice() {
            [] => {}
            ["job", rest @ ..] => examples.push(Example {
                name: name.to_owned(),
                inputs: std::mem::take(&mut inputs),
                job: text,
                run: if rest.contains(&"check") { Run::Check } else { Run::ToItsEnd },
                outputs: Vec::new(),
            }),
            [file, ..] => {
                let block = Block { file: (*file).to_owned(), text };
                match examples.last_mut() {
                    Some(example) if is_output(example, file) => example.outputs.push(block),
                    _ => inputs.push(block),
                }
            }
        }
    }
    examples
}

/// The job writes the file: its sinks name it, and nothing has given it to the job.
fn is_output(example: &Example, file: &str) -> bool {
    file == "stdout" || (example.job.contains(file) && !example.inputs.iter().any(|input| input.file == file))
}

/// The page as it is read: blocks have names above them, and plain fences.
pub(super) fn render(page: &str) -> String {
    let mut text = String::new();
    let outputs: Vec<Block> = examples("", page).into_iter().flat_map(|example| example.outputs).collect();
    for part in parts(page) {
        match part {
            Part::Line(line) => text.push_str(&format!("{line}\n")),
            Part::Fenced { language, words, text: block } => {
                if let Some(caption) = words.first().and_then(|word| {
                    let is_output = outputs.iter().any(|output| output.file == *word && output.text == block);
                    caption(word, is_output)
                }) {
                    text.push_str(&format!("{caption}\n\n"));
                }
                text.push_str(&format!("```{language}\n{block}```\n"));
            }
        }
    }
    text
}

fn caption(word: &str, is_output: bool) -> Option<String> {
    match word {
        "job" => None,
        "stdout" => Some("It prints:".to_owned()),
        "stdin" => Some("On standard input:".to_owned()),
        word if word.starts_with("send:") => Some("A client sends:".to_owned()),
        file if is_output => Some(format!("It writes `{file}`:")),
        file => Some(format!("`{file}`:")),
    }
}
