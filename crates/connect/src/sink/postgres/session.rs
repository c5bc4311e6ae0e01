//! A connection, its one transaction at a time, and the table of cycles.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::SinkExt;
use thalweg_types::Error;
use tokio::task::AbortHandle;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::{DbError, SqlState};
use tokio_postgres::{Client, Config, CopyInSink, NoTls};

use super::super::retry::Trouble;
use crate::secret::Secret;
use crate::{Options, SinkContext};

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(10);
/// How long the other side may be silent on a connection that has something to say.
const SILENT: Duration = Duration::from_secs(30);

/// Where rows go.
#[derive(Clone)]
pub(super) struct Target {
    config: Config,
    /// For messages.
    place: Arc<str>,
    table: Arc<str>,
    /// Names of the columns that rows have.
    columns: Arc<[String]>,
    /// The statement that copies into the table.
    copy: Arc<str>,
    cycles: Arc<str>,
    job: Arc<str>,
    sink: Arc<str>,
}

impl Target {
    /// # Errors
    /// If the URL is invalid.
    pub(super) fn check(options: &Options) -> Result<Config, Error> {
        // It may hold a password, so neither it nor the parser's message is repeated.
        let config: Config = options.text("url").unwrap_or_default().parse().map_err(|_| {
            Error::user("url: expected the URL of a database, got something else")
                .with_hint("such as postgres://me@127.0.0.1:5432/shop")
        })?;
        if config.get_password().is_some() {
            return Err(Error::user("url: expected no password in it, got one")
                .with_hint("write password: env:NAME or file:PATH instead"));
        }
        if config.get_hosts().is_empty() {
            return Err(Error::user("url: expected a host, got none")
                .with_hint("such as postgres://me@127.0.0.1:5432/shop"));
        }
        if config.get_ssl_mode() == SslMode::Require {
            return Err(Error::user("url: expected a connection without TLS, got sslmode=require").with_hint(
                "this build does not speak TLS to PostgreSQL: connect over the loopback, a local socket or a tunnel",
            ));
        }
        Ok(config)
    }

    /// # Errors
    /// As [`Target::check`], and where the password cannot be looked up.
    pub(super) fn new(context: &SinkContext, columns: &[String]) -> Result<Self, Error> {
        let options = &context.options;
        let mut config = Self::check(options)?;
        if let Some(reference) = options.secret("password") {
            config.password(Secret::look_up("password", reference)?.reveal());
        }
        config
            .ssl_mode(SslMode::Disable)
            .application_name(format!("thalweg {} {}", context.job, context.name))
            .connect_timeout(CONNECT)
            .tcp_user_timeout(SILENT)
            .keepalives_idle(CONNECT)
            .keepalives_interval(CONNECT)
            .keepalives_retries(3);
        let hosts: Vec<String> = config
            .get_hosts()
            .iter()
            .map(|host| match host {
                Host::Tcp(name) => name.clone(),
                Host::Unix(path) => path.display().to_string(),
            })
            .collect();
        let ports: Vec<String> = config.get_ports().iter().map(u16::to_string).collect();
        let ports = if ports.is_empty() { "5432".to_owned() } else { ports.join(",") };
        let place = format!("PostgreSQL at {}:{ports}", hosts.join(","));
        let table = quoted_table("table", options.text("table").unwrap_or_default())?;
        let cycles = quoted_table("cycles_table", options.text("cycles_table").unwrap_or("thalweg_cycles"))?;
        let names: Vec<String> = columns.iter().map(|column| quoted(column)).collect();
        Ok(Self {
            config,
            place: place.into(),
            copy: format!("COPY {table} ({}) FROM STDIN", names.join(", ")).into(),
            table: table.into(),
            columns: columns.into(),
            cycles: cycles.into(),
            job: Arc::clone(&context.job),
            sink: Arc::clone(&context.name),
        })
    }
}

