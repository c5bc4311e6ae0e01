//! Reading one mapping of a job file: typed values out, mistakes into the report.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;

use thalweg_connect::reach::Denied;
use thalweg_connect::secret::BadReference;
use thalweg_connect::{Mistake, OptionKind, OptionSpec, OptionValue, Options, Reach, SecretRef};
use thalweg_expr::{SqlError, SqlErrors};
use thalweg_types::{Micros, parse_duration, parse_size};

use crate::diagnostic::{Diagnostic, Diagnostics, Span, Texts, nearest, one_of};

use super::keys::KeySpec;
use super::tree::{Key, Node, Scalar, Style, Value, place_in_scalar};

/// Collects mistakes while the checks go on.
pub(crate) struct Report {
    texts: Texts,
    found: RefCell<Vec<(Span, Diagnostic)>>,
    reach: Reach,
    /// Places where a secret may be; no mistake shows them.
    hidden: RefCell<Vec<Span>>,
}

impl Report {
    pub(crate) fn new(texts: Texts, reach: Reach) -> Self {
        Self { texts, found: RefCell::default(), reach, hidden: RefCell::default() }
    }

    pub(crate) fn at(&self, span: Span, message: impl Into<String>) -> Pending<'_> {
        Pending { report: self, span, diagnostic: Diagnostic::new(&self.texts, span, message) }
    }

    /// Shows this part of the text in no mistake, as it may be a secret.
    fn hide(&self, span: Span) {
        self.hidden.borrow_mut().push(span);
    }

    /// How many mistakes there are so far, warnings among them.
    pub(crate) fn count(&self) -> usize {
        self.found.borrow().len()
    }

    /// The mistakes in SQL text in `node`.
    pub(crate) fn sql(&self, node: &Node, what: &str, errors: &SqlErrors) {
        errors.iter().for_each(|error| self.sql_mistake(node, what, error));
    }

    fn sql_mistake(&self, node: &Node, what: &str, error: &SqlError) {
        let span = match &error.span {
            Some(range) => self.span_in(node, range.clone()),
            None => node.span,
        };
        let mut pending = self.at(span, format!("{what}: {}", error.message));
        if let Some(expected) = &error.expected {
            pending = pending.expected(expected);
        }
        if let Some(hint) = &error.hint {
            pending = pending.hint(hint);
        }
        pending.report();
    }

    /// Bytes `range` of a scalar's meaning as a place in the file.
    fn span_in(&self, node: &Node, range: Range<usize>) -> Span {
        let Value::Scalar(scalar) = &node.value else { return node.span };
        let text = &self.texts.get(node.span.text).text;
        let Some(raw) = text.get(node.span.start..node.span.end) else { return node.span };
        let start = place_in_scalar(raw, scalar, range.start);
        let last = scalar.text[..range.end.min(scalar.text.len())].char_indices().next_back();
        let end = match last {
            Some((last, c)) if last >= range.start => place_in_scalar(raw, scalar, last) + c.len_utf8(),
            _ => start + 1,
        };
        Span {
            text: node.span.text,
            start: node.span.start + start,
            end: node.span.start + end.max(start + 1),
        }
    }

    /// Mistakes and warnings, each in the order of the texts.
    pub(crate) fn finish(self) -> (Diagnostics, Vec<Diagnostic>) {
        let mut found = self.found.into_inner();
        let hidden = self.hidden.into_inner();
        for (_, diagnostic) in &mut found {
            hidden.iter().for_each(|span| diagnostic.hide(&self.texts, *span));
        }
        found.sort_by_key(|(span, _)| (span.text, span.start));
        found.dedup_by(|a, b| a.1 == b.1);
        let (warnings, errors): (Vec<_>, Vec<_>) =
            found.into_iter().map(|(_, diagnostic)| diagnostic).partition(|diagnostic| diagnostic.warning);
        (Diagnostics(errors), warnings)
    }
}

/// A mistake that has not been reported yet.
#[must_use = "a mistake counts once `report` is called"]
pub(crate) struct Pending<'a> {
    report: &'a Report,
    span: Span,
    diagnostic: Diagnostic,
}

