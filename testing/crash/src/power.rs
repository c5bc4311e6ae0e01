//! A file system whose power can be cut: ext4 in a loop file, shut down by ioctl and mounted again.
//!
//! The whole process runs in a mount namespace of its own (see [`in_namespace`]), and the loop device goes with its
//! mount: so nothing is left, however we end.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use thalweg_harness::process::{self, Shutdown};
use thalweg_harness::project;

/// Enough for a round, and quickly made.
const BYTES: u64 = 192 << 20;

/// How often unmounting is tried, 10 ms apart: what a killed process had open is closed a little later.
const TRIES: u32 = 500;

pub(super) struct Power {
    image: PathBuf,
    mount: PathBuf,
}

/// Why power cannot be cut here, if so.
pub(crate) fn missing() -> Option<String> {
    if !is_root() {
        return Some("it takes root".to_owned());
    }
    let programs = ["unshare", "losetup", "mount", "umount", "mkfs.ext4"];
    if let Some(program) = programs.into_iter().find(|program| !project::has(program)) {
        return Some(format!("there is no {program}"));
    }
    let works = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "losetup", "--find"])
        .output()
        .is_ok_and(|output| output.status.success());
    (!works).then(|| "there is no mount namespace or loop device to be had".to_owned())
}

pub(crate) fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// Starts this program again, with these arguments, in a mount namespace of its own.
pub(super) fn in_namespace(arguments: &[String]) -> Result<ExitStatus> {
    // Not by its path: a suite before this one may have built the program anew in its place.
    let program = format!("/proc/{}/exe", std::process::id());
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private"]).arg(program).args(arguments);
    command.status().context("start unshare")
}

impl Power {
    /// Makes the file system and mounts it.
    pub(super) fn open(folder: &Path) -> Result<Self> {
        let power = Self { image: folder.join("disk.ext4"), mount: folder.join("disk") };
        std::fs::create_dir_all(&power.mount)?;
        File::create(&power.image)?.set_len(BYTES)?;
        run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&power.image))?;
        power.mount()?;
        Ok(power)
    }

    /// Where it is mounted.
    pub(super) fn path(&self) -> &Path {
        &self.mount
    }

    /// Syncs all changes of folders so far, so that no cut undoes them: files of an earlier round would
    /// come back.
    pub(super) fn sync(&self) -> Result<()> {
        process::sync(&File::open(&self.mount)?).context("sync the file system")
    }

    /// Cuts the power: nothing reaches the disk any more, and every sync fails.
    pub(super) fn cut(&self, how: Shutdown) -> Result<()> {
        let folder = File::open(&self.mount)?;
        process::shut_down(&folder, how).context("shut the file system down")
    }

    /// Brings it back as a machine would that starts again. Nobody has a file of it open.
    pub(super) fn restore(&self) -> Result<()> {
        self.unmount()?;
        self.mount()
    }

    fn mount(&self) -> Result<()> {
        run(Command::new("mount").args(["-t", "ext4", "-o", "loop"]).arg(&self.image).arg(&self.mount))
    }

    fn unmount(&self) -> Result<()> {
        for _ in 1..TRIES {
            if Command::new("umount").arg(&self.mount).output()?.status.success() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(10));
        }
        run(Command::new("umount").arg(&self.mount))
    }
}

impl Drop for Power {
    fn drop(&mut self) {
        // The namespace goes in any case, and takes the mount along.
        let _ = self.unmount();
        let _ = std::fs::remove_file(&self.image);
    }
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("start {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} ended with {}: {}", output.status, said.trim());
    Ok(())
}
