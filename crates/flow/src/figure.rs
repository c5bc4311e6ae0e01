//! Figures: what is counted and measured, with all that is said of it in one place.
//!
//! [`figures!`](crate::figures) makes a group of them: the struct that is counted in, how those of several tasks make one,
//! and a table with name, unit, kind and meaning. The server makes `/metrics`, the JSON of jobs, `/openapi.json` and
//! `docs/metrics.md` of the tables, so a new figure is a field here and the place where it is counted.
//!
//! Not here: where the groups of a job come from, and how they are shown.

use std::time::Duration;

use thalweg_types::Micros;

/// What is said of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    /// Its key in JSON; empty where it is not shown there.
    pub key: &'static str,
    /// Its family in `/metrics`, perhaps with a label of its own, `thalweg_a_total{reason="b"}`; empty where it has none.
    pub family: &'static str,
    pub kind: Kind,
    pub unit: Unit,
    /// A sentence.
    pub meaning: &'static str,
    /// What to do when it rises, in Markdown; empty where there is nothing to do.
    pub advice: &'static str,
    /// Its type in JSON.
    pub json: Json,
}

/// How a figure behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows.
    Counter,
    Gauge,
    Histogram,
}

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// How many there are.
    Count,
    Bytes,
    Seconds,
    /// 1 or 0.
    Flag,
}

/// The type of a figure in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Json {
    pub is_whole: bool,
    pub is_flag: bool,
    pub may_be_null: bool,
}

/// The value of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    Absent,
    Whole(u64),
    Real(f64),
    Flag(bool),
}

/// A group of figures.
pub trait Figures: Sized {
    /// What the group is called in `/openapi.json`.
    const NAME: &'static str;
    const MEANING: &'static str;
    const FIGURES: &'static [Figure];

    /// In the order of [`Figures::FIGURES`].
    fn numbers(&self) -> Vec<Number>;
}

impl Figure {
    /// For figures that are in no group.
    pub const fn new(
        family: &'static str,
        kind: Kind,
        unit: Unit,
        meaning: &'static str,
        advice: &'static str,
    ) -> Self {
        let json = Json { is_whole: true, is_flag: false, may_be_null: false };
        Self { key: "", family, kind, unit, meaning, advice, json }
    }

    /// The family without its label.
    pub fn base(&self) -> &'static str {
        self.family.split('{').next().unwrap_or_default()
    }

    /// Name and value of the family's own label.
    pub fn label(&self) -> Option<(&'static str, &'static str)> {
        let (_, label) = self.family.split_once('{')?;
        label.strip_suffix("\"}")?.split_once("=\"")
    }

    /// The meaning without the spaces of a comment.
    pub fn meaning(&self) -> &'static str {
        self.meaning.trim()
    }
}

impl Kind {
    /// As Prometheus calls it.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// A type of figures, and how those of two tasks make one.
pub trait Value: Copy + Ord {
    const JSON: Json;

    fn number(self) -> Number;
    fn sum(self, other: Self) -> Self;

    fn most(self, other: Self) -> Self {
        self.max(other)
    }

    fn least(self, other: Self) -> Self {
        self.min(other)
    }
}

impl Value for u64 {
    const JSON: Json = Json { is_whole: true, is_flag: false, may_be_null: false };

    fn number(self) -> Number {
        Number::Whole(self)
    }

    fn sum(self, other: Self) -> Self {
        self + other
    }
}

/// Seconds.
impl Value for Duration {
    const JSON: Json = Json { is_whole: false, is_flag: false, may_be_null: false };

    fn number(self) -> Number {
        Number::Real(self.as_secs_f64())
    }

    fn sum(self, other: Self) -> Self {
        self.saturating_add(other)
    }
}

/// Seconds that may be negative, in microseconds.
impl Value for Micros {
    const JSON: Json = Json { is_whole: false, is_flag: false, may_be_null: false };

    fn number(self) -> Number {
        Number::Real(self as f64 / 1e6)
    }

    fn sum(self, other: Self) -> Self {
        self.saturating_add(other)
    }
}

impl Value for bool {
    const JSON: Json = Json { is_whole: false, is_flag: true, may_be_null: false };

    fn number(self) -> Number {
        Number::Flag(self)
    }