impl Pending<'_> {
    /// The hint of an error, if it has one.
    pub(crate) fn hint_of(self, error: &thalweg_types::Error) -> Self {
        match error.hint() {
            Some(hint) => self.hint(hint),
            None => self,
        }
    }

    pub(crate) fn expected(mut self, expected: impl Into<String>) -> Self {
        self.diagnostic = self.diagnostic.expected(expected);
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.diagnostic = self.diagnostic.hint(hint);
        self
    }

    /// Adds the hint that `written` was meant to be one of `names`, if one of them is near.
    pub(crate) fn did_you_mean<'n>(self, written: &str, names: impl IntoIterator<Item = &'n str>) -> Self {
        match nearest(written, names) {
            Some(name) => self.hint(format!("did you mean {name:?}?")),
            None => self,
        }
    }

    pub(crate) fn warning(mut self) -> Self {
        self.diagnostic.warning = true;
        self
    }

    pub(crate) fn report(self) {
        self.report.found.borrow_mut().push((self.span, self.diagnostic));
    }
}

/// One mapping and what it describes, such as `source "payments"`.
#[derive(Clone)]
pub(crate) struct Section<'a> {
    pub(crate) report: &'a Report,
    pub(crate) what: String,
    /// Of the key that names it, for mistakes about missing keys.
    pub(crate) span: Span,
    entries: &'a [(Key, Node)],
}

impl<'a> Section<'a> {
    /// `None`, and a mistake reported, where the node is no mapping.
    pub(crate) fn of(
        report: &'a Report,
        what: impl Into<String>,
        span: Span,
        node: &'a Node,
    ) -> Option<Self> {
        let what = what.into();
        match &node.value {
            Value::Map(entries) => Some(Self { report, what, span, entries }),
            _ if node.is_null() => Some(Self { report, what, span, entries: &[] }),
            _ => {
                report
                    .at(node.span, format!("{what} is {}", node.describe()))
                    .expected("a mapping of keys and values")
                    .report();
                None
            }
        }
    }

