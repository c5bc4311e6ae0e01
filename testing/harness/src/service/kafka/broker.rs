//! A broker in a folder of its own, whose process comes and goes. Ports and data stay.
//!
//! What a signal means to it
//! * SIGKILL: what it had taken is in its files, since the machine goes on. Its controller remembers it for a few seconds
//!   and does not let it register again meanwhile: it is up five seconds after it was started.
//! * SIGSTOP: connections stay open and are not answered. After a long pause its controller takes it off the list for a
//!   moment, as of a machine that hung.
//! * SIGTERM: it writes everything and ends within a second, and starts in three.

use std::fs::OpenOptions;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use super::super::{Found, GRACE, await_up, finish};
use super::settings::{GUEST, Ports, Settings, USER};
use super::{Release, certificates, find, metadata, tool};
use crate::process;
use crate::way::Way;

/// A broker, alone or one of some. Its process ends when this is dropped, and its folder is deleted then, unless a test panics. The
/// process also ends together with the thread that started it.
pub struct Broker {
    jars: PathBuf,
    ports: Ports,
    password: String,
    /// Some unless it was killed or stopped.
    child: Option<Child>,
    folder: TempDir,
}

impl Broker {
    /// Starts a fresh one below `parent`, and waits until it is up. Whether it can be had at all says [`find`].
    ///
    /// # Errors
    /// Where it cannot be had or does not start.
    pub fn start(release: Release, parent: &Path) -> Result<Self> {
        Self::start_with(&jars(release)?, parent)
    }

    pub(super) fn start_with(jars: &Path, parent: &Path) -> Result<Self> {
        let [broker] = Self::start_together(jars, parent)?;
        Ok(broker)
    }

    /// Starts some that have a copy of everything each, as [`Self::start`] does one.
    ///
    /// # Errors
    /// As for one.
    pub fn start_some<const N: usize>(release: Release, parent: &Path) -> Result<[Self; N]> {
        Self::start_together(&jars(release)?, parent)
    }

    fn start_together<const N: usize>(jars: &Path, parent: &Path) -> Result<[Self; N]> {
        let cluster = cluster_id();
        let ports: Vec<Ports> = std::iter::repeat_with(Ports::free).take(N).collect::<Result<_>>()?;
        let controllers: Vec<String> = ports.iter().map(|ports| ports.address(ports.controller)).collect();
        let mut brokers = Vec::with_capacity(N);
        for (place, ports) in ports.into_iter().enumerate() {
            let folder =
                tempfile::Builder::new().prefix("kafka-").tempdir_in(parent).context("make a folder")?;
            let path = folder.path();
            certificates::make(path).context("make certificates")?;
            let password = format!("pw-{}", std::process::id());
            let settings = Settings {
                folder: path,
                place,
                controllers: &controllers,
                ports: &ports,
                password: &password,
            };
            let text = settings.text();
            let broker = Self { jars: jars.to_owned(), ports, password, child: None, folder };
            std::fs::write(broker.settings(), text).context("write its settings")?;
            broker.format(&cluster)?;
            brokers.push(broker);
        }
        // Most of their controllers have to run before any is up.
        brokers.iter_mut().try_for_each(Self::launch)?;
        brokers.iter_mut().try_for_each(Self::bring_up)?;
        let brokers = brokers.try_into();
        Ok(brokers.unwrap_or_else(|_| unreachable!("one was made for each place")))
    }

    /// Host and port without encryption or users, where a client may do anything.
    pub fn address(&self) -> String {
        self.ports.address(self.ports.plain)
    }

    /// Host and port where clients name their user.
    pub fn sasl_address(&self) -> String {
        self.ports.address(self.ports.sasl)
    }

    /// Host and port with TLS.
    pub fn ssl_address(&self) -> String {
        self.ports.address(self.ports.ssl)
    }

    /// Host and port with TLS where clients name their user.
    pub fn sasl_ssl_address(&self) -> String {
        self.ports.address(self.ports.sasl_ssl)
    }

    /// A way to it that can be cut: clients that come by that go by no other one.
    ///
    /// # Errors
    /// Where there is one.
    pub fn way(&self) -> Result<Way> {
        let [end, begin] = self.ports.way;
        Way::open(begin, SocketAddr::from((Ipv4Addr::LOCALHOST, end)))
    }

    /// That of both users, `thalweg` and `guest`.
    pub fn password(&self) -> &str {
        &self.password
    }

    pub(super) fn certificate(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Of its process, while it has one.
    pub fn id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Whether it answers, and is on the list of brokers that it answers with.
    pub fn is_up(&self) -> bool {
        metadata::brokers(&self.address()).is_ok_and(|count| count > 0)
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            process::kill(&child);
            let _ = child.wait();
        }
    }

    /// Asks it to end, and does not wait: [`Self::launch`] starts it again once it has.
    pub fn ask_to_end(&self) {
        self.child.iter().for_each(process::terminate);
    }

