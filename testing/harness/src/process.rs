//! What the standard library does not hand out: signals to groups of processes, children that end with their parent,
//! and the power cut of ext4.

#![expect(unsafe_code, reason = "signals to process groups, prctl and ioctl are plain system calls")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus};

/// `_IOR('X', 125, u32)`.
const EXT4_IOC_SHUTDOWN: libc::c_ulong = 0x8004_587d;

/// How a file system is shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// What its journal holds is written first: changes of names and lengths survive, bytes that were not synced do not.
    FlushLog = 1,
    /// Nothing is written any more.
    Now = 2,
}

/// A group of its own for the command, which ends when we do, however we end.
pub fn tie(command: &mut Command) {
    command.process_group(0);
    // SAFETY: between fork and exec only one system call is made, with plain numbers; nothing is allocated.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
}

/// Kills the child and everything in its group, at once.
pub fn kill(child: &Child) {
    signal(child, libc::SIGKILL);
}

/// Kills the child and everything in its group, and waits until all of them are gone: what they listened at is free
/// then, as is what they had locked. A process under strace ends a moment after strace.
///
/// # Errors
/// What the kernel says.
pub fn end(child: &mut Child) -> io::Result<ExitStatus> {
    // Orphans of the group become our children, so that they can be waited for.
    // SAFETY: a plain system call with plain numbers.
    if unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) } != 0 {
        return Err(io::Error::last_os_error());
    }
    kill(child);
    let status = child.wait()?;
    let group = libc::pid_t::try_from(child.id()).map_err(io::Error::other)?;
    loop {
        // SAFETY: the status is not asked for. The group's number is its own as long as one of it is left.
        if unsafe { libc::waitpid(-group, std::ptr::null_mut(), 0) } == -1 {
            match io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::ECHILD) => return Ok(status),
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            }
        }
    }
}

/// Asks the child and everything in its group to end.
pub fn terminate(child: &Child) {
    signal(child, libc::SIGTERM);
}

/// Interrupts the child and everything in its group.
pub fn interrupt(child: &Child) {
    signal(child, libc::SIGINT);
}

/// Stops the child and everything in its group where they are, until [`resume`].
pub fn pause(child: &Child) {
    signal(child, libc::SIGSTOP);
}

/// Lets a paused child and its group go on.
pub fn resume(child: &Child) {
    signal(child, libc::SIGCONT);
}

fn signal(child: &Child, signal: libc::c_int) {
    if let Ok(group) = libc::pid_t::try_from(child.id()) {
        // SAFETY: the child has not been waited for, so its number, which its group has too, is still its own.
        unsafe { libc::kill(-group, signal) };
    }
}

/// Syncs the whole file system that `folder` is on.
///
/// # Errors
/// What the kernel says.
pub fn sync(folder: &File) -> io::Result<()> {
    // SAFETY: a plain system call on an open file.
    match unsafe { libc::syncfs(folder.as_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Cuts the power of the file system that `folder` is on: from now on nothing reaches it.
///
/// # Errors
/// What the kernel says, which needs root.
pub fn shut_down(folder: &File, how: Shutdown) -> io::Result<()> {
    let flags = how as u32;
    // SAFETY: this ioctl reads four bytes from the pointer, which is to a live number.
    match unsafe { libc::ioctl(folder.as_raw_fd(), EXT4_IOC_SHUTDOWN, &raw const flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::Stdio;

    use super::*;

    #[test]
    fn a_group_is_gone_in_whole_once_it_was_ended() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600 & echo $!; wait"]).stdin(Stdio::null()).stdout(Stdio::piped());
        tie(&mut command);
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let second: libc::pid_t = line.trim().parse().unwrap();
        assert!(!end(&mut child).unwrap().success());
        // SAFETY: no signal is sent.
        let found = unsafe { libc::kill(second, 0) };
        assert_eq!(found, -1, "process {second} is there, or nobody waited for it");
    }
}