    pub(crate) fn entries(&self) -> &'a [(Key, Node)] {
        self.entries
    }

    /// The value of a key; a key without a value counts as absent.
    pub(crate) fn get(&self, key: &str) -> Option<&'a Node> {
        self.entries.iter().find(|(k, _)| k.text == key).map(|(_, node)| node).filter(|node| !node.is_null())
    }

    /// Reports the mistakes that a plug-in finds in its values.
    pub(crate) fn report_error(&self, key: &str, error: &thalweg_types::Error) {
        self.report
            .at(self.key_span(key), format!("{}: {}", self.what, error.chain()))
            .hint_of(error)
            .report();
    }

    /// As [`Section::report_error`], for the mistakes of a format: at the option that it names first, as in
    /// `time_zone: expected …`.
    pub(crate) fn report_format_error(&self, error: &thalweg_types::Error) {
        let named = error.message().split_once(':').map(|(key, _)| key);
        self.report_error(named.filter(|key| self.get(key).is_some()).unwrap_or("format"), error);
    }

    /// Reports the mistakes that a plug-in's check finds in the values of its keys.
    pub(crate) fn report_mistakes(&self, mistakes: Vec<Mistake>) {
        for Mistake { key, error } in mistakes {
            // `rollups.hour` is the section `hour` of `rollups`.
            let (key, within) =
                key.split_once('.').map_or((key.as_str(), None), |(key, within)| (key, Some(within)));
            let place = self.get(key).map(|node| match (&node.value, within) {
                (Value::Map(entries), Some(within)) => {
                    entries.iter().find(|(key, _)| key.text == within).map_or(node.span, |(key, _)| key.span)
                }
                _ => node.span,
            });
            let span = place.unwrap_or(self.span);
            let message = format!("{key:?} of {}: {}", self.what, error.chain());
            self.report.at(span, message).hint_of(&error).report();
        }
    }

    pub(crate) fn key_span(&self, key: &str) -> Span {
        self.entries.iter().find(|(k, _)| k.text == key).map_or(self.span, |(k, _)| k.span)
    }

    /// The value of a key that has to be there.
    pub(crate) fn require(&self, key: &str, expected: &str) -> Option<&'a Node> {
        let node = self.get(key);
        if node.is_none() {
            let message = match self.entries.iter().any(|(k, _)| k.text == key) {
                true => format!("{} has nothing after {key:?}", self.what),
                false => format!("{} lacks {key:?}", self.what),
            };
            self.report.at(self.key_span(key), message).expected(expected).report();
        }
        node
    }

    /// Reports every key that is not among `known`.
    pub(crate) fn refuse_others<'k>(&self, known: impl IntoIterator<Item = &'k str>) {
        let known: Vec<&str> = known.into_iter().collect();
        for (key, _) in self.entries {
            if !known.contains(&key.text.as_str()) {
                self.report
                    .at(key.span, format!("{} has no key {:?}", self.what, key.text))
                    .expected(one_of(known.iter().copied()))
                    .did_you_mean(&key.text, known.iter().copied())
                    .report();
            }
        }
    }

    pub(crate) fn refuse_other_than(&self, specs: &[KeySpec]) {
        self.refuse_others(specs.iter().map(|spec| spec.key));
    }

    /// The `type` of the section. There is a sink called `null`, so YAML's null is that name here.
    pub(crate) fn kind(&self, expected: &str) -> Option<(String, Span)> {
        let written = self.entries.iter().find(|(key, _)| key.text == "type").map(|(_, node)| node);
        if let Some(Node { span, value: Value::Scalar(scalar) }) = written
            && scalar.text == "null"
        {
            return Some((scalar.text.clone(), *span));
        }
        self.require("type", expected)?;
        self.name("type")
    }

    pub(crate) fn name(&self, key: &str) -> Option<(String, Span)> {
        let node = self.get(key)?;
        let scalar = self.scalar(key, node, "a name")?;
        Some((scalar.text.clone(), node.span))
    }

    pub(crate) fn scalar(&self, key: &str, node: &'a Node, expected: &str) -> Option<&'a Scalar> {
        match &node.value {
            Value::Scalar(scalar) => Some(scalar),
            _ => {
                self.report
                    .at(node.span, format!("{key:?} of {} is {}", self.what, node.describe()))
                    .expected(expected)
                    .report();
                None
            }
        }
    }

    pub(crate) fn duration(&self, key: &str) -> Option<Micros> {
        match self.value(key, OptionKind::Duration)? {
            OptionValue::Duration(micros) => Some(micros),
            _ => None,
        }
    }

    /// A duration, or `Some(None)` if the value is `word`, which means no duration.
    pub(crate) fn duration_or(&self, key: &str, word: &str) -> Option<Option<Micros>> {
        match self.get(key).map(|node| &node.value) {
            Some(Value::Scalar(scalar)) if scalar.text.trim() == word => Some(None),
            _ => match self.value_or(key, OptionKind::Duration, Some(word))? {
                OptionValue::Duration(micros) => Some(Some(micros)),
                _ => None,
            },
        }
    }

    pub(crate) fn size(&self, key: &str) -> Option<u64> {
        match self.value(key, OptionKind::Size)? {
            OptionValue::Size(bytes) => Some(bytes),
            _ => None,
        }
    }

    pub(crate) fn integer(&self, key: &str, min: i64, max: i64) -> Option<i64> {
        match self.value(key, OptionKind::Integer { min, max })? {
            OptionValue::Integer(number) => Some(number),
            _ => None,
        }
    }

    pub(crate) fn choice(&self, key: &str, choices: &'static [&'static str]) -> Option<String> {
        match self.value(key, OptionKind::Choice(choices))? {
            OptionValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Every option that is given, and a mistake for each that is required and is not.
    pub(crate) fn options(&self, specs: &[OptionSpec]) -> Options {
        let mut options = BTreeMap::new();
        for spec in specs {
            if spec.required {
                self.require(spec.key, &describe_kind(spec.kind));
            }
            if let Some(value) = self.value(spec.key, spec.kind) {
                options.insert(spec.key.to_owned(), value);
            }
        }
        Options(options)
    }

    pub(crate) fn value(&self, key: &str, kind: OptionKind) -> Option<OptionValue> {
        self.value_or(key, kind, None)
    }

    /// The value of a key which may also be a word; that was looked for before.
    fn value_or(&self, key: &str, kind: OptionKind, word: Option<&str>) -> Option<OptionValue> {
        let node = self.get(key)?;
        if let OptionKind::Sections(specs) = kind {
            return self.sections(key, node, specs);
        }
        let value = match kind {
            OptionKind::Path | OptionKind::PathList => return self.paths(key, node, kind),
            OptionKind::Secret => return self.secret(key, node),
            OptionKind::Url => {
                self.hide_password(node);
                read_value(node, OptionKind::Text)
            }
            _ => read_value(node, kind),
        };
        match value {
            Ok(value) => Some(value),
            Err(hint) => {
                let mut pending = self
                    .report
                    .at(node.span, format!("{key:?} of {} is {}", self.what, node.describe()))
                    .expected(match word {
                        Some(word) => format!("{}, or {word}", describe_kind(kind)),
                        None => describe_kind(kind),
                    });
                if let (OptionKind::Choice(choices), Value::Scalar(scalar)) = (kind, &node.value) {
                    pending = pending.did_you_mean(&scalar.text, choices.iter().copied());
                }
                if let Some(hint) = hint {
                    pending = pending.hint(hint);
                }
                pending.report();
                None
            }
        }
    }
}

/// What reaches out of the job: asked for here, so that nothing else has to.
impl Section<'_> {
    /// A path or a list of them.
    fn paths(&self, key: &str, node: &Node, kind: OptionKind) -> Option<OptionValue> {
        let nodes: Vec<&Node> = match (kind, &node.value) {
            (OptionKind::PathList, Value::List(items)) => items.iter().collect(),
            _ => vec![node],
        };
        let mut paths = Vec::new();
        for node in &nodes {
            match text_of(node).map(|text| self.report.reach.path(&text)) {
                Ok(Ok(path)) => paths.push(path),
                Ok(Err(denied)) => self.denied(key, node, denied),
                Err(hint) => {
                    let what = format!("{key:?} of {} is {}", self.what, node.describe());
                    let mut pending = self.report.at(node.span, what).expected(describe_kind(kind));
                    if let Some(hint) = hint {
                        pending = pending.hint(hint);
                    }
                    pending.report();
                }
            }
        }
        if paths.len() < nodes.len() {
            return None;
        }
        match kind {
            OptionKind::PathList => Some(OptionValue::Paths(paths)),
            _ => paths.pop().map(OptionValue::Path),
        }
    }

    fn secret(&self, key: &str, node: &Node) -> Option<OptionValue> {
        let parsed = match &node.value {
            Value::Scalar(scalar) => SecretRef::parse(&scalar.text, &self.report.reach),
            _ => Err(BadReference::Malformed),
        };
        match parsed {
            Ok(reference) => return Some(OptionValue::Secret(reference)),
            Err(BadReference::Denied(denied)) => self.denied(key, node, denied),
            Err(BadReference::Malformed) => {
                self.report.hide(node.span);
                self.report
                    .at(node.span, format!("{key:?} of {} is no reference to a secret", self.what))
                    .expected(SecretRef::EXPECTED)
                    .hint(SecretRef::HINT)
                    .report();
            }
        }
        None
    }

    fn denied(&self, key: &str, node: &Node, denied: Denied) {
        self.report
            .at(node.span, format!("{key:?} of {} names {}", self.what, denied.what))
            .hint(denied.hint)
            .report();
    }

    /// A URL with anything in it that may be a password: its reader reports mistakes in other words.
    fn hide_password(&self, node: &Node) {
        if let Value::Scalar(scalar) = &node.value
            && scalar.text.contains(['@', '?', '='])
        {
            self.report.hide(node.span);
        }
    }
}