    fn sum(self, other: Self) -> Self {
        self || other
    }
}

/// None adds nothing, and is below every number.
impl<V: Value> Value for Option<V> {
    const JSON: Json = Json { may_be_null: true, ..V::JSON };

    fn number(self) -> Number {
        self.map_or(Number::Absent, Value::number)
    }

    fn sum(self, other: Self) -> Self {
        self.zip(other).map(|(one, other)| one.sum(other)).or(self).or(other)
    }
}

/// Makes a group of figures: a struct, and its table. Of each: meaning, field, key in JSON if it is another, type, how two
/// make one (`sum`, `most`, `least`), kind, unit, family in `/metrics`, and what to do when it rises.
///
/// ```
/// thalweg_flow::figures! {
///     /// What a cook has done.
///     pub struct CookCounts as "Cook" {
///         /// Pots on the stove.
///         pots: u64, most, Gauge, Count, "thalweg_cook_pots", "Open a window";
///         /// Soup that boiled over.
///         over as "boiled_over": u64, sum, Counter, Bytes, "", "";
///     }
/// }
/// let both = CookCounts { pots: 1, over: 2 }.plus(CookCounts { pots: 3, over: 4 });
/// assert_eq!(both, CookCounts { pots: 3, over: 6 });
/// ```
#[macro_export]
macro_rules! figures {
    (@key $name:ident) => { stringify!($name) };
    (@key $name:ident $key:literal) => { $key };
    (
        $(#[doc = $doc:literal])+
        $visible:vis struct $group:ident as $shown:literal {
            $(
                $(#[doc = $meaning:literal])+
                $name:ident $(as $key:literal)?: $type:ty, $merge:ident, $kind:ident, $unit:ident, $family:literal,
                $advice:literal;
            )+
        }
    ) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        $visible struct $group {
            $($(#[doc = $meaning])+ pub $name: $type,)+
        }

        impl $group {
            /// Of two tasks together.
            #[must_use]
            #[allow(dead_code, reason = "not every group is of tasks")]
            $visible fn plus(self, other: Self) -> Self {
                Self { $($name: $crate::figure::Value::$merge(self.$name, other.$name),)+ }
            }
        }

        impl $crate::figure::Figures for $group {
            const NAME: &'static str = $shown;
            const MEANING: &'static str = concat!($($doc),+);
            const FIGURES: &'static [$crate::figure::Figure] = &[$(
                $crate::figure::Figure {
                    key: $crate::figures!(@key $name $($key)?),
                    family: $family,
                    kind: $crate::figure::Kind::$kind,
                    unit: $crate::figure::Unit::$unit,
                    meaning: concat!($($meaning),+),
                    advice: $advice,
                    json: <$type as $crate::figure::Value>::JSON,
                },
            )+];

            fn numbers(&self) -> Vec<$crate::figure::Number> {
                vec![$($crate::figure::Value::number(self.$name),)+]
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::figures! {
        /// For the test.
        struct Loss as "Loss" {
            /// Things that
            /// were lost.
            lost: u64, sum, Counter, Count, "thalweg_lost_total{reason=\"fire\"}", "";
            /// Their age.
            age as "age_seconds": Option<Duration>, least, Gauge, Seconds, "thalweg_age_seconds", "";
            /// Whether they burn.
            burns: bool, most, Gauge, Flag, "", "";
        }
    }

    #[test]
    fn a_group_has_its_figures_in_order() {
        let [lost, age, burns] = Loss::FIGURES else { panic!("three") };
        assert_eq!((lost.base(), lost.label()), ("thalweg_lost_total", Some(("reason", "fire"))));
        assert_eq!((lost.key, lost.meaning()), ("lost", "Things that were lost."));
        assert_eq!((age.key, age.label(), age.json.may_be_null), ("age_seconds", None, true));
        assert!(burns.json.is_flag && !age.json.is_whole);
        let one = Loss { lost: 2, age: Some(Duration::from_millis(1500)), burns: false };
        let both = one.plus(Loss { lost: 3, age: Some(Duration::from_millis(500)), burns: true });
        assert_eq!(both.numbers(), [Number::Whole(5), Number::Real(0.5), Number::Flag(true)]);
        assert_eq!(one.plus(Loss::default()).age, None, "the least of a number and none is none");
    }
}
