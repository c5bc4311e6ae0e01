//! `thalweg sql` in a build without SQL (feature `sql`): it takes anything, and says how to get a build that has it.

use std::ffi::OsString;

#[derive(clap::Args)]
pub(crate) struct Sql {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    pub(crate) _anything: Vec<OsString>,
}
