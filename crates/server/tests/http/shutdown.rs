//! The end of a server.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use thalweg_server::{Finish, Server};
use tokio::sync::oneshot;

use crate::client::Site;
use crate::fake::{FakeNode, Mode};

const PATH: &str = "/v1/jobs/payments/sources/payments";

fn wait_until_refused(site: &Site) {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        match TcpStream::connect(site.address) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => return,
            _ => assert!(Instant::now() < until, "connections are still accepted"),
        }
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn requests_in_flight_are_answered() {
    let mut site = Site::new();
    site.node.set_mode(Mode::Hold);
    let mut in_flight = site.connect();
    in_flight.send("POST", PATH, "", b"{\"a\":1}");
    site.node.wait_for_held(1);
    let mut idle = site.connect();
    idle.send("GET", "/healthz", "", b"");
    assert_eq!(idle.reply(false).status, 200);
    let mut fresh = site.connect();

    let server = site.server.take().unwrap();
    server.handle().shutdown();
    wait_until_refused(&site);
    idle.expect_end();
    fresh.expect_end();
    let stopping = thread::spawn(move || server.stop());
    assert!(!stopping.is_finished());

    site.node.release();
    let reply = in_flight.reply(false);
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("connection"), Some("close"));
    in_flight.expect_end();
    assert_eq!(stopping.join().unwrap(), Finish { cut_off: 0 });
}

#[test]
fn requests_that_take_too_long_are_cut_off() {
    let mut site = Site::with(|options| options.shutdown_grace = Duration::from_millis(50));
    site.node.set_mode(Mode::Hold);
    let mut in_flight = site.connect();
    in_flight.send("POST", PATH, "", b"{\"a\":1}");
    site.node.wait_for_held(1);
    assert_eq!(site.stop(), Finish { cut_off: 1 });
    in_flight.expect_end();
}

#[test]
fn a_call_that_hangs_does_not_hold_up_the_end() {
    let mut site = Site::with(|options| options.shutdown_grace = Duration::from_millis(50));
    site.node.set_hanging(true);
    let mut connection = site.connect();
    connection.send("GET", "/v1/jobs/payments", "", b"");
    site.node.wait_for_hanging();
    let started = Instant::now();
    site.stop();
    assert!(started.elapsed() < Duration::from_secs(10));
    site.node.set_hanging(false);
}

#[test]
fn a_signal_ends_it() {
    let node = Arc::new(FakeNode::default());
    let server = Server::bind("127.0.0.1:0", node, crate::client::options()).unwrap();
    let address = server.local_addr();
    let (sender, receiver) = oneshot::channel::<()>();
    let running = thread::spawn(move || {
        server.run_until(async {
            let _ = receiver.await;
        })
    });
    // A connection made before the end is there to be closed by it.
    let mut connection = TcpStream::connect(address).unwrap();
    sender.send(()).unwrap();
    assert_eq!(running.join().unwrap(), Finish { cut_off: 0 });
    let mut rest = Vec::new();
    let _ = std::io::Read::read_to_end(&mut connection, &mut rest);
}
