//! The scalar functions, their spellings, and the parts of a timestamp.

use crate::SqlError;
use crate::error::nearest;
use std::ops::Range;

/// A scalar function. Synonyms are one function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Function {
    Abs,
    Acos,
    Asin,
    Atan,
    Atan2,
    Ceil,
    Coalesce,
    Concat,
    Contains,
    Cos,
    DateTrunc,
    Degrees,
    EndsWith,
    Epoch,
    EpochMs,
    EpochNs,
    EpochUs,
    Exp,
    Floor,
    Greatest,
    Haversine,
    If,
    IsFinite,
    IsInf,
    IsNan,
    Least,
    Left,
    Length,
    Ln,
    Log10,
    Lower,
    LeftTrim,
    NullIf,
    Pi,
    Power,
    Radians,
    RegexpExtract,
    RegexpLike,
    Remainder,
    Replace,
    Right,
    Round,
    RightTrim,
    Sign,
    Sin,
    SplitPart,
    Sqrt,
    StartsWith,
    StrPos,
    Substring,
    Tan,
    Trim,
    Upper,
}

/// Every spelling; the first one of a function is canonical.
pub(crate) const NAMES: &[(&str, Function)] = &[
    ("ABS", Function::Abs),
    ("ACOS", Function::Acos),
    ("ASIN", Function::Asin),
    ("ATAN", Function::Atan),
    ("ATAN2", Function::Atan2),
    ("BTRIM", Function::Trim),
    ("CEIL", Function::Ceil),
    ("CEILING", Function::Ceil),
    ("CHARACTER_LENGTH", Function::Length),
    ("CHAR_LENGTH", Function::Length),
    ("COALESCE", Function::Coalesce),
    ("CONCAT", Function::Concat),
    ("CONTAINS", Function::Contains),
    ("COS", Function::Cos),
    ("DATE_TRUNC", Function::DateTrunc),
    ("DEGREES", Function::Degrees),
    ("ENDS_WITH", Function::EndsWith),
    ("EPOCH", Function::Epoch),
    ("EPOCH_MS", Function::EpochMs),
    ("EPOCH_NS", Function::EpochNs),
    ("EPOCH_US", Function::EpochUs),
    ("EXP", Function::Exp),
    ("FLOOR", Function::Floor),
    ("GREATEST", Function::Greatest),
    ("HAVERSINE", Function::Haversine),
    ("IF", Function::If),
    ("IFNULL", Function::Coalesce),
    ("ISFINITE", Function::IsFinite),
    ("ISINF", Function::IsInf),
    ("ISNAN", Function::IsNan),
    ("LCASE", Function::Lower),
    ("LEAST", Function::Least),
    ("LEFT", Function::Left),
    ("LENGTH", Function::Length),
    ("LN", Function::Ln),
    ("LOG10", Function::Log10),
    ("LOWER", Function::Lower),
    ("LTRIM", Function::LeftTrim),
    ("MOD", Function::Remainder),
    ("NULLIF", Function::NullIf),
    ("PI", Function::Pi),
    ("POW", Function::Power),
    ("POWER", Function::Power),
    ("RADIANS", Function::Radians),
    ("REGEXP_EXTRACT", Function::RegexpExtract),
    ("REGEXP_LIKE", Function::RegexpLike),
    ("REPLACE", Function::Replace),
    ("RIGHT", Function::Right),
    ("ROUND", Function::Round),
    ("RTRIM", Function::RightTrim),
    ("SIGN", Function::Sign),
    ("SIN", Function::Sin),
    ("SPLIT_PART", Function::SplitPart),
    ("SQRT", Function::Sqrt),
    ("STARTS_WITH", Function::StartsWith),
    ("STRPOS", Function::StrPos),
    ("SUBSTR", Function::Substring),
    ("SUBSTRING", Function::Substring),
    ("TAN", Function::Tan),
    ("TO_UNIXTIME", Function::Epoch),
    ("TRIM", Function::Trim),
    ("UCASE", Function::Upper),
    ("UPPER", Function::Upper),
];

/// Aggregates of a query, named here so that one inside an expression gets its own message.
const AGGREGATES: &[&str] = &[
    "AVG",
    "COUNT",
    "FIRST",
    "LAST",
    "MAX",
    "MIN",
    "PREV",
    "QUANTILE",
    "STDDEV",
    "STDDEV_POP",
    "STDDEV_SAMP",
    "SUM",
    "VAR",
    "VAR_POP",
    "VAR_SAMP",
    "VARIANCE",
];

