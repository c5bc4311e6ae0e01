//! A disk of any chosen speed: ext4 in a loop file, whose writes the kernel paces for one control group.
//!
//! The mount is in a namespace of the program that uses it and goes with it, and the loop device goes with the
//! mount; the group goes when this is dropped. So nothing else on the machine is slowed, and nothing is left.
//!
//! It takes root, and the `blkio` controller of control groups, version 1.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use thalweg_harness::project;

const CONTROLLER: &str = "/sys/fs/cgroup/blkio";
const LIMIT: &str = "blkio.throttle.write_bps_device";

/// Bytes of the file system; its file is sparse.
const BYTES: u64 = 4 << 30;

/// How often something is tried, 10 ms apart, that another process has to do first.
const TRIES: u32 = 500;

/// Makes the mount and joins the group, then becomes the program: image, mount, group, program, its arguments.
const START: &str =
    r#"mount -t ext4 -o loop "$1" "$2" && echo $$ > "$3/cgroup.procs" && shift 3 && exec "$@""#;

pub(super) struct SlowDisk {
    image: PathBuf,
    mount: PathBuf,
    group: PathBuf,
}

/// Why there can be none here, if so.
pub(super) fn missing() -> Option<String> {
    if !fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0) {
        return Some("a slow disk takes root".to_owned());
    }
    if !Path::new(CONTROLLER).join(LIMIT).exists() {
        return Some(format!("there is no {LIMIT} in {CONTROLLER} (control groups, version 1)"));
    }
    let programs = ["unshare", "mount", "mkfs.ext4"];
    let program = programs.into_iter().find(|program| !project::has(program))?;
    Some(format!("there is no {program}"))
}

impl SlowDisk {
    /// Makes the file system in `folder`, and the group.
    pub(super) fn make(folder: &Path) -> Result<Self> {
        let group = Path::new(CONTROLLER).join(format!("thalweg-bench-{}", std::process::id()));
        let disk = Self { image: folder.join("slow.ext4"), mount: folder.join("slow"), group };
        fs::create_dir_all(&disk.mount)?;
        File::create(&disk.image)?.set_len(BYTES)?;
        let output = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&disk.image).output()?;
        ensure!(output.status.success(), "mkfs.ext4: {}", String::from_utf8_lossy(&output.stderr).trim());
        fs::create_dir_all(&disk.group).with_context(|| format!("create {}", disk.group.display()))?;
        Ok(disk)
    }

    /// Where a program that was started by [`Self::command`] finds it.
    pub(super) fn path(&self) -> &Path {
        &self.mount
    }

    /// A program that has the disk, to which arguments are to be added; the process is the program's own.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", START, "sh"]);
        command.arg(&self.image).arg(&self.mount).arg(&self.group).arg(program);
        command
    }

    /// Limits writes to this number of bytes a second, once a program has mounted the disk.
    pub(super) fn limit(&self, bytes_per_second: u64) -> Result<()> {
        let device = (0..TRIES).find_map(|turn| {
            if turn > 0 {
                thread::sleep(Duration::from_millis(10));
            }
            self.device()
        });
        let device = device.with_context(|| format!("nothing has mounted {}", self.image.display()))?;
        let path = self.group.join(LIMIT);
        fs::write(&path, format!("{device} {bytes_per_second}\n"))
            .with_context(|| format!("write {}", path.display()))
    }

    /// Numbers of the loop device over the image, such as `7:3`.
    fn device(&self) -> Option<String> {
        let image = self.image.canonicalize().ok()?;
        for entry in fs::read_dir("/sys/block").ok()?.flatten() {
            let backing = fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
            if Path::new(backing.trim_end()) == image {
                let device = fs::read_to_string(entry.path().join("dev")).ok()?;
                return Some(device.trim().to_owned());
            }
        }
        None
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        // The group is busy until its last process has been waited for and is gone.
        for _ in 0..TRIES {
            if fs::remove_dir(&self.group).is_ok() || !self.group.exists() {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        let _ = fs::remove_file(&self.image);
        let _ = fs::remove_dir(&self.mount);
    }
}
