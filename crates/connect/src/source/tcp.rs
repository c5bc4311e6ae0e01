//! Records over TCP: any number of connections, each a stream of its own (with a header of its own, where the
//! format has one).
//!
//! A last line without a line end counts when the connection closes, and is a reject when it breaks off. When the queue is full connections are
//! not read, so their senders wait. There is no acknowledgement. Drained, the source accepts no connection any
//! more and reads what has already arrived.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use thalweg_flow::{Poll, Source, Waker};
use thalweg_types::{Error, Micros};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

use super::cut::Cutter;
use super::handover::{DEFAULT_QUEUE, Filler, Handover, Intake, drained, io_runtime};
use super::{BlockCodec, LISTEN, QUEUE, check_listen, decoders_of, reader_of};
use crate::format::RecordFormat;
use crate::{BuiltSource, Mistake, OptionKind, OptionSpec, Options, Replay, SourceContext, SourcePlugin};

/// Bytes read from a connection at a time at most.
const READ: usize = 64 << 10;

/// Bytes that may have arrived before a drain: more than the system buffers of one connection hold. A sender
/// that goes on cannot keep the source from ending.
const READ_IN_DRAIN: usize = 8 << 20;

const DEFAULT_CONNECTIONS: usize = 1024;

/// The plug-in.
pub struct TcpPlugin;

impl SourcePlugin for TcpPlugin {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn doc(&self) -> &'static str {
        "records over TCP connections"
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
                doc: "connections at a time; others wait to be accepted",
            },
        ]
    }

    fn default_format(&self) -> Option<&'static str> {
        Some("ndjson")
    }

    fn is_live(&self) -> bool {
        true
    }

    fn check(&self, options: &Options) -> Vec<Mistake> {
        check_listen(options).into_iter().collect()
    }

    fn build(&self, context: SourceContext) -> Result<BuiltSource, Error> {
        let format = reader_of(&context)?;
        let listen = context.options.text("listen").unwrap_or_default();
        let queue = context.options.size("queue").map_or(DEFAULT_QUEUE, |bytes| bytes as usize);
        let connections = context.options.integer("connections").map_or(DEFAULT_CONNECTIONS, |n| n as usize);
        let source = TcpSource::bind(listen, Arc::clone(&format), queue, connections)
            .map_err(|error| error.context(format!("source {:?}", context.name)))?;
        let address = source.address();
        info!(source = %context.name, %address, "listening on tcp");
        let kept = Arc::clone(&format);
        Ok(BuiltSource {
            source: Box::new(source),
            decoder: decoders_of(&context, format),
            schema: context.schema,
            ingress: None,
            address: Some(address),
            replay: Replay::Journal(BlockCodec::new(Some(kept))),
        })
    }
}

/// Listens on one address.
pub struct TcpSource {
    listener: Option<TcpListener>,
    address: SocketAddr,
    format: Arc<dyn RecordFormat>,
    intake: Intake<()>,
    connections: usize,
    filler: Filler,
}

impl TcpSource {
    /// # Errors
    /// Where the address cannot be bound.
    pub fn bind(
        listen: &str,
        format: Arc<dyn RecordFormat>,
        queue: usize,
        connections: usize,
    ) -> Result<Self, Error> {
        let failed = |error: std::io::Error| {
            Error::external(format!("listen on tcp {listen:?}"))
                .with_hint("choose an address of this machine and a port that nobody else listens on")
                .with_source(error)
        };
        let listener = TcpListener::bind(listen).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self {
            listener: Some(listener),
            address,
            format,
            intake: Intake::new(Arc::new(Handover::new(queue))),
            connections,
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
        let (format, handover) = (Arc::clone(&self.format), Arc::clone(self.intake.handover()));
        let connections = self.connections;
        // Connections are in the task's own set and end with it.
        self.filler.start(runtime, |drain| async move {
            accept(listener, &format, &handover, drain, connections).await;
            handover.close();
        });
        Ok(())
    }

    fn poll(&mut self, max_bytes: usize, _: Micros) -> Result<Poll, Error> {
        self.intake.poll(max_bytes).map(|(poll, _)| poll)
    }

    fn drain(&mut self) {
        self.filler.drain(self.intake.handover());
    }
}

async fn accept(
    listener: tokio::net::TcpListener,
    format: &Arc<dyn RecordFormat>,
    handover: &Arc<Handover<()>>,
    mut drain: watch::Receiver<bool>,
    connections: usize,
) {
    let mut open = JoinSet::new();
    let for_connections = drain.clone();
    loop {
        tokio::select! {
            () = drained(&mut drain) => break,
            Some(_) = open.join_next() => {}
            accepted = listener.accept(), if open.len() < connections => match accepted {
                Ok((stream, peer)) => {
                    debug!(%peer, "connection opened");
                    let (format, handover) = (Arc::clone(format), Arc::clone(handover));
                    let drain = for_connections.clone();
                    open.spawn(async move {
                        if let Err(error) = read(stream, &*format, &handover, drain).await {
                            warn!(%peer, error = error.chain(), "connection closed early");
                        }
                    });
                }
                // Out of descriptors, or the peer has gone: neither is a reason to stop listening.
                Err(error) => {
                    warn!(%error, "accept failed");
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                }
            }
        }
    }
    drop(listener);
    while open.join_next().await.is_some() {}
}

/// Reads one connection to its end, or to what has arrived when the source is drained.
async fn read(
    mut stream: TcpStream,
    format: &dyn RecordFormat,
    handover: &Handover<()>,
    mut drain: watch::Receiver<bool>,
) -> Result<(), Error> {
    let failed = |error: std::io::Error| Error::external("read a connection").with_source(error);
    let mut cutter = Cutter::without_lines(format);
    let mut is_draining = false;
    let mut read_in_drain = 0;
    loop {
        let wanted = cutter.wanted(READ);
        let buffer = cutter.buffer();
        buffer.reserve(wanted);
        let result = if is_draining {
            match stream.try_read_buf(buffer) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                result => result,
            }
        } else {
            tokio::select! {
                biased;
                () = drained(&mut drain) => {
                    is_draining = true;
                    continue;
                }
                result = stream.read_buf(buffer) => result,
            }
        };
        let count = match result {
            Ok(count) => count,
            Err(error) => {
                if let Some(cut) = cutter.break_off() {
                    handover.send(cut, ()).await;
                }
                return Err(failed(error));
            }
        };
        while let Some(cut) = cutter.next(count == 0)? {
            handover.send(cut, ()).await;
        }
        if count == 0 {
            return Ok(());
        }
        read_in_drain += if is_draining { count } else { 0 };
        if read_in_drain > READ_IN_DRAIN {
            break;
        }
    }
    let left = cutter.buffer().len();
    if left > 0 {
        warn!(bytes = left, "drained in the middle of a record, which is not taken");
    }
    Ok(())
}
