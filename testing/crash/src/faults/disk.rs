//! Disks that are full, that cannot be written, or that belong to another user.
//!
//! A disk is a file, mounted in a namespace of the program's own: it goes with the program, and leaves nothing.

use std::fs::File;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::job::{Bench, Ended, Place};
use crate::power;
use thalweg_harness::project;

/// The user that owns nothing.
const NOBODY: u32 = 65_534;

pub(super) fn missing() -> Option<String> {
    power::missing()
}

pub(super) fn no_other_user() -> Option<String> {
    match power::is_root() {
        false => None,
        true if project::has("setpriv") => None,
        true => Some("root may do everything, and there is no setpriv".to_owned()),
    }
}

/// A small disk in a file.
pub(super) struct Disk {
    image: PathBuf,
    pub(super) mount: PathBuf,
}

impl Disk {
    pub(super) fn make(place: &Place, bytes: u64) -> Result<Self> {
        let disk = Self { image: place.folder.join("disk.ext4"), mount: place.folder.join("disk") };
        std::fs::create_dir(&disk.mount)?;
        File::create(&disk.image)?.set_len(bytes)?;
        let made = Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(&disk.image).output()?;
        ensure!(made.status.success(), "mkfs.ext4: {}", String::from_utf8_lossy(&made.stderr));
        Ok(disk)
    }