impl Section<'_> {
    /// Names, and for each a section with the same keys.
    fn sections(&self, key: &str, node: &Node, specs: &'static [OptionSpec]) -> Option<OptionValue> {
        let all = Section::of(self.report, format!("{key:?} of {}", self.what), self.key_span(key), node)?;
        let told = self.report.count();
        let mut sections = Vec::new();
        for (name, node) in all.entries {
            if !is_name(&name.text) {
                self.report
                    .at(name.span, format!("{key:?} of {} has the name {:?}", self.what, name.text))
                    .expected("letters, digits, _ and -, beginning with a letter or _")
                    .report();
            }
            let what = format!("{:?} in {key:?} of {}", name.text, self.what);
            let Some(section) = Section::of(self.report, what, name.span, node) else { continue };
            section.refuse_others(specs.iter().map(|spec| spec.key));
            sections.push((name.text.clone(), section.options(specs)));
        }
        (self.report.count() == told).then_some(OptionValue::Sections(sections))
    }
}

/// What values of a kind look like.
pub(crate) fn describe_kind(kind: OptionKind) -> String {
    match kind {
        OptionKind::Text => "a text".to_owned(),
        OptionKind::Path => "a path".to_owned(),
        OptionKind::PathList => "a path or a list of paths".to_owned(),
        OptionKind::Secret => SecretRef::EXPECTED.to_owned(),
        OptionKind::Url => "a URL".to_owned(),
        OptionKind::Bool => "true or false".to_owned(),
        OptionKind::Integer { min, max: i64::MAX } => format!("an integer from {min}"),
        OptionKind::Integer { min, max } if min == max => format!("{min}"),
        OptionKind::Integer { min, max } => format!("an integer from {min} to {max}"),
        OptionKind::Number => "a number".to_owned(),
        OptionKind::Duration => "a duration such as 500ms, 5s, 10m, 1h or 7d".to_owned(),
        OptionKind::Size => "a size such as 64KiB, 8MiB or 1GiB".to_owned(),
        OptionKind::Choice(choices) => one_of(choices.iter().copied()),
        OptionKind::TextList => "a text or a list of texts".to_owned(),
        OptionKind::TextLists => "a text, a list of texts, or names with these".to_owned(),
        OptionKind::Sections(_) => "names, and keys for each".to_owned(),
    }
}

