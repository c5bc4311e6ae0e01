//! SQL scalar expressions over records: parse, bind, evaluate by columns.
//!
//! ```text
//! text --Expr::parse--> Expr --bind(&Schema)--> Bound --evaluate(&RecordBatch)--> ArrayRef
//! ```
//!
//! A text that may be wrong goes through [`Expr::read`] and [`Expr::check`], which report every mistake and go on: what
//! a mistake leaves without a meaning has a type that goes with everything, so one mistake does not cause another.
//!
//! # The language
//!
//! * Literals: `1`, `1.5`, `1e3`, `'text'`, `TRUE`, `FALSE`, `NULL`, `TIMESTAMP '2024-02-29 13:45:00'`.
//!   A number with a point is a float64 unless it meets a decimal, an integer takes the type that it meets.
//! * Fields by name as the schema writes them (case counts); `"quoted"` where a name is no plain word;
//!   `stream.field`, and `card_1h.spent` for members of an answer.
//! * `+ - * / %`, unary `-`, `||`, `= <> != < <= > >=`, `IS [NOT] NULL | TRUE | FALSE | DISTINCT FROM`,
//!   `AND OR NOT`, `[NOT] BETWEEN`, `[NOT] IN (…)`, `[NOT] LIKE | ILIKE … [ESCAPE '!']`, `~ ~* !~ !~*`, `CASE`,
//!   `CAST`, `TRY_CAST`.
//! * `ABS CEIL FLOOR ROUND SIGN SQRT LN LOG10 EXP POWER MOD ISNAN ISINF ISFINITE`,
//!   `SIN COS TAN ASIN ACOS ATAN ATAN2 RADIANS DEGREES PI HAVERSINE`,
//!   `LOWER UPPER LENGTH SUBSTR LEFT RIGHT TRIM LTRIM RTRIM CONCAT REPLACE SPLIT_PART STARTS_WITH ENDS_WITH CONTAINS
//!   STRPOS REGEXP_LIKE REGEXP_EXTRACT`,
//!   `DATE_TRUNC EXTRACT EPOCH EPOCH_MS EPOCH_US EPOCH_NS`, `COALESCE NULLIF GREATEST LEAST IF`.
//!
//! # Rules that differ between databases
//!
//! * **Nothing fails while a stream runs.** Integer and decimal overflow, division by zero and a cast without
//!   counterpart give null for that row; `CAST` is `TRY_CAST`. Float division by zero is IEEE's ±inf or NaN.
//! * `int / int` is an integer and truncates toward zero, as in PostgreSQL; so does a cast of a float to an integer.
//! * int64 with uint64 gives int64 (null where it does not fit), compared they are exact. Anything with float64
//!   is float64. Decimals with integers are decimals (see `bind::types`).
//! * NaN equals NaN and is above every number, −0 equals 0, as in windows.
//! * Logic is three-valued; a filter takes null as false.
//! * Text is compared by code points. An `ip` and a timestamp compare with text literals, read when bound.
//! * Timestamps are UTC; units that differ meet at the finer one.
//!
//! # Bounds
//!
//! * A text that `||`, `CONCAT` or `REPLACE` makes has at most 64 KiB, or as many bytes as the longest that it is made of;
//!   a constant one 64 KiB. `LOWER` and `UPPER` give at most three times what they get; the others give parts.
//! * All that an expression makes for one record has at most 64 MiB.
//! * A regular expression is constant, at most 4 KiB long and 256 KiB when compiled; there are at most 16 in a text. A text
//!   that is matched has at most 64 KiB.
//! * A pattern that comes with a record has at most 1 MiB; a match takes a bounded number of steps.
//!
//! What goes beyond is null, and [`Bound::values`] names its row. A constant beyond its bound is refused when bound, as
//! is a text that is too long or too deep (see `tokens`).
//!
//! An expression has no clock and no chance: equal records give equal values.

#![deny(unsafe_code)]

mod ast;
mod bind;
mod bound;
mod error;
mod eval;
mod function;
mod mistakes;
mod parse;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod tokens;

pub use ast::{Expr, Slot};
pub use bind::{Checked, Qualifier};
pub use bound::{Bound, Values};
pub use error::{SqlError, nearest};
pub use eval::size::{Longest, TextSizes};
pub use mistakes::{Mistakes, SqlErrors};
pub use tokens::{MAX_DEPTH, MAX_OPERATORS, MAX_TEXT, Spanned, tokenize};
