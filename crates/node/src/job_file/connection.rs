//! A file that says how the brokers of a cluster are reached: the keys of a sink `kafka` for that, and nothing else.

use thalweg_connect::kafka::{CONNECTION, check_connection};
use thalweg_connect::{Options, Reach};

use crate::diagnostic::{Diagnostics, SourceText, Texts};

use super::section::{Report, Section};
use super::tree;

/// Reads such a file, which is called `name` in its mistakes.
///
/// # Errors
/// All mistakes, in the order of the file.
pub(crate) fn read(name: &str, text: &str) -> Result<Options, Diagnostics> {
    let texts = Texts::new(vec![SourceText { name: name.to_owned(), text: text.to_owned() }]);
    let root = tree::parse(&texts, 0)?;
    let report = Report::new(texts, Reach::anything());
    let section = Section::of(&report, "the file of options".to_owned(), root.span, &root);
    let options = section.map(|section| {
        section.refuse_others(CONNECTION.iter().map(|spec| spec.key));
        let told = report.count();
        let options = section.options(CONNECTION);
        if report.count() == told {
            section.report_mistakes(check_connection(&options));
        }
        options
    });
    let (mistakes, _) = report.finish();
    match options {
        Some(options) if mistakes.0.is_empty() => Ok(options),
        _ => Err(mistakes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_right_is_read_and_each_mistake_has_its_line() {
        let options = read("k.yaml", "tls: true\nsasl: scram-sha-512\nuser: u\npassword: env:P\n").unwrap();
        assert_eq!((options.text("user"), options.flag("tls")), (Some("u"), Some(true)));
        assert!(read("k.yaml", "{}").is_ok());
        for (text, said) in [
            ("tls: true\nuzer: u\n", "k.yaml:2:1"),
            ("sasl: scram-sha-512\n", "needs \"user\", got none"),
            ("sasl: gssapi\n", "scram-sha-256"),
            ("brokers: a:9092\n", "brokers"),
            ("password: secret\nsasl: plain\nuser: u\n", "is no reference to a secret"),
            ("properties: { acks: \"1\" }\n", "is not for a job file"),
            ("- tls\n", "the file of options"),
            ("tls: [", "k.yaml:1"),
        ] {
            let mistakes = read("k.yaml", text).unwrap_err().to_string();
            assert!(mistakes.contains(said), "{text}: {mistakes}");
            assert!(!mistakes.contains("password: secret"), "{mistakes}");
        }
    }
}
