//! Tables through their public face: the sink is driven as its job would, files are read with the Parquet crate alone, and
//! sums are recounted from rows.

mod drive;
mod exactly_once;
mod keeping;
mod options;
