//! What a finished process used, as the kernel counted it.

#![expect(unsafe_code, reason = "the standard library does not hand out a child's resource usage")]

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus};
use std::time::Duration;

/// Resources of a process and the children that it waited for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// The most memory that was resident at once, in bytes.
    pub(crate) peak_bytes: u64,
    /// Processor time, its own and the kernel's for it.
    pub(crate) cpu: Duration,
}

/// Waits for a child and takes what it used.
pub(super) fn wait(child: &Child) -> io::Result<(ExitStatus, Usage)> {
    let pid = libc::pid_t::try_from(child.id()).map_err(io::Error::other)?;
    let mut status = 0;
    // SAFETY: `rusage` is plain numbers, for which all zeros are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are to live, writable values of the types that the call requires.
        let waited = unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) };
        if waited == pid {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    let used = Usage {
        // Linux counts in KiB.
        peak_bytes: usage.ru_maxrss.unsigned_abs() * 1024,
        cpu: duration(usage.ru_utime) + duration(usage.ru_stime),
    };
    Ok((ExitStatus::from_raw(status), used))
}

fn duration(time: libc::timeval) -> Duration {
    Duration::from_secs(time.tv_sec.unsigned_abs()) + Duration::from_micros(time.tv_usec.unsigned_abs())
}

/// Lets this thread wake up within microseconds of the time it asked for, instead of within 50.
pub(super) fn wake_up_promptly() {
    // SAFETY: this option takes one number and touches no memory of ours.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong, 0, 0, 0) };
}

/// Keeps this thread on one core, where it runs before everything but the kernel's threads whenever it is ready.
///
/// # Errors
/// The kernel allows it to few.
pub(super) fn go_before_all_others(core: usize) -> io::Result<()> {
    // SAFETY: the set is plain numbers, for which all zeros are valid, and `CPU_SET` looks at its bounds.
    let cores = unsafe {
        let mut cores: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut cores);
        cores
    };
    // SAFETY: the pointer is to a live set of the size that is given; 0 is this thread.
    if unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const cores) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: these are plain numbers, for which all zeros are valid.
    let mut priority: libc::sched_param = unsafe { std::mem::zeroed() };
    priority.sched_priority = 1;
    // SAFETY: the pointer is to a live value of the type that the call requires; 0 is this thread.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Asks a process that we started to end.
pub(super) fn terminate(child: &Child) {
    if let Ok(pid) = libc::pid_t::try_from(child.id()) {
        // SAFETY: the child has not been waited for, so its number is still its own.
        unsafe { libc::kill(pid, libc::SIGTERM) };
    }
}
