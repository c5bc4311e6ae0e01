//! Binding, accepting, and coming to an end.
//!
//! The server has a runtime of its own, so that sockets and the engine's workers never wait for the same thread.
//!
//! Connections have places (`places`): when all are taken, those that wait for a request make room, and monitors still
//! get in.
//!
//! Shutdown: the listener closes, idle connections close, requests in flight are answered (at most
//! `shutdown_grace`), then everything else is cut off and counted in [`Finish`].

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use thalweg_types::Error;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::app::{self, App, BLOCKING_THREADS, Effect};
use crate::control::Control;
use crate::options::Options;
use crate::places::Seat;
use crate::rates::INTERVAL;
use crate::seated::Seated;
use crate::stall::Stall;

/// Connections that the kernel keeps while the server is busy, or as many as the machine allows. A client that finds
/// this full is accepted no sooner than when its system tries again, after one second, then two more, then four.
const BACKLOG: u32 = 16_384;

/// How much of a connection's input is read ahead. Bodies go through in pieces of this size.
const READ_AHEAD: usize = 64 << 10;

/// How long calls of the node that nobody waits for any more may go on after the end of the server.
const LETTING_GO: Duration = Duration::from_secs(1);

/// Pause after the system refused a connection (out of file descriptors): it will not get better at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A server that has its address and does not answer yet: connections wait.
#[must_use]
pub struct Server {
    runtime: Runtime,
    listener: TcpListener,
    local_addr: SocketAddr,
    app: Arc<App>,
    closing: Arc<watch::Sender<bool>>,
}

/// Asks a server to come to its end; can be kept and cloned.
#[derive(Clone)]
pub struct Handle(Arc<watch::Sender<bool>>);

/// A server that answers on its own threads. Dropping it cuts everything off.
#[must_use]
pub struct Running {
    /// `None` only while it is being taken down.
    runtime: Option<Runtime>,
    accepting: Option<JoinHandle<Finish>>,
    local_addr: SocketAddr,
    closing: Arc<watch::Sender<bool>>,
}

/// How a server ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Finish {
    /// Connections that were cut off because their requests took longer than the grace.
    pub cut_off: usize,
}

impl Server {
    /// Takes an address: `127.0.0.1:8080`, `[::1]:8080`, `localhost:0`. Port 0 is any free one.
    ///
    /// # Errors
    /// If the address is not one, is in use, or is not of this machine alone.
    pub fn bind(listen: &str, control: Arc<dyn Control>, options: Options) -> Result<Self, Error> {
        let address = resolve(listen)?;
        let names = AtomicUsize::new(0);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(options.threads.max(1))
            .max_blocking_threads(BLOCKING_THREADS)
            .thread_name_fn(move || format!("http-{}", names.fetch_add(1, Ordering::Relaxed)))
            .enable_all()
            .build()
            .map_err(|error| Error::external("start the threads of the HTTP server").with_source(error))?;
        let listener = {
            let _entered = runtime.enter();
            listen_on(address).map_err(|error| not_bound(listen, address, error))?
        };
        let local_addr = listener
            .local_addr()
            .map_err(|error| Error::external(format!("listen on {address}")).with_source(error))?;
        let (closing, closes) = watch::channel(false);
        let app = Arc::new(App::new(control, options, closes));
        Ok(Self { runtime, listener, local_addr, app, closing: Arc::new(closing) })
    }

    /// The address with the port that it really got.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    pub fn handle(&self) -> Handle {
        Handle(Arc::clone(&self.closing))
    }

    /// Answers from now on, on the server's own threads.
    pub fn start(self) -> Running {
        let Self { runtime, listener, local_addr, app, closing } = self;
        tracing::info!(address = %local_addr, "http server listens");
        let router = app::router(Arc::clone(&app));
        runtime.spawn(keep_rates(Arc::clone(&app)));
        let accepting = runtime.spawn(accept(listener, router, app, closing.subscribe()));
        Running { runtime: Some(runtime), accepting: Some(accepting), local_addr, closing }
    }

    /// Answers until the signal comes or [`Handle::shutdown`] is called, then as [`Running::stop`].
    /// Not to be called from a runtime's own thread.
    pub fn run_until(self, signal: impl Future<Output = ()> + Send + 'static) -> Finish {
        let handle = self.handle();
        let running = self.start();
        if let Some(runtime) = &running.runtime {
            runtime.spawn(async move {
                signal.await;
                handle.shutdown();
            });
        }
        running.wait()
    }
}

impl Handle {
    /// Takes no more connections, while requests in flight end.
    pub fn shutdown(&self) {
        self.0.send_replace(true);
    }
}

impl Running {
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    pub fn handle(&self) -> Handle {
        Handle(Arc::clone(&self.closing))
    }

    /// Shuts down, and waits until the requests in flight are answered or the grace is over.
    /// Not to be called from a runtime's own thread.
    pub fn stop(self) -> Finish {
        self.handle().shutdown();
        self.wait()
    }

    /// Waits for the end that another handle asks for.
    fn wait(mut self) -> Finish {
        let finish = match (&self.runtime, self.accepting.take()) {
            (Some(runtime), Some(accepting)) => runtime.block_on(accepting).unwrap_or_else(|error| {
                tracing::error!(%error, "http server ended");
                Finish::default()
            }),
            _ => Finish::default(),
        };
        if finish.cut_off > 0 {
            tracing::warn!(connections = finish.cut_off, "http requests cut off at shutdown");
        }
        finish
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Calls of the node that hang must not hang the server. Others release the node, which may have a temporary
            // folder to remove.
            runtime.shutdown_timeout(LETTING_GO);
        }
    }
}

