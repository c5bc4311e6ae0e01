//! Every example of the reference runs, and writes the output that it shows.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::{Child, ChildStderr, Command};

use thalweg_node::NodeOptions;
use thalweg_node::reference::{Block, Example, Reference, Run};

use super::{Ended, Place};

fn examples() -> Vec<Example> {
    let options = NodeOptions::default().check_options();
    Reference::new(&options.registry, &options.operators).examples()
}

/// What is sent to a source of an example, and the source's name.
fn sent<'a>(example: &'a Example) -> Option<(&'a str, &'a str)> {
    let source = |block: &'a Block| Some((block.file.strip_prefix("send:")?, block.text.as_str()));
    example.inputs.iter().find_map(source)
}

fn place(example: &Example) -> Place {
    let place = Place::with(&[("job.yaml", &example.job)]);
    for input in &example.inputs {
        if input.file != "stdin" && !input.file.starts_with("send:") {
            place.write(&input.file, input.text.as_bytes());
        }
    }
    if example.job.contains("type: pcap") {
        // A capture without a packet: the head of the file alone.
        let head = [&[0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0][..], &[0; 8], &[0, 0, 1, 0, 1, 0, 0, 0]].concat();
        std::fs::create_dir(place.path().join("captures")).expect("a folder");
        place.write("captures/day-1.pcap", &head);
    }
    place
}

#[test]
fn every_example_is_a_job_without_mistakes() {
    let examples = examples();
    assert!(examples.len() > 30, "{} examples", examples.len());
    for example in examples {
        let place = place(&example);
        // Ports are free on any machine.
        let set = sent(&example).filter(|_| !example.job.contains("type: http"));
        let set = set.map(|(source, _)| format!("sources.{source}.listen=127.0.0.1:0"));
        let mut arguments = vec!["check", "job.yaml"];
        arguments.extend(set.iter().flat_map(|set| ["--set", set.as_str()]));
        let ended = place.thalweg(&arguments);
        assert_eq!(ended.code, Some(0), "example of {}:\n{}\n{}", example.name, example.job, ended.stderr);
    }
}

#[test]
fn every_example_writes_what_it_says() {
    for example in examples().iter().filter(|example| example.run == Run::ToItsEnd && sent(example).is_none())
    {
        let place = place(example);
        let mut command = place.command(&["run", "job.yaml"]);
        if let Some(input) = example.inputs.iter().find(|input| input.file == "stdin") {
            place.write("input", input.text.as_bytes());
            command.stdin(std::fs::File::open(place.path().join("input")).expect("the input"));
        }
        let ended = Ended::of(command.output().expect("the binary runs"));
        assert_eq!(ended.code, Some(0), "example of {}:\n{}\n{}", example.name, example.job, ended.stderr);
        for output in &example.outputs {
            let written =
                if output.file == "stdout" { ended.stdout.clone() } else { place.read(&output.file) };
            assert_eq!(written, output.text, "example of {}: {}", example.name, output.file);
        }
    }
}

/// A job that listens, with its output until it did.
struct Listening {
    child: Child,
    stderr: BufReader<ChildStderr>,
    address: SocketAddr,
}

impl Listening {
    fn start(mut command: Command, until: &str) -> Self {
        let mut child = command.env("THALWEG_LOG", "thalweg_connect=info").spawn().expect("the binary runs");
        let mut stderr = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut line = String::new();
        while !line.contains(until) {
            line.clear();
            assert_ne!(stderr.read_line(&mut line).expect("a line"), 0, "it ended before it said {until:?}");
        }
        let port = line.rsplit("127.0.0.1:").next().expect("an address").trim();
        let port = port.split(|c: char| !c.is_ascii_digit()).next().expect("a port");
        Self { child, stderr, address: SocketAddr::from(([127, 0, 0, 1], port.parse().expect("a port"))) }
    }

    /// The lines of stdout, as many as are expected; then it is asked to end, and has to end without an error.
    fn output(mut self, lines: usize) -> String {
        let mut stdout = BufReader::new(self.child.stdout.take().expect("it is piped"));
        let mut text = String::new();
        for _ in 0..lines {
            assert_ne!(stdout.read_line(&mut text).expect("a line"), 0, "it ended after {text:?}");
        }
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().expect("kill runs").success());
        let mut rest = String::new();
        stdout.read_to_string(&mut text).expect("the rest");
        self.stderr.read_to_string(&mut rest).expect("what it says");
        assert_eq!(self.child.wait().expect("it ends").code(), Some(0), "{rest}");
        text
    }
}

#[test]
fn every_example_that_listens_takes_what_is_sent() {
    let mut count = 0;
    for example in examples().iter().filter(|example| example.run == Run::ToItsEnd) {
        let Some((source, text)) = sent(example) else { continue };
        count += 1;
        let place = place(example);
        let expected =
            &example.outputs.iter().find(|output| output.file == "stdout").expect("an output").text;
        let is_http = example.job.contains("type: http");
        let listen = format!("sources.{source}.listen=127.0.0.1:0");
        let job = if is_http {
            Listening::start(
                place.command(&["run", "job.yaml", "--listen", "127.0.0.1:0"]),
                "listening on http",
            )
        } else {
            Listening::start(place.command(&["run", "job.yaml", "--set", &listen]), "listening on")
        };
        if is_http {
            let name = example.job.lines().find_map(|line| line.strip_prefix("name: ")).expect("a name");
            let url = format!("http://{}/v1/jobs/{name}/sources/{source}", job.address);
            let reply = reqwest::blocking::Client::new().post(url).body(text.to_owned()).send();
            assert_eq!(&reply.and_then(reqwest::blocking::Response::text).expect("a reply"), expected);
        } else if example.job.contains("type: tcp") {
            let mut stream = TcpStream::connect(job.address).expect("it listens");
            stream.write_all(text.as_bytes()).expect("it reads");
        } else {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
            socket.send_to(text.as_bytes(), job.address).expect("it is sent");
        }
        assert_eq!(&job.output(expected.lines().count()), expected, "example of {}", example.name);
    }
    assert_eq!(count, 3, "http, tcp and udp");
}
