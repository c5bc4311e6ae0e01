//! A build with the back ends of [`thalweg_state_remote`].

use std::time::Duration;

use thalweg_connect::secret::Secret;
use thalweg_state::Interrupt;
use thalweg_state_remote::{Settings, TABLE, TIMEOUT, check_table, check_url};
use thalweg_types::Error;

use crate::job_file::RemoteSettings;

pub use thalweg_state_remote::Kind;
pub(crate) use thalweg_state_remote::{Remote, describe_in};

/// Connects to the store of a job. `interrupt` ends every wait for it. With `begins_anew`, state there that is not of
/// this data directory is deleted.
///
/// # Errors
/// A secret that is missing; a store that cannot be reached or is not fit to keep state.
pub(crate) fn connect(
    remote: &RemoteSettings,
    interrupt: Interrupt,
    begins_anew: bool,
) -> Result<Remote, Error> {
    Ok(Remote::connect(&settings_of(remote)?, interrupt)?.begin_anew(begins_anew))
}

/// With the password looked up.
fn settings_of(remote: &RemoteSettings) -> Result<Settings, Error> {
    let named = |error: Error| error.context("state.url");
    let mut settings = Settings::new(remote.kind, &remote.url).map_err(named)?;
    settings.user.clone_from(&remote.user);
    let password = remote.password.as_ref().map(|reference| Secret::look_up("state.password", reference));
    settings.password = password.transpose()?.map(|password| password.reveal().to_owned());
    settings.table = remote.table.clone().unwrap_or_else(|| TABLE.to_owned());
    settings.timeout = remote.timeout.unwrap_or(TIMEOUT);
    Ok(settings)
}

/// Mistakes in the settings of a store, by key. Nothing is looked up, and the store is not contacted.
pub(crate) fn mistakes(remote: &RemoteSettings) -> Vec<(&'static str, Error)> {
    let mut mistakes = Vec::new();
    mistakes.extend(check_url(remote.kind, &remote.url).err().map(|error| ("url", error)));
    if remote.password.is_some() && remote.kind == Kind::Hbase && remote.user.is_none() {
        mistakes.push(("password", Error::user("expected a user for the password, got none")));
    }
    if let Some(table) = &remote.table {
        mistakes.extend(check_table(table).err().map(|error| ("table", error)));
    }
    if remote.timeout == Some(Duration::ZERO) {
        mistakes.push(("timeout", Error::user("expected a duration above zero, got 0s")));
    }
    mistakes
}