    /// What runs a program with the disk mounted; `before` is done first, by a shell in its folder.
    pub(super) fn with(&self, options: &str, before: &str) -> Vec<String> {
        self.by(&format!(r#"mount -t ext4 -o {options} "$1" "$2"; (cd "$2"; {before}); shift 2; exec "$@""#))
    }

    /// The command that runs a program with the disk mounted, until it has written something into `file`: then the disk
    /// is made to report an error in itself, and becomes read-only under all that is open, as no remount could make it.
    /// The first calls may hear of that error instead; so once the program has failed, it is started again.
    fn failing_behind(&self, file: &Path) -> Vec<String> {
        self.by(&format!(
            r#"mount -t ext4 -o loop,errors=remount-ro "$1" "$2"
            device=$(findmnt --noheadings --output SOURCE "$2")
            shift 2; "$@" & job=$!; tries=0
            until [ -s '{}' ]; do tries=$((tries + 1)); [ $tries -lt 6000 ]; sleep 0.01; done
            echo 1 > "/sys/fs/ext4/${{device##*/}}/trigger_fs_error"
            code=0; wait $job || code=$?
            [ $code -eq 1 ] || exit $code
            exec "$@""#,
            file.display()
        ))
    }

    /// A shell's script in a namespace of its own; after image and mount point comes a program with its arguments.
    fn by(&self, script: &str) -> Vec<String> {
        let words = ["unshare", "--mount", "--propagation", "private", "sh", "-euc", script, "sh"];
        let mut words: Vec<String> = words.map(str::to_owned).to_vec();
        words.extend([&self.image, &self.mount].map(|path| path.display().to_string()));
        words
    }

    /// Runs a shell's command on the mounted disk.
    fn run(&self, command: &str) -> Result<()> {
        let words = self.with("loop", command);
        let output = Command::new(&words[0]).args(&words[1..]).arg("true").output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{command}: {}", said.trim());
        Ok(())
    }
}

/// Fills the disk but for `kib` KiB; the file system's own bookkeeping may leave less.
pub(super) fn fill_but(kib: u64) -> String {
    format!(
        "left=$(stat -f -c '%a * %S / 1024' . | xargs -I X sh -c 'echo $((X))'); \
         dd if=/dev/zero of=filler bs=1024 count=$((left - {kib})) 2>/dev/null || true"
    )
}

pub(super) fn data_full(bench: &Bench) -> Result<()> {
    let mut place = bench.place("data-full")?;
    let disk = Disk::make(&place, 64 << 20)?;
    place.data = disk.mount.join("data");
    ensure!(bench.data_kib > 100, "{} KiB of data are too little to run out of room", bench.data_kib);
    // From no room at all to room for the beginning. How much a run takes depends on how many cycles it has, and so on what
    // else the machine does.
    for kib in [0, bench.data_kib / 40, bench.data_kib / 10] {
        let prepare = format!("rm -f filler; {}", fill_but(kib));
        let ended = bench.job(&place, &disk.with("loop", &prepare))?;
        has_no_room(&ended, &disk).with_context(|| format!("with {kib} KiB left"))?;
    }
    bench.recovers(&place, &disk.with("loop", "rm filler"))
}

/// Different files say it in different words.
fn has_no_room(ended: &Ended, disk: &Disk) -> Result<()> {
    ended.ends_with(1, &["\"", &disk.mount.display().to_string()])?;
    let said = &ended.said;
    ensure!(said.contains("No space left on device") || said.contains("disk full"), "no reason in {said}");
    ensure!(said.contains("hint: make room") || said.contains("hint: free space"), "no way out in {said}");
    Ok(())
}

pub(super) fn sink_full(bench: &Bench) -> Result<()> {
    let mut place = bench.place("sink-full")?;
    let disk = Disk::make(&place, 64 << 20)?;
    // Where the outputs are on a disk of their own they have to be fetched from it.
    let out = std::mem::replace(&mut place.out, disk.mount.clone());
    for kib in [0, 500] {
        let ended = bench.job(&place, &disk.with("loop", &format!("rm -f filler; {}", fill_but(kib))))?;
        let parts = ["write \"", ".ndjson\"", "No space left on device", "make room on the disk"];
        ended.ends_with(1, &parts).with_context(|| format!("with {kib} KiB left"))?;
    }
    bench.job(&place, &disk.with("loop", "rm filler"))?.ends_with(0, &[])?;
    disk.run(&format!("cp *.ndjson {}", out.display()))?;
    place.out = out;
    bench.is_whole(&place)
}

pub(super) fn read_only(bench: &Bench) -> Result<()> {
    let mut place = bench.place("read-only")?;
    let disk = Disk::make(&place, 64 << 20)?;
    place.data = disk.mount.join("data");
    let parts = ["Read-only file system", "\"", &disk.mount.display().to_string(), "mount"];
    bench
        .job(&place, &disk.with("loop,ro", "true"))?
        .ends_with(1, &parts)
        .context("before there is anything")?;
    // So that there is something: no room ends it in the middle.
    bench.job(&place, &disk.with("loop", &fill_but(bench.data_kib / 10)))?.ends_with(1, &[])?;
    disk.run("rm filler")?;
    bench.job(&place, &disk.with("loop,ro", "true"))?.ends_with(1, &parts)?;
    bench.recovers(&place, &disk.with("loop", "true"))
}

pub(super) fn no_disk_that_fails() -> Option<String> {
    missing().or_else(|| (!project::has("findmnt")).then(|| "there is no findmnt".to_owned()))
}

pub(super) fn becomes_read_only(bench: &Bench) -> Result<()> {
    let mut place = bench.place("data-becomes-read-only")?;
    let disk = Disk::make(&place, 64 << 20)?;
    place.data = disk.mount.join("data");
    let parts = ["Read-only file system", "\"", &disk.mount.display().to_string(), "mount"];
    bench.job(&place, &disk.failing_behind(&place.out.join("answers.ndjson")))?.ends_with(1, &parts)?;
    bench.recovers(&place, &disk.with("loop", "true")).context("the data directory")?;

    let mut place = bench.place("sink-becomes-read-only")?;
    let disk = Disk::make(&place, 64 << 20)?;
    let out = std::mem::replace(&mut place.out, disk.mount.clone());
    let parts = ["Read-only file system", "\"", &disk.mount.display().to_string()];
    bench.job(&place, &disk.failing_behind(&disk.mount.join("answers.ndjson")))?.ends_with(1, &parts)?;
    bench.job(&place, &disk.with("loop", "true"))?.ends_with(0, &[])?;
    disk.run(&format!("cp *.ndjson {}", out.display()))?;
    place.out = out;
    bench.is_whole(&place).context("the sinks")
}

pub(super) fn not_allowed(bench: &Bench) -> Result<()> {
    let place = bench.place("not-allowed")?;
    let is_root = power::is_root();
    let own = |path: &Path, user: Option<u32>| match is_root {
        true => chown(path, user, user).with_context(|| format!("give away {}", path.display())),
        false => Ok(()),
    };
    let under: Vec<String> = match is_root {
        true => ["setpriv", "--reuid", &NOBODY.to_string(), "--regid", &NOBODY.to_string(), "--clear-groups"]
            .map(str::to_owned)
            .to_vec(),
        false => Vec::new(),
    };
    own(&place.folder, Some(NOBODY))?;
    std::fs::create_dir(&place.data)?;
    own(&place.data, Some(0))?;
    let mode = |mode| std::fs::set_permissions(&place.data, PermissionsExt::from_mode(mode));
    mode(if is_root { 0o755 } else { 0o500 })?;
    let parts = ["Permission denied", &place.data.display().to_string(), "permissions"];
    bench.job(&place, &under)?.ends_with(1, &parts)?;
    own(&place.data, Some(NOBODY))?;
    mode(0o700)?;
    bench.recovers(&place, &under)
}
