//! One connection in memory, for tests and fuzzing: bytes in, bytes out.

use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, split};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::app::{App, router};
use crate::control::Control;
use crate::options::Options;
use crate::seated::Seated;
use crate::serve::http;

/// Bytes that the two ends hold between them.
const BETWEEN: usize = 64 << 10;

/// No exchange takes this long: its bytes are all there at once, and nobody waits for more.
const PATIENCE: Duration = Duration::from_secs(20);

/// The reply of a server to a client that sends these bytes, closes its writing side and reads to the end.
///
/// # Panics
/// If the server does not end the exchange.
pub fn exchange(control: Arc<dyn Control>, options: Options, bytes: &[u8]) -> Vec<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("threads and timers").block_on(async {
        let (_close, closes) = watch::channel(false);
        let http = http(&options);
        let app = Arc::new(App::new(control, options, closes));
        let seat = app.places.enter().await;
        let (client, server) = tokio::io::duplex(BETWEEN);
        let connection = http.serve_connection(TokioIo::new(server), Seated::new(router(app), seat));
        let (mut read, mut write) = split(client);
        let mut replies = Vec::new();
        let client = async {
            let send = async {
                let _ = write.write_all(bytes).await;
                let _ = write.shutdown().await;
            };
            let take = read.read_to_end(&mut replies);
            let _ = tokio::join!(send, take);
        };
        let serve = async {
            // Nonsense is an error of the connection; dropping it closes its end.
            let _ = connection.await;
        };
        timeout(PATIENCE, async { tokio::join!(client, serve) }).await.expect("the exchange ends");
        replies
    })
}
