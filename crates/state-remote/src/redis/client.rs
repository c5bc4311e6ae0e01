//! Connections to one server, and the meaning of its errors.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{
    Client, Connection, ConnectionAddr, ErrorKind, IntoConnectionInfo, RedisConnectionInfo, RedisError,
    RedisResult, ServerErrorKind,
};
use thalweg_state::{StateError, StoreFault};

use crate::settings::Settings;
use crate::wait::{Outcome, Trouble};

/// Connections that are kept while they are unused. Each caller that finds none makes one, so there are never more than
/// callers at the same time.
const IDLE: usize = 8;

pub(super) struct Pool {
    place: String,
    client: RedisResult<Client>,
    timeout: Duration,
    idle: Mutex<Vec<Connection>>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Pool {
    pub(super) fn new(settings: &Settings) -> Self {
        let host = settings.url.host_str().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let mut login = RedisConnectionInfo::default().set_db(settings.redis_database());
        if let Some(user) = &settings.user {
            login = login.set_username(user);
        }
        if let Some(password) = &settings.password {
            login = login.set_password(password);
        }
        let address = ConnectionAddr::Tcp(host, settings.redis_port());
        let client =
            address.into_connection_info().map(|info| info.set_redis_settings(login)).and_then(Client::open);
        Self { place: settings.place(), client, timeout: settings.timeout, idle: Mutex::default() }
    }

    /// Makes a request over a connection. After an error it is not used again: an answer may still be on its way.
    /// One that was kept may have died meanwhile, so the request is made again over a new one.
    pub(super) fn with<T>(&self, mut request: impl FnMut(&mut Connection) -> RedisResult<T>) -> Outcome<T> {
        let kept = self.idle().pop();
        if let Some(mut connection) = kept {
            match request(&mut connection) {
                Ok(answer) => return Ok(self.keep(connection, answer)),
                // The others are as dead as this one.
                Err(error) if error.is_connection_dropped() => self.idle().clear(),
                Err(error) => return Err(self.trouble(&error)),
            }
        }
        let mut connection = self.connect().map_err(|error| self.trouble(&error))?;
        match request(&mut connection) {
            Ok(answer) => Ok(self.keep(connection, answer)),
            Err(error) => Err(self.trouble(&error)),
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep<T>(&self, connection: Connection, answer: T) -> T {
        let mut idle = self.idle();
        if idle.len() < IDLE {
            idle.push(connection);
        }
        answer
    }

    fn connect(&self) -> RedisResult<Connection> {
        let client = self.client.as_ref().map_err(Clone::clone)?;
        let connection = client.get_connection_with_timeout(self.timeout)?;
        connection.set_read_timeout(Some(self.timeout))?;
        connection.set_write_timeout(Some(self.timeout))?;
        Ok(connection)
    }

    fn trouble(&self, error: &RedisError) -> Trouble {
        if error.is_timeout() {
            return Trouble::Passing(format!("no answer within {:?}", self.timeout));
        }
        let code = error.code().unwrap_or_default();
        let may_not = "let the user read and write keys thalweg:*, with strings, hashes and scripts (docs/operations.md)";
        // A script that may not says so in words.
        let is_script =
            error.detail().is_some_and(|detail| detail.starts_with("The user executing the script"));
        let hint = match error.kind() {
            ErrorKind::AuthenticationFailed => "look at user and password",
            ErrorKind::Server(ServerErrorKind::NoPerm) => may_not,
            _ if is_script => may_not,
            ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask | ServerErrorKind::CrossSlot) => {
                "name a server that is no part of a cluster"
            }
            ErrorKind::Server(
                ServerErrorKind::BusyLoading
                | ServerErrorKind::TryAgain
                | ServerErrorKind::ClusterDown
                | ServerErrorKind::MasterDown
                | ServerErrorKind::ReadOnly,
            )
            | ErrorKind::Io => return Trouble::Passing(error.to_string()),
            // No memory left, a script that runs on, a disk that cannot be written.
            _ if ["OOM", "BUSY", "MISCONF", "NOREPLICAS"].contains(&code) => {
                return Trouble::Passing(error.to_string());
            }
            _ if code == "NOAUTH" || code == "WRONGPASS" => "look at user and password",
            _ if code == "WRONGTYPE" => "somebody else uses keys that begin with thalweg: in this database",
            _ => "look at what the server says, and at its version: 5.0 is the oldest",
        };
        Trouble::Lasting(StateError::Store {
            store: self.place.clone(),
            fault: StoreFault::Refused,
            message: format!("expected to be served, got {error}"),
            hint: Some(hint.to_owned()),
        })
    }
}
