//! `run --cluster` before the node is in its cluster: brokers that are not there, and addresses at which others do not reach it.
#![cfg(feature = "cluster")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use super::{Ended, Place};

const JOB: &str = "
name: pay
sources: { payments: { type: http, time: ts, schema: { ts: timestamp(ms), card: string } } }
operators:
  features:
    type: metrics
    input: payments
    partition_by: card
    queries: { n: SELECT count(*) AS n FROM payments GROUP BY card OVER SLIDING 1 HOUR }
sinks: { out: { type: 'null', input: features } }
";

/// Nobody listens there.
const NOBODY: &str = "127.0.0.1:1";

fn run(place: &Place, more: &[&str]) -> Command {
    let cluster = format!("kafka://{NOBODY}?replication=1");
    let args = ["run", "job.yaml", "--cluster", &cluster, "--node", "a", "--data-dir", "D"];
    let mut command = place.command(&[&args[..], more].concat());
    command.env("THALWEG_LOG", "info,thalweg_kafka=off");
    command
}

fn status_of(address: &str, host: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    write!(stream, "GET /readyz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("a reply");
    reply.split(' ').nth(1).expect("a status").to_owned()
}

/// Ends as a test ends.
struct Started(Option<Child>);

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn a_node_says_which_brokers_do_not_answer_and_ends_at_a_signal() {
    for signal in ["-TERM", "-INT"] {
        let place = Place::with(&[("job.yaml", JOB)]);
        let args = ["--listen", "127.0.0.1:0", "--advertise", "node-a.example:443"];
        let mut started = Started(Some(run(&place, &args).spawn().expect("the binary runs")));
        let child = started.0.as_mut().expect("a child");
        let mut said = BufReader::new(child.stderr.take().expect("stderr is piped"));
        let mut address = None;
        loop {
            let mut line = String::new();
            assert!(said.read_line(&mut line).expect("a line") > 0, "it has ended");
            if line.contains("http server listens") {
                let at = line.find("127.0.0.1:").expect("an address");
                address = line[at..].split_whitespace().next().map(str::to_owned);
            }
            if line.contains("have not answered") {
                assert!(line.contains(NOBODY), "{line}");
                break;
            }
        }
        let address = address.expect("it listens before");
        assert_eq!(status_of(&address, "node-a.example:443"), "503", "that is what others call it");
        assert_eq!(status_of(&address, "node-b.example:443"), "403");
        let since = Instant::now();
        let id = child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().expect("kill runs").success());
        let mut rest = String::new();
        said.read_to_string(&mut rest).expect("the rest");
        let child = started.0.take().expect("a child");
        Ended::of(child.wait_with_output().expect("it ends")).ends_with(0);
        assert!(since.elapsed() < Duration::from_secs(8), "{:?}", since.elapsed());
        assert!(rest.contains(&format!("ending before the node is in the cluster at {NOBODY}")), "{rest}");
    }
}

#[test]
fn a_node_that_would_listen_for_others_hears_of_the_option_for_it() {
    let place = Place::with(&[("job.yaml", JOB)]);
    let ended = Ended::of(run(&place, &["--listen", "192.0.2.1:8080"]).output().expect("the binary runs"));
    let said = ended.ends_with(2).stderr;
    assert!(
        said.contains("can be reached from other machines") && said.contains("--advertise HOST:PORT"),
        "{said}"
    );
    let args = ["--listen", "8080", "--advertise", "node-a.example"];
    let said = Ended::of(run(&place, &args).output().expect("the binary runs")).ends_with(2).stderr;
    let expected =
        "'--advertise <HOST:PORT>': expected HOST:PORT, such as node-a.example:8080, got \"node-a.example\"";
    assert!(said.contains(expected), "{said}");
}