/// The value that a node means where `kind` is expected; otherwise perhaps a hint.
fn read_value(node: &Node, kind: OptionKind) -> Result<OptionValue, Option<String>> {
    if let (OptionKind::TextList | OptionKind::TextLists, Value::List(items)) = (kind, &node.value) {
        let texts: Option<Vec<String>> = items.iter().map(|item| text_of(item).ok()).collect();
        return texts.map(OptionValue::List).ok_or(None);
    }
    if let (OptionKind::TextLists, Value::Map(entries)) = (kind, &node.value) {
        let list = |(name, node): &(Key, Node)| match read_value(node, OptionKind::TextList)? {
            OptionValue::List(texts) => Ok((name.text.clone(), texts)),
            _ => Err(None),
        };
        return entries.iter().map(list).collect::<Result<_, _>>().map(OptionValue::Lists);
    }
    let Value::Scalar(scalar) = &node.value else { return Err(None) };
    let plain = scalar.style == Style::Plain;
    match kind {
        OptionKind::Text => text_of(node).map(OptionValue::Text),
        OptionKind::TextList | OptionKind::TextLists => {
            text_of(node).map(|text| OptionValue::List(vec![text]))
        }
        OptionKind::Choice(choices) => match choices.contains(&scalar.text.as_str()) {
            true => Ok(OptionValue::Text(scalar.text.clone())),
            false => Err(None),
        },
        OptionKind::Bool => match (plain, scalar.text.as_str()) {
            (true, "true") => Ok(OptionValue::Bool(true)),
            (true, "false") => Ok(OptionValue::Bool(false)),
            (false, "true" | "false") => Err(Some("leave out the quotes".to_owned())),
            (_, text) => Err(match text.to_lowercase().as_str() {
                "yes" | "on" | "y" | "true" | "1" => Some("write true".to_owned()),
                "no" | "off" | "n" | "false" | "0" => Some("write false".to_owned()),
                _ => None,
            }),
        },
        OptionKind::Integer { min, max } => match scalar.text.parse::<i64>() {
            Ok(_) if !plain => Err(Some("leave out the quotes".to_owned())),
            Ok(number) if (min..=max).contains(&number) => Ok(OptionValue::Integer(number)),
            Ok(_) => Err(None),
            Err(_) => Err(match scalar.text.replace(['_', ','], "").parse::<i64>() {
                Ok(number) => Some(format!("write {number}")),
                Err(_) => None,
            }),
        },
        OptionKind::Number => match scalar.text.parse::<f64>() {
            Ok(_) if !plain => Err(Some("leave out the quotes".to_owned())),
            Ok(number) if number.is_finite() => Ok(OptionValue::Number(number)),
            _ => Err(None),
        },
        OptionKind::Duration => match parse_duration(&scalar.text) {
            Ok(micros) => Ok(OptionValue::Duration(micros)),
            Err(_) => Err(match scalar.text.parse::<i64>() {
                Ok(0) => Some("write 0s".to_owned()),
                Ok(number) if number > 0 => Some(format!("add a unit, such as {number}s")),
                Ok(_) => Some("a duration is not negative".to_owned()),
                Err(_) => spelled_duration(&scalar.text).map(|text| format!("write {text}")),
            }),
        },
        OptionKind::Size => match (parse_size(&scalar.text), scalar.is_number()) {
            (Ok(bytes), _) => Ok(OptionValue::Size(bytes)),
            (Err(_), _) => Err(spelled_size(&scalar.text).map(|text| format!("write {text}"))),
        },
        // Read by `Section::value`, which knows what may be named.
        OptionKind::Sections(_)
        | OptionKind::Path
        | OptionKind::PathList
        | OptionKind::Secret
        | OptionKind::Url => Err(None),
    }
}