    /// Asks it to end, and waits until it has; one that takes too long is killed.
    pub fn stop(&mut self) {
        let Some(child) = &mut self.child else { return };
        process::terminate(child);
        // One that is paused notices only then.
        process::resume(child);
        let asked = Instant::now();
        while matches!(child.try_wait(), Ok(None)) && asked.elapsed() < GRACE {
            std::thread::sleep(Duration::from_millis(20));
        }
        self.kill();
    }

    /// Lets it hang until [`Self::resume`].
    pub fn pause(&self) {
        self.child.iter().for_each(process::pause);
    }

    pub fn resume(&self) {
        self.child.iter().for_each(process::resume);
    }

    /// Stops it if it runs, starts it again on the same data and ports, and waits until it is up.
    ///
    /// # Errors
    /// Where it does not start.
    pub fn restart(&mut self) -> Result<()> {
        self.stop();
        self.bring_up()
    }

    /// Starts it if it does not run; [`Self::is_up`] says when that has come to something.
    ///
    /// # Errors
    /// Where there is no such program.
    pub fn launch(&mut self) -> Result<()> {
        if let Some(child) = &mut self.child
            && child.try_wait()?.is_none()
        {
            return Ok(());
        }
        let log = OpenOptions::new().create(true).append(true).open(self.log()).context("make a log")?;
        let mut server = Command::new("java");
        server.args(["-Xmx512m", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.showDateTime=true"]);
        server.arg("-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS");
        // It unpacks libraries, which a kill would leave there.
        server.arg(format!("-Djava.io.tmpdir={}", self.folder.path().display()));
        server.arg("-cp").arg(format!("{}/*", self.jars.display())).arg("kafka.Kafka").arg(self.settings());
        server.current_dir(self.folder.path());
        server.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        process::tie(&mut server);
        self.child = Some(server.spawn().context("start the broker")?);
        Ok(())
    }

    fn bring_up(&mut self) -> Result<()> {
        self.launch()?;
        let (log, address) = (self.log(), self.address());
        let child = self.child.as_mut().context("a broker was started")?;
        await_up(child, &log, || metadata::brokers(&address).is_ok_and(|count| count > 0))
    }

    /// Runs a class of Kafka's with its arguments, and gives what it says, such as
    /// `["org.apache.kafka.tools.TopicCommand", "--bootstrap-server", "127.0.0.1:9092", "--list"]`.
    ///
    /// # Errors
    /// Where it ends badly, with all that it said.
    pub fn tool(&self, class_and_arguments: &[&str]) -> Result<String> {
        let mut tool = tool(&self.jars);
        let output = tool.args(class_and_arguments).stdin(Stdio::null()).output().context("start java")?;
        let said = String::from_utf8(output.stdout).context("read what a tool says")?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "{class_and_arguments:?} ended with {}: {said}{complaint}",
            output.status
        );
        Ok(said)
    }

    /// Makes a topic, with settings such as `retention.bytes=1000`.
    ///
    /// # Errors
    /// Where there is one already, or the broker is not up.
    pub fn create_topic(&self, name: &str, partitions: u32, settings: &[&str]) -> Result<()> {
        let (address, partitions) = (self.address(), partitions.to_string());
        let mut words = vec!["org.apache.kafka.tools.TopicCommand", "--bootstrap-server", &address];
        words.extend(["--create", "--topic", name, "--partitions", &partitions]);
        words.extend(settings.iter().flat_map(|setting| ["--config", setting]));
        self.tool(&words).map(|_| ())
    }

    /// Lays out its files, with the users whose passwords it keeps as SCRAM does.
    fn format(&self, cluster: &str) -> Result<()> {
        let mut format = tool(&self.jars);
        format.args(["kafka.tools.StorageTool", "format", "--cluster-id", cluster, "--config"]);
        format.arg(self.settings());
        for user in [USER, GUEST] {
            for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-512"] {
                let password = &self.password;
                format.arg("--add-scram").arg(format!("{mechanism}=[name={user},password={password}]"));
            }
        }
        finish(format, &self.folder.path().join("format.log")).context("lay out its files")
    }

    fn settings(&self) -> PathBuf {
        self.folder.path().join("server.properties")
    }

    /// For all that its processes say.
    pub fn log(&self) -> PathBuf {
        self.folder.path().join("broker.log")
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.kill();
        // A test that fails may fail for what the broker has, or has lost.
        if std::thread::panicking() {
            self.folder.disable_cleanup(true);
        }
    }
}

fn jars(release: Release) -> Result<PathBuf> {
    match find(release)? {
        Found::At(jars) => Ok(jars),
        Found::Missing(reason) => bail!("no Kafka {}: {reason}", release.version()),
    }
}

/// 16 bytes in base64, as it wants them.
fn cluster_id() -> String {
    let mut id: String = std::iter::repeat_with(fastrand::alphanumeric).take(21).collect();
    // The last one stands for two bits.
    id.push('A');
    id
}
