//! Records over TCP: any number of connections, each a stream of its own (with a header of its own, where the
//! format has one).
//!
//! A last line without a line end counts when the connection closes, and is a reject when it breaks off. There is no
//! acknowledgement. Drained, the source accepts no connection any more and reads the bytes that have already arrived.
//!
//! These are bounded (`peers` keeps the books):
//! * The queue, in bytes. Records that wait and records that are not finished yet count. When it is full connections
//!   are not read, so their senders wait. When unfinished records take nearly all of it, the connection with the
//!   largest is closed.
//! * Connections. When all places are taken the one that has been silent longest makes room for a new one.
//! * Silence. A connection that says nothing for `idle`, or for a minute in the middle of a record, is closed.
//!
//! An unfinished record of a connection that is closed is a reject (`unfinished`).

mod accept;
mod peers;
mod read;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use thalweg_flow::{Poll, Source, Waker};
use thalweg_types::{Error, Micros};
use tracing::info;

use self::peers::{Peers, Settings};
use super::connections::ConnectionCounts;
use super::handover::{Filler, Handover, Intake, io_runtime};
use super::{LISTEN, QUEUE, cannot_listen, check_listen, queue_bytes, reader_of, received};
use crate::format::RecordFormat;
use crate::{BuiltSource, Mistake, OptionKind, OptionSpec, Options, SourceContext, SourcePlugin};

const DEFAULT_CONNECTIONS: usize = 1024;

/// Connections that the kernel keeps while the source is busy.
const BACKLOG: i32 = 1_024;

const DEFAULT_IDLE: Duration = Duration::from_secs(3_600);

/// The plug-in.
pub struct TcpPlugin;

impl SourcePlugin for TcpPlugin {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn doc(&self) -> &'static str {
        "records from TCP connections"
    }

    fn page(&self) -> &'static str {
        include_str!("page.md")
    }

    fn options(&self) -> &'static [OptionSpec] {
        &[
            LISTEN,
            QUEUE,
            OptionSpec {
                key: "connections",
                kind: OptionKind::Integer { min: 1, max: 65_536 },
                required: false,
                default: Some("1024"),
                doc: "connections at a time; for a new one beyond that, the connection that was silent longest is closed. All sources of this type share a quarter of the process's open files, or more if the limit is high",
            },
            OptionSpec {
                key: "idle",
                kind: OptionKind::Duration,
                required: false,
                default: Some("1h"),
                doc: "a connection that was silent for this time is closed; in the middle of a record, after a minute",
            },
        ]
    }

    fn default_format(&self) -> Option<&'static str> {
        Some("ndjson")
    }

    fn is_pushed(&self) -> bool {
        true
    }

    fn is_live(&self, _: &Options) -> bool {
        true
    }

    fn check(&self, options: &Options) -> Vec<Mistake> {
        check_listen(options).into_iter().collect()
    }

    fn probe(&self, context: &SourceContext) -> Result<(), Error> {
        let listen = context.options.text("listen").unwrap_or_default();
        bound(listen).map(drop)
    }

    fn build(&self, context: SourceContext) -> Result<BuiltSource, Error> {
        let format = reader_of(&context)?;
        let listen = context.options.text("listen").unwrap_or_default();
        let queue = queue_bytes(&context.options);
        let connections = context.options.integer("connections").map_or(DEFAULT_CONNECTIONS, |n| n as usize);
        let idle = context.options.duration("idle").map_or(DEFAULT_IDLE, |micros| {
            Duration::from_micros(micros.unsigned_abs()).max(Duration::from_millis(1))
        });
        let settings = Settings { connections, idle };
        let source = TcpSource::bind(listen, Arc::clone(&format), queue, settings)?;
        let address = source.address();
        let counts = Arc::clone(&source.counts);
        info!(source = %context.name, %address, "listening on tcp");
        let built = received(context, format, source).listening(address);
        Ok(BuiltSource { connections: Some(counts), ..built })
    }
}

/// A listening socket, and its address with the port that it really got.
fn bound(listen: &str) -> Result<(TcpListener, SocketAddr), Error> {
    let failed = cannot_listen("tcp", listen);
    let listener = TcpListener::bind(listen).map_err(&failed)?;
    // More than the usual: a crowd must not fill it while those before it make room.
    socket2::SockRef::from(&listener).listen(BACKLOG).map_err(&failed)?;
    listener.set_nonblocking(true).map_err(&failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

/// Listens on one address.
pub struct TcpSource {
    listener: Option<TcpListener>,
    address: SocketAddr,
    format: Arc<dyn RecordFormat>,
    intake: Intake<()>,
    settings: Settings,
    counts: Arc<ConnectionCounts>,
    filler: Filler,
}

impl TcpSource {
    /// # Errors
    /// Where the address cannot be bound.
    pub fn bind(
        listen: &str,
        format: Arc<dyn RecordFormat>,
        queue: usize,
        settings: Settings,
    ) -> Result<Self, Error> {
        let (listener, address) = bound(listen)?;
        Ok(Self {
            listener: Some(listener),
            address,
            intake: Intake::new(Arc::new(Handover::new(queue).of_records(format.block_records()))),
            format,
            settings,
            counts: Arc::default(),
            filler: Filler::new(),
        })
    }

    /// Where it listens, with the port that it really got.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Source for TcpSource {
    fn start(&mut self, waker: Waker) -> Result<(), Error> {
        self.intake.handover().set_waker(waker);
        let Some(listener) = self.listener.take() else { return Ok(()) };
        let runtime = io_runtime()?;
        let listener = {
            let _entered = runtime.enter();
            tokio::net::TcpListener::from_std(listener)
                .map_err(|error| Error::external("hand a socket to the I/O runtime").with_source(error))?
        };
        let handover = Arc::clone(self.intake.handover());
        let peers = Arc::new(Peers::new(
            Arc::clone(&self.format),
            Arc::clone(&handover),
            self.settings,
            Arc::clone(&self.counts),
        ));
        // Connections are in the task's own set and end with it.
        self.filler.start(runtime, |drain| async move {
            accept::accept(listener, peers, drain).await;
            handover.close();
        });
        Ok(())
    }

    fn poll(&mut self, max_bytes: usize, _: Micros) -> Result<Poll, Error> {
        self.intake.poll_blocks(max_bytes)
    }

    fn drain(&mut self) {
        self.filler.drain(self.intake.handover());
    }
}