/// A text that YAML does not take for something else.
fn text_of(node: &Node) -> Result<String, Option<String>> {
    match &node.value {
        Value::Scalar(scalar) if scalar.is_number() || scalar.is_bool() => {
            Err(Some(format!("put it in quotes where the text {:?} is meant", scalar.text)))
        }
        Value::Scalar(scalar) if scalar.is_null() => Err(None),
        Value::Scalar(scalar) => Ok(scalar.text.clone()),
        _ => Err(None),
    }
}

/// `5 seconds`, `1 hour`, `2min` as we write it.
fn spelled_duration(text: &str) -> Option<String> {
    let text = text.trim().to_lowercase();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let unit = match text[digits..].trim() {
        "ms" | "milli" | "millis" | "millisecond" | "milliseconds" => "ms",
        "s" | "sec" | "secs" | "second" | "seconds" => "s",
        "m" | "min" | "mins" | "minute" | "minutes" => "m",
        "h" | "hr" | "hrs" | "hour" | "hours" => "h",
        "d" | "day" | "days" => "d",
        "w" | "week" | "weeks" => "w",
        _ => return None,
    };
    let written = format!("{}{unit}", &text[..digits]);
    parse_duration(&written).ok().map(|_| written)
}

/// `64k`, `8 mb`, `1G` as we write it.
fn spelled_size(text: &str) -> Option<String> {
    let text = text.trim().to_lowercase();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let unit = match text[digits..].trim() {
        "k" | "kb" | "kib" => "KiB",
        "m" | "mb" | "mib" => "MiB",
        "g" | "gb" | "gib" => "GiB",
        "t" | "tb" | "tib" => "TiB",
        _ => return None,
    };
    let written = format!("{}{unit}", &text[..digits]);
    parse_size(&written).ok().map(|_| written)
}

/// Whether a text is a name: a letter or `_`, then letters, digits, `_` and `-`.
pub(crate) fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}