/// The address of a text, of this machine alone.
fn resolve(listen: &str) -> Result<SocketAddr, Error> {
    let addresses: Vec<SocketAddr> = listen
        .to_socket_addrs()
        .map_err(|error| {
            Error::user(format!("listen address {listen:?}: expected HOST:PORT"))
                .with_source(error)
                .with_hint("for example 127.0.0.1:8080; port 0 takes a free one")
        })?
        .collect();
    // A name can have addresses of both kinds; tools try the older one by default.
    let address = addresses.iter().find(|address| address.is_ipv4()).or(addresses.first()).copied();
    let address = address.ok_or_else(|| Error::user(format!("listen address {listen:?} has no address")))?;
    if !address.ip().to_canonical().is_loopback() {
        return Err(Error::user(format!(
            "listen address {listen:?} can be reached from other machines, and neither TLS nor tokens are configured"
        ))
        .with_hint(format!(
            "listen on 127.0.0.1:{} and put a proxy with TLS and authentication in front, or use a tunnel",
            address.port()
        )));
    }
    Ok(address)
}

fn listen_on(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restart would otherwise wait for the connections of the process before.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

fn not_bound(listen: &str, address: SocketAddr, error: io::Error) -> Error {
    let hint = match error.kind() {
        io::ErrorKind::AddrInUse => Some(format!(
            "another process listens there; choose another port, or {}:0 for a free one",
            address.ip()
        )),
        io::ErrorKind::PermissionDenied => {
            Some("ports below 1024 are reserved; choose a higher one".to_owned())
        }
        io::ErrorKind::AddrNotAvailable => Some("the address is not one of this machine".to_owned()),
        _ => None,
    };
    let shown =
        if listen == address.to_string() { listen.to_owned() } else { format!("{listen} ({address})") };
    let mut out = Error::external(format!("listen on {shown}")).with_source(error);
    if let Some(hint) = hint {
        out = out.with_hint(hint);
    }
    out
}

/// Looks at all jobs once a second.
async fn keep_rates(app: Arc<App>) {
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // Where the node is too busy to answer, rates are those of a longer time.
        let limit = app.options.control_timeout;
        if let Ok(jobs) = app.call(Effect::Reads, limit, |control| control.jobs()).await {
            app.rates.look(Instant::now(), jobs);
        }
    }
}

async fn accept(
    listener: TcpListener,
    router: Router,
    app: Arc<App>,
    mut closing: watch::Receiver<bool>,
) -> Finish {
    let mut has_said = false;
    loop {
        let accepted = tokio::select! {
            biased;
            () = closes(&mut closing) => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _peer)) => {
                has_said = false;
                app.telemetry.accepted.fetch_add(1, Ordering::Relaxed);
                // A new connection without a place is held, so that room is made only when it is needed.
                let seat = tokio::select! {
                    biased;
                    () = closes(&mut closing) => break,
                    seat = app.places.enter() => seat,
                };
                tokio::spawn(connection(stream, router.clone(), Arc::clone(&app), closing.clone(), seat));
            }
            Err(error) if is_of_peer(&error) => {}
            Err(error) => {
                // Once: while a lack of handles lasts the next tries say the same.
                if !std::mem::replace(&mut has_said, true) {
                    tracing::warn!(%error, "http connection not accepted, and tried again");
                }
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    Finish { cut_off: app.places.wait_until_empty(app.options.shutdown_grace).await }
}

/// Returns when the server is to come to its end.
async fn closes(closing: &mut watch::Receiver<bool>) {
    let _ = closing.wait_for(|closing| *closing).await;
}

/// The peer went away before we got to it.
fn is_of_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}

async fn connection(
    stream: TcpStream,
    router: Router,
    app: Arc<App>,
    mut closing: watch::Receiver<bool>,
    seat: Arc<Seat>,
) {
    struct Open<'a>(&'a App);
    impl Drop for Open<'_> {
        fn drop(&mut self) {
            self.0.telemetry.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
    app.telemetry.connections.fetch_add(1, Ordering::Relaxed);
    let _open = Open(&app);

    // A reply is one write; waiting for more to send with it would cost 40 ms.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "http connection without nodelay");
    }
    let io = TokioIo::new(Stall::new(stream, app.options.write_timeout));
    let connection = http(&app.options).serve_connection(io, Seated::new(router, Arc::clone(&seat)));
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        // It waits for a request, and others wait for a place.
        () = seat.told() => return,
        () = closes(&mut closing) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        // Peers may go away or send nonsense.
        tracing::debug!(%error, "http connection ended");
    }
}

/// HTTP/1, as every connection speaks it.
pub(crate) fn http(options: &Options) -> http1::Builder {
    // hyper's own refusals have no body: `head` refuses requests beyond the limit that hyper accepts.
    let most_read = options.max_header_bytes.saturating_mul(2);
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(options.idle_timeout)
        .max_header_size(most_read)
        .max_buf_size(READ_AHEAD.max(most_read))
        // A client that has closed its writing side still reads its reply.
        .half_close(true);
    http
}
