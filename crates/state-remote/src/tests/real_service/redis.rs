//! State in a real Redis.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use ::redis::Connection;
use thalweg_state::testing::commit;
use thalweg_state::{Backend, Interrupt, StateError, StoreFault, Version};

use super::proxy::Proxy;
use super::*;
use crate::{Kind, Settings};

/// `host:port` of the server that all share.
fn server() -> String {
    told("THALWEG_REDIS")
}

fn settings(address: &str) -> Settings {
    Settings::new(Kind::Redis, &format!("redis://{address}")).unwrap()
}

fn connection(address: &str) -> Connection {
    let client = ::redis::Client::open(format!("redis://{address}")).unwrap();
    client.get_connection().unwrap()
}

/// A server of a test's own, which it can kill and start again on the same port with the same files.
struct Own {
    folder: tempfile::TempDir,
    port: u16,
    more: Vec<&'static str>,
    child: Child,
}

impl Own {
    fn start(more: &[&'static str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Somebody else may take the port first: then the server ends, and another port is tried.
        for _ in 0..20 {
            let port = lasting_port();
            if let Some(child) = spawn(folder.path(), port, more) {
                return Self { folder, port, more: more.to_vec(), child };
            }
        }
        panic!("no server can be started");
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn settings(&self) -> Settings {
        settings(&self.address())
    }

    /// `kill -9`.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn start_again(&mut self) {
        self.child = spawn(self.folder.path(), self.port, &self.more).expect("it starts again");
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that no process is given while the server is away: systems take those of connections from above, and a client
/// that tries again and again would in the end be given this one and meet itself.
fn lasting_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 20_000 + (std::process::id() % 5_000) as u16 * 2;
    loop {
        let port = first + NEXT.fetch_add(1, Ordering::Relaxed) % 2_000;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

fn spawn(folder: &Path, port: u16, more: &[&'static str]) -> Option<Child> {
    let mut command = Command::new(told("THALWEG_REDIS_SERVER"));
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--dir"]).arg(folder);
    command.args(more).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let client = ::redis::Client::open(format!("redis://127.0.0.1:{port}")).unwrap();
    let pinged = || client.get_connection().and_then(|mut to| ::redis::cmd("PING").exec(&mut to));
    // After the loading of its files.
    let answers = || pinged().map_or_else(|error| error.code() == Some("NOAUTH"), |()| true);
    eventually("a server", || match child.try_wait().unwrap() {
        Some(_) => Some(None),
        None => answers().then_some(Some(())),
    })?;
    Some(child)
}

const SAFE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

#[test]
#[ignore = "needs Redis"]
fn a_store_is_a_map() {
    is_a_map(&settings(&server()), 500);
}

#[test]
#[ignore = "needs Redis"]
fn cycles_larger_than_a_request_are_whole() {
    super::cycles_larger_than_a_request_are_whole(&settings(&server()), 5_000);
}

#[test]
#[ignore = "needs Redis"]
fn state_of_a_lost_folder_is_refused_until_it_may_go() {
    super::state_of_a_lost_folder_is_refused_until_it_may_go(&settings(&server()));
}

#[test]
#[ignore = "needs Redis"]
fn an_outage_is_waited_for() {
    super::an_outage_is_waited_for(settings(&server()), &Proxy::start(&server()));
}

#[test]
#[ignore = "needs Redis"]
fn a_start_fails_at_once_and_an_end_ends_the_wait() {
    super::a_start_fails_at_once_and_an_end_ends_the_wait(settings(&server()), &Proxy::start(&server()));
}

#[test]
#[ignore = "needs Redis"]
fn a_server_that_is_killed_has_what_it_acknowledged() {
    let mut own = Own::start(&SAFE);
    let ground = ground(&own.settings());
    let mut state = State::new();
    let mut version: Option<Version> = None;
    for round in 0..4 {
        let backend = ground.open(version.as_ref()).unwrap();
        assert_values(backend.as_ref(), &state, &keys(400));
        let cycle = 10 * round;
        commit(backend.as_ref(), cycle + 1, &changes(cycle + 1, 400));
        apply(&mut state, &changes(cycle + 1, 400));
        // Acknowledged, and named by a commit record, but not folded; and a part that no commit will name.
        backend.write(cycle + 2, &changes(cycle + 2, 400)).unwrap();
        version = Some(backend.prepare(cycle + 2).unwrap());
        apply(&mut state, &changes(cycle + 2, 400));
        backend.write(cycle + 3, &changes(cycle + 3, 400)).unwrap();
        own.kill();
        if round % 2 == 0 {
            // The process dies too.
            drop(backend);
            own.start_again();
        } else {
            // It lives, and waits.
            let writing = std::thread::spawn(move || backend.committed(cycle + 2).map(|()| backend));
            own.start_again();
            let backend = writing.join().unwrap().unwrap();
            let mut ahead = state.clone();
            apply(&mut ahead, &changes(cycle + 3, 400));
            assert_values(backend.as_ref(), &ahead, &keys(400));
        }
    }
}

#[test]
#[ignore = "needs Redis"]
fn a_server_that_forgot_is_found_out() {
    let mut own = Own::start(&["--appendonly", "no"]);
    let ground = ground(&own.settings());
    let backend = ground.open(None).unwrap();
    let version = commit(backend.as_ref(), 1, &changes(1, 20));
    own.kill();
    own.start_again();
    let damaged = |error: StateError| {
        assert!(matches!(error, StateError::Store { fault: StoreFault::Damaged, .. }), "{error}");
        let said = format!("of task {}: expected one, got none", ground.task);
        assert!(error.to_string().ends_with(&said), "{error}");
    };
    damaged(backend.get(&key(1)).unwrap_err());
    damaged(backend.prepare(2).unwrap_err());
    damaged(ground.open(Some(&version)).unwrap_err());
}

#[test]
#[ignore = "needs Redis"]
fn a_server_without_memory_is_waited_for_and_reads_go_on() {
    let own = Own::start(&SAFE);
    let ground = ground(&own.settings());
    let backend: Arc<dyn Backend> = ground.open(None).unwrap().into();
    commit(backend.as_ref(), 1, &changes(1, 20));
    let set = |bytes: u64| {
        let mut to = connection(&own.address());
        ::redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(bytes).exec(&mut to).unwrap();
    };
    set(1);
    let writing = std::thread::spawn({
        let backend = Arc::clone(&backend);
        move || backend.write(2, &changes(2, 20))
    });
    let errors = || {
        let mut to = connection(&own.address());
        let said: String = ::redis::cmd("INFO").arg("errorstats").query(&mut to).unwrap();
        let line = said.lines().find_map(|line| line.strip_prefix("errorstat_OOM:count="));
        line.and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or_default()
    };
    eventually("refused writes", || (errors() >= 2).then_some(()));
    assert!(!writing.is_finished());
    assert!(backend.get(&key(1)).unwrap().is_some());
    set(0);
    writing.join().unwrap().unwrap();
    backend.prepare(2).unwrap();
}

#[test]
#[ignore = "needs Redis"]
fn who_may_not_is_told_so_and_no_secret() {
    let own = Own::start(&["--requirepass", "right", "--appendonly", "yes"]);
    let mut settings = own.settings();
    let none = refusal(&settings);
    assert!(none.to_string().contains("NOAUTH"), "{none}");
    assert_eq!(none.hint(), Some("look at user and password"));
    settings.password = Some("canary-5b1e".to_owned());
    let wrong = refusal(&settings);
    assert_eq!(wrong.hint(), Some("look at user and password"));
    assert!(!format!("{wrong:?}").contains("canary"), "{wrong:?}");
    settings.password = Some("right".to_owned());
    let remote = Remote::connect(&settings, Interrupt::default()).unwrap();
    assert!(!format!("{remote:?}").contains("right"), "{remote:?}");
    commit(Remotes::of_its_own(remote).open(None).unwrap().as_ref(), 1, &changes(1, 3));
    // A user without the right to ask for settings, or for keys of others, works.
    let mut to =
        ::redis::Client::open(format!("redis://:right@{}", own.address())).unwrap().get_connection().unwrap();
    let rules = ["on", ">pw", "~thalweg:*", "+@read", "+@write", "+@scripting", "+@connection"];
    ::redis::cmd("ACL").arg("SETUSER").arg("state").arg(&rules).exec(&mut to).unwrap();
    (settings.user, settings.password) = (Some("state".to_owned()), Some("pw".to_owned()));
    let ground = Remotes::of_its_own(Remote::connect(&settings, Interrupt::default()).unwrap());
    let version = commit(ground.open(None).unwrap().as_ref(), 1, &changes(1, 3));
    ground.open(Some(&version)).unwrap();
    // A user that may not write gets an error.
    ::redis::cmd("ACL").arg("SETUSER").arg("state").arg("-@write").exec(&mut to).unwrap();
    let error = ground.open(Some(&version)).unwrap_err();
    assert!(matches!(error, StateError::Store { fault: StoreFault::Refused, .. }), "{error}");
    assert!(error.hint().unwrap().contains("thalweg:*"), "{error}");
}

#[test]
#[ignore = "needs Redis"]
fn a_server_that_throws_state_away_is_refused() {
    let own = Own::start(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let error = refusal(&own.settings());
    assert!(error.to_string().ends_with("got maxmemory-policy allkeys-lru"), "{error}");
}

#[test]
#[ignore = "needs Redis"]
fn keys_of_others_are_left_alone() {
    let own = Own::start(&SAFE);
    let mut to = connection(&own.address());
    ::redis::cmd("SET").arg("thalweg:other").arg("mine").exec(&mut to).unwrap();
    let mut all = || {
        let mut keys: Vec<String> = ::redis::cmd("KEYS").arg("*").query(&mut to).unwrap();
        keys.sort();
        keys
    };
    let one = ground(&own.settings());
    let first = one.open(None).unwrap();
    let version = commit(first.as_ref(), 1, &changes(1, 50));
    let of_one = all();
    let begin = format!("thalweg:{{{}:", one.task);
    let mut names: Vec<_> =
        of_one.iter().map(|key| key.strip_prefix(&begin).map_or("", |rest| &rest[17..])).collect();
    names.sort_unstable();
    // The claim is a head.
    assert_eq!(names, ["", ":head", ":head", ":rows"]);
    // Another job.
    let two = ground(&own.settings());
    for _ in 0..3 {
        commit(two.open(None).unwrap().as_ref(), 1, &changes(2, 50));
    }
    assert_eq!(all().len(), 7, "what an earlier start left is gone");
    assert!(of_one.iter().all(|key| all().contains(key)));
    let again = one.open(Some(&version)).unwrap();
    let mut state = State::new();
    apply(&mut state, &changes(1, 50));
    assert_values(again.as_ref(), &state, &keys(50));
}

#[test]
#[ignore = "needs Redis"]
fn a_late_request_changes_nothing() {
    let ground = ground(&settings(&server()));
    let backend = ground.open(None).unwrap();
    let number = crate::space::read(&ground.place).unwrap().unwrap();
    let space =
        crate::store::Space { task: ground.task.as_str().into(), identity: ground.place.identity, number };
    let late = ground.remote.server.space(space);
    let older = late.head().unwrap().unwrap();
    let version = commit(backend.as_ref(), 1, &changes(1, 10));
    let newer = late.head().unwrap().unwrap();
    let backend = ground.open(Some(&version)).unwrap();
    for head in [older, newer] {
        let stored = crate::pack::stored(&key(1), b"late");
        assert!(!late.apply(&head, 2, &[(&key(1), Some(stored)), (&key(2), None)]).unwrap());
        assert!(!late.set_head(Some(&head), b"late").unwrap());
    }
    let mut state = State::new();
    apply(&mut state, &changes(1, 10));
    assert_values(backend.as_ref(), &state, &keys(10));
    // What was done already is done: the answer was lost.
    let mine = late.head().unwrap().unwrap();
    assert!(late.set_head(Some(b"whatever"), &mine).unwrap());
}