impl Target {
    /// The table of cycles says something that cannot be.
    pub(super) fn mismatch(&self, what: &str, hint: &str) -> Error {
        let Self { place, cycles, job, sink, .. } = self;
        Error::user(format!("{place}: table {cycles} does not go with job {job:?}, sink {sink:?}: it {what}"))
            .with_hint(hint)
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A table's name, with its schema where there is a dot, as SQL takes it.
///
/// # Errors
/// If it is not the name of a table.
pub(super) fn quoted_table(key: &str, name: &str) -> Result<String, Error> {
    let parts: Vec<&str> = name.splitn(2, '.').collect();
    if parts.iter().any(|part| part.is_empty() || part.contains('\0')) {
        return Err(Error::user(format!("{key}: expected the name of a table, got {name:?}"))
            .with_hint("TABLE or SCHEMA.TABLE, without quotes"));
    }
    Ok(parts.into_iter().map(quoted).collect::<Vec<_>>().join("."))
}

/// A connection. Dropped, it is closed, and the server rolls back the open transaction.
pub(super) struct Session {
    target: Target,
    client: Client,
    /// The task that talks to the server.
    connection: AbortHandle,
    copy: Option<Pin<Box<CopyInSink<Bytes>>>>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Session {
    pub(super) async fn open(target: &Target) -> Result<Self, Trouble> {
        let connected = target.config.connect(NoTls).await;
        let (client, connection) = connected.map_err(|error| judge(target, "connect to", error, false))?;
        // The client's callers get the error that ends the connection.
        let connection = tokio::spawn(async move { drop(connection.await) }).abort_handle();
        Ok(Self { target: target.clone(), client, connection, copy: None })
    }

    fn trouble(&self, doing: &str) -> impl Fn(tokio_postgres::Error) -> Trouble {
        let (target, doing) = (self.target.clone(), doing.to_owned());
        move |error| judge(&target, &doing, error, false)
    }

    /// Looks whether the table is there, and has a column for each field and no other that rows have to fill.
    pub(super) async fn find_table(&self) -> Result<(), Trouble> {
        let Target { place, table, columns, .. } = &self.target;
        let refused = |message, hint: &str| Err(Trouble::Lasting(Error::user(message).with_hint(hint)));
        if !self.exists(table).await? {
            return refused(
                format!("{place} has no table {table} that the user may see"),
                "create it, with a column for each field; names with capitals need quotes in SQL",
            );
        }
        let select = "SELECT attname::text, attnotnull AND NOT atthasdef AND attidentity = '' FROM pg_attribute \
                      WHERE attrelid = to_regclass($1::text) AND attnum > 0 AND NOT attisdropped ORDER BY attnum";
        let rows = self.client.query(select, &[&&**table]).await.map_err(self.trouble("look into"))?;
        let there: Vec<(String, bool)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        let names =
            |names: Vec<&String>| names.into_iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ");
        let missing: Vec<_> =
            columns.iter().filter(|column| there.iter().all(|(name, _)| name != *column)).collect();
        if !missing.is_empty() {
            return refused(
                format!(
                    "{place}: expected a column in table {table} for each field, got none for {}",
                    names(missing)
                ),
                "add them, or leave the fields out with a `map`; names with capitals need quotes in SQL",
            );
        }
        let unfilled = there.iter().filter(|(name, is_needed)| *is_needed && !columns.contains(name));
        let unfilled: Vec<_> = unfilled.map(|(name, _)| name).collect();
        if !unfilled.is_empty() {
            return refused(
                format!(
                    "{place}: expected a field for each column of table {table} that needs a value, got none for {}",
                    names(unfilled)
                ),
                "give such a column a default, let it be null, or add a field of its name with a `map`",
            );
        }
        Ok(())
    }

    async fn exists(&self, table: &str) -> Result<bool, Trouble> {
        let row = self.client.query_one("SELECT to_regclass($1::text) IS NOT NULL", &[&table]).await;
        row.map(|row| row.get(0)).map_err(self.trouble("look into"))
    }

    /// Makes the table of cycles where it is missing, and the sink's row in it.
    pub(super) async fn make_cycles(&self) -> Result<(), Trouble> {
        let Target { cycles, job, sink, .. } = &self.target;
        if !self.exists(cycles).await? {
            let create = format!(
                "CREATE TABLE IF NOT EXISTS {cycles} \
                 (job text NOT NULL, sink text NOT NULL, cycle bigint NOT NULL, PRIMARY KEY (job, sink))"
            );
            match self.client.batch_execute(&create).await {
                // Another sink makes it at the same time.
                Err(error)
                    if matches!(
                        error.code(),
                        // Which of these depends on how far the other one is: a table has a type of its name.
                        Some(
                            &SqlState::UNIQUE_VIOLATION
                                | &SqlState::DUPLICATE_TABLE
                                | &SqlState::DUPLICATE_OBJECT
                        )
                    ) => {}
                made => made.map_err(self.trouble("make the table of cycles in"))?,
            }
        }
        let insert =
            format!("INSERT INTO {cycles} (job, sink, cycle) VALUES ($1, $2, 0) ON CONFLICT DO NOTHING");
        let inserted = self.client.execute(&insert, &[&&**job, &&**sink]).await;
        inserted.map(|_| ()).map_err(self.trouble("write the table of cycles in"))
    }

    pub(super) async fn begin(&self) -> Result<(), Trouble> {
        let begun = self.client.batch_execute("BEGIN; SET LOCAL lock_timeout = '10s'").await;
        begun.map_err(self.trouble("begin a transaction in"))
    }

    /// The sink's last cycle in the database. Its row is locked until the transaction ends: so a transaction of an
    /// earlier connection has ended, one way or the other, before this says anything.
    pub(super) async fn lock_cycle(&self) -> Result<u64, Trouble> {
        let Target { cycles, job, sink, place, .. } = &self.target;
        let select = format!("SELECT cycle FROM {cycles} WHERE job = $1 AND sink = $2 FOR UPDATE");
        let row = self.client.query_opt(&select, &[&&**job, &&**sink]).await;
        let row = row.map_err(self.trouble("read the table of cycles in"))?;
        let cycle = row.map_or(-1, |row| row.get::<_, i64>(0));
        u64::try_from(cycle).map_err(|_| {
            Trouble::Lasting(Error::external(format!(
                "{place}: table {cycles} has lost the row of job {job:?}, sink {sink:?} while the job ran"
            )))
        })
    }

    /// Streams rows into the table, within the transaction.
    pub(super) async fn copy(&mut self, rows: Bytes) -> Result<(), Trouble> {
        let doing = "copy rows to";
        let mut copy = match self.copy.take() {
            Some(copy) => copy,
            None => {
                let begun = self.client.copy_in::<str, Bytes>(&self.target.copy).await;
                Box::pin(begun.map_err(self.trouble(doing))?)
            }
        };
        let sent = copy.send(rows).await;
        self.copy = Some(copy);
        sent.map_err(self.trouble(doing))
    }

    /// Ends the rows that were streamed.
    pub(super) async fn finish_copy(&mut self) -> Result<(), Trouble> {
        let Some(mut copy) = self.copy.take() else { return Ok(()) };
        copy.as_mut().finish().await.map(|_| ()).map_err(self.trouble("copy rows to"))
    }

    pub(super) async fn write_cycle(&self, cycle: u64) -> Result<(), Trouble> {
        let Target { cycles, job, sink, .. } = &self.target;
        let cycle = i64::try_from(cycle).unwrap_or(i64::MAX);
        let update = format!("UPDATE {cycles} SET cycle = $3 WHERE job = $1 AND sink = $2");
        let updated = self.client.execute(&update, &[&&**job, &&**sink, &cycle]).await;
        updated.map(|_| ()).map_err(self.trouble("write the table of cycles in"))
    }

    /// If this fails for something that may pass, nobody knows whether it happened.
    pub(super) async fn commit(&self) -> Result<(), Trouble> {
        let committed = self.client.batch_execute("COMMIT").await;
        committed.map_err(|error| judge(&self.target, "commit in", error, true))
    }

    pub(super) async fn roll_back(&self) -> Result<(), Trouble> {
        self.client.batch_execute("ROLLBACK").await.map_err(self.trouble("roll back in"))
    }
}

/// Whether an error may pass by itself.
fn judge(target: &Target, doing: &str, error: tokio_postgres::Error, unknown: bool) -> Trouble {
    let what = format!("{doing} {}", target.place);
    if let Some(said) = error.as_db_error() {
        let what = format!("{what}: refused with SQLSTATE {}", said.code().code());
        // Its message may be about rows.
        let mut text = format!(": {}", said.message());
        for more in [said.detail(), said.where_()].into_iter().flatten() {
            text.push_str(": ");
            text.extend(more.chars().take(300));
        }
        return if may_pass(said) {
            Trouble::Passing { error: Error::external(what).with_private(text), unknown, wait: None }
        } else {
            let error = Error::user(what).with_private(text);
            Trouble::Lasting(match said.hint() {
                Some(hint) => error.with_hint(hint),
                None => error.with_hint(hint_of(said.code())),
            })
        };
    }
    let cause = std::error::Error::source(&error);
    // A cause that is no matter of sockets is one of the configuration.
    let lasts = !error.is_closed() && cause.is_some_and(|cause| !cause.is::<std::io::Error>());
    let error = Error::external(what).with_source(error);
    if lasts { Trouble::Lasting(error) } else { Trouble::Passing { error, unknown, wait: None } }
}

/// What to do about an error of this class, where the server does not say.
fn hint_of(code: &SqlState) -> &'static str {
    match code.code().get(..2) {
        Some("28") => "look at the user in `url`, at `password`, and at pg_hba.conf of the server",
        Some("3D") => "create the database, or name another one in `url`",
        _ => "the columns of the table have to fit the fields, and the user has to be allowed to write it",
    }
}

/// The server is starting, stopping, short of something, or was asked to end the connection; locks and conflicts.
fn may_pass(said: &DbError) -> bool {
    let code = said.code();
    let class = &code.code()[..2];
    matches!(class, "08" | "53" | "57")
        || [
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::LOCK_NOT_AVAILABLE,
            SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        ]
        .contains(code)
}