impl Function {
    pub(crate) fn parse(name: &str, span: Range<usize>) -> Result<Self, SqlError> {
        let upper = name.to_ascii_uppercase();
        if let Some((_, function)) = NAMES.iter().find(|(known, _)| *known == upper) {
            return Ok(*function);
        }
        let error = SqlError::new(format!("there is no function {name}")).at(span);
        if AGGREGATES.contains(&upper.as_str()) {
            return Err(SqlError {
                message: format!("the aggregate {name} cannot be inside an expression"),
                ..error
            }
            .hint("aggregates are the outputs of a query: SELECT sum(amount * 2) AS total FROM …"));
        }
        Err(match (upper.as_str(), nearest(name, NAMES.iter().map(|(known, _)| *known))) {
            ("POSITION" | "INSTR" | "LOCATE", _) => {
                error.hint("STRPOS(text, wanted) finds a text in another")
            }
            (
                "REGEXP_MATCH" | "REGEXP_MATCHES" | "REGEXP_SUBSTR" | "REGEXP_INSTR" | "REGEXP_COUNT"
                | "REGEXP_REPLACE" | "REGEXP_CONTAINS",
                _,
            ) => error.hint(
                "text ~ 'pattern' or REGEXP_LIKE says whether a text matches, REGEXP_EXTRACT(text, 'pattern'[, group]) what",
            ),
            ("NOW" | "CURRENT_TIMESTAMP" | "RANDOM", _) => error.hint(
                "answers are a function of the log, so an expression has no clock and no chance; use a field",
            ),
            ("LOG", _) => error.hint("LN(x) is the natural, LOG10(x) the decimal logarithm"),
            (_, Some(name)) => error.hint(format!("did you mean {name}?")),
            _ => error,
        })
    }

    /// The canonical spelling.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Function::Trim => "TRIM",
            Function::Length => "LENGTH",
            Function::Lower => "LOWER",
            Function::Power => "POWER",
            Function::Upper => "UPPER",
            Function::Substring => "SUBSTR",
            _ => NAMES
                .iter()
                .find(|(_, function)| *function == self)
                .map(|(name, _)| *name)
                .expect("every function has a name"),
        }
    }
}

/// A unit of `DATE_TRUNC` or a part that `EXTRACT` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    Nanosecond,
    Microsecond,
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
    /// Sunday is 0.
    DayOfWeek,
    /// Monday is 1, Sunday 7.
    IsoDayOfWeek,
    DayOfYear,
    IsoYear,
    Epoch,
}

pub(crate) const PARTS: &[(&str, Part)] = &[
    ("NANOSECOND", Part::Nanosecond),
    ("MICROSECOND", Part::Microsecond),
    ("MILLISECOND", Part::Millisecond),
    ("SECOND", Part::Second),
    ("MINUTE", Part::Minute),
    ("HOUR", Part::Hour),
    ("DAY", Part::Day),
    ("WEEK", Part::Week),
    ("MONTH", Part::Month),
    ("QUARTER", Part::Quarter),
    ("YEAR", Part::Year),
    ("DOW", Part::DayOfWeek),
    ("DAYOFWEEK", Part::DayOfWeek),
    ("ISODOW", Part::IsoDayOfWeek),
    ("DOY", Part::DayOfYear),
    ("DAYOFYEAR", Part::DayOfYear),
    ("ISOYEAR", Part::IsoYear),
    ("ISOWEEK", Part::Week),
    ("EPOCH", Part::Epoch),
];

/// What `EXTRACT` takes, for messages.
pub(crate) const PARTS_EXPECTED: &str = "year, quarter, month, week, day, hour, minute, second, \
    millisecond, microsecond, dow, isodow, doy, isoyear or epoch";

impl Part {
    pub(crate) fn parse(name: &str, span: Range<usize>) -> Result<Self, SqlError> {
        let upper = name.to_ascii_uppercase();
        let singular = upper.strip_suffix('S').unwrap_or(&upper);
        PARTS
            .iter()
            .find(|(known, _)| *known == upper || *known == singular)
            .map(|(_, part)| *part)
            .ok_or_else(|| {
                let error = SqlError::new(format!("{name} is no part of a timestamp"))
                    .at(span)
                    .expected(PARTS_EXPECTED);
                match nearest(name, PARTS.iter().map(|(known, _)| *known)) {
                    Some(near) => error.hint(format!("did you mean {near}?")),
                    None => error,
                }
            })
    }

    pub(crate) fn name(self) -> &'static str {
        PARTS.iter().find(|(_, part)| *part == self).map(|(name, _)| *name).expect("every part has a name")
    }

    /// Whether `DATE_TRUNC` can cut there.
    pub(crate) fn is_unit(self) -> bool {
        !matches!(self, Part::DayOfWeek | Part::IsoDayOfWeek | Part::DayOfYear | Part::IsoYear | Part::Epoch)
    }
}
