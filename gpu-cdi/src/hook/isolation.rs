#![expect(unsafe_code, reason = "new namespaces, fork and exec have no safe calls")]

//! A process in namespaces of its own, whose root is the container's.

use std::{
    convert::Infallible,
    error::Error as _,
    ffi::CString,
    fs::File,
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd as _, AsRawFd as _, BorrowedFd},
        unix::process::ExitStatusExt as _,
    },
    path::Path,
    process::ExitStatus,
    ptr,
};

use gpu_core::root::Root;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
        fsconfig_create, fsmount, fsopen, mount_change, mount_move, move_mount, open_tree, unmount,
    },
    process::{
        Pid, PidfdFlags, Resource, Rlimit, Signal, WaitOptions, chdir, chroot, fchdir, getrlimit, pidfd_open,
        pidfd_send_signal, pivot_root, set_parent_process_death_signal, setrlimit, waitpid,
    },
    thread::UnshareFlags,
};

use super::{Error, Result};

/// Far more than ldconfig takes (some 10 MiB), in memory and in a file.
const MEMORY_BYTES: u64 = 1 << 30;
/// Far more than ldconfig takes (some 20 ms), on a processor and by the clock.
const TIME_S: u64 = 20;

/// Checks that this process has no other thread, which it must not when it forks or changes its environment.
pub(super) fn check_single_thread() -> Result<()> {
    let threads = std::fs::read_dir("/proc/self/task").map_err(Error::io("count the threads of this process"))?;
    match threads.count() {
        1 => Ok(()),
        _ => Err(Error::OtherThreads),
    }
}

/// Runs `work` as the first process of a new PID namespace, with mounts, network, host name and IPC of its own.
///
/// `work` ends by becoming another program, whose exit status this returns; if it fails, its error is passed on. This
/// process itself has other mounts, network, host name and IPC from then on.
pub(super) fn run(work: impl FnOnce() -> Result<Infallible>) -> Result<ExitStatus> {
    check_single_thread()?;
    let (reader, writer) = io::pipe().map_err(Error::io("make a pipe"))?;
    let flags = UnshareFlags::NEWNS | UnshareFlags::NEWPID | UnshareFlags::NEWNET;
    let flags = flags | UnshareFlags::NEWUTS | UnshareFlags::NEWIPC;
    // SAFETY: the call is unsafe for `FILES`, which would invalidate descriptors of other threads; it is not in `flags`.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(Error::io("make namespaces"))?;
    // SAFETY: there is no other thread, as checked above, so that the child may do all that the parent may.
    match unsafe { libc::fork() } {
        -1 => Err(Error::io("make a process")(io::Error::last_os_error())),
        0 => {
            drop(reader);
            let Err(error) = bound().and_then(|()| work());
            report(File::from(std::os::fd::OwnedFd::from(writer)), &error)
        }
        child => {
            drop(writer);
            wait(child, reader)
        }
    }
}

/// Bounds what this process, and the program that it becomes, can take of the host: what it reads is the image's.
///
/// It dies with the hook, which a runtime may kill.
fn bound() -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(Error::io("tie a process to the hook"))?;
    for (resource, limit) in [
        (Resource::As, MEMORY_BYTES),
        (Resource::Cpu, TIME_S),
        (Resource::Fsize, MEMORY_BYTES),
    ] {
        // One that is already lower stays.
        let limit = getrlimit(resource).maximum.map_or(limit, |maximum| maximum.min(limit));
        let limit = Rlimit {
            current: Some(limit),
            maximum: Some(limit),
        };
        setrlimit(resource, limit).map_err(Error::io("limit a process"))?;
    }
    Ok(())
}

/// Tells the parent what went wrong and ends this process.
fn report(mut to: File, error: &Error) -> ! {
    let mut text = error.to_string();
    if let Some(cause) = error.source() {
        text = format!("{text}: {cause}");
    }
    // If the parent is gone, nobody is left to tell.
    let _ = to.write_all(text.as_bytes());
    // SAFETY: ends the process without running what the parent registered for its own end.
    unsafe { libc::_exit(1) }
}

/// Waits until the process has ended, and ends it where it takes too long: it may wait for a pipe that the image holds.
fn end_in_time(child: i32) -> Result<()> {
    let Some(pid) = Pid::from_raw(child) else { return Ok(()) };
    let action = "wait for the process in the container";
    let process = pidfd_open(pid, PidfdFlags::empty()).map_err(Error::io(action))?;
    let limit = Timespec {
        tv_sec: i64::try_from(TIME_S).unwrap_or(i64::MAX),
        tv_nsec: 0,
    };
    loop {
        match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit)) {
            Ok(0) => {
                // It may have ended just now.
                let _ = pidfd_send_signal(&process, Signal::KILL);
                return Ok(());
            }
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(Error::io(action)(error)),
        }
    }
}

fn wait(child: i32, mut reader: io::PipeReader) -> Result<ExitStatus> {
    let mut reason = String::new();
    // Ends when the child becomes another program or ends.
    reader
        .read_to_string(&mut reason)
        .map_err(Error::io("hear from the process in the container"))?;
    end_in_time(child)?;
    let status = loop {
        match waitpid(Pid::from_raw(child), WaitOptions::empty()) {
            Ok(Some((_, status))) => break ExitStatus::from_raw(status.as_raw()),
            Ok(None) | Err(Errno::INTR) => {}
            Err(error) => return Err(Error::io("wait for the process in the container")(error)),
        }
    };
    if reason.is_empty() {
        Ok(status)
    } else {
        Err(Error::Isolated { reason })
    }
}

/// Makes the folder at `path` the root of this process, and everything else unreachable.
///
/// Called in the new namespaces. The container's `/proc`, which shows the host's kernel and could be written through a
/// link that the image put somewhere, is covered by an empty folder: nothing that runs here needs it.
pub(super) fn enter(path: &Path) -> Result<()> {
    let action = |what: &str| format!("{what} `{}`", path.display());
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM)
        .map_err(Error::io("keep mounts from spreading"))?;
    // Opened here: a descriptor from before belongs to the mounts that were left.
    let below = Root::open(path).map_err(Error::io(action("open the container's root")))?;
    // A root has to be a mount; runtimes make it one, but need not.
    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let clone = clone | OpenTreeFlags::AT_RECURSIVE | OpenTreeFlags::AT_EMPTY_PATH;
    let root = open_tree(below.as_fd(), "", clone).map_err(Error::io(action("mount the container's root")))?;
    attach(root.as_fd(), below.as_fd()).map_err(Error::io(action("mount the container's root")))?;
    fchdir(&root).map_err(Error::io(action("go to the container's root")))?;
    cover_proc().map_err(Error::io(action("cover /proc of the container")))?;
    match pivot_root(".", ".") {
        // Both roots are at `/` now, the old one on top.
        Ok(()) => unmount(".", UnmountFlags::DETACH).map_err(Error::io("leave the host's root"))?,
        // The host runs out of its initial ramdisk, which cannot be left.
        Err(Errno::INVAL) => {
            mount_move(".", "/").map_err(Error::io(action("move the container's root")))?;
            chroot(".").map_err(Error::io(action("change to the container's root")))?;
        }
        Err(error) => return Err(Error::io(action("change to the container's root"))(error)),
    }
    chdir("/").map_err(Error::io("go to `/`"))
}

fn attach(mount: BorrowedFd<'_>, target: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let both_empty = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(mount, "", target, "", both_empty)
}

/// Covers `proc` of the current folder, if it is there.
fn cover_proc() -> io::Result<()> {
    use rustix::fs::{Mode, OFlags};

    let target = match Root::open(Path::new("."))?.open_at(Path::new("/proc"), OFlags::PATH, Mode::empty()) {
        Ok(target) => target,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let fs = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&fs)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOSUID;
    let attributes = attributes | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let empty = fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    Ok(attach(empty.as_fd(), target.as_fd())?)
}

/// Becomes the program in `file`, with an empty environment; returns only why it could not.
pub(super) fn execute(file: BorrowedFd<'_>, arguments: &[CString]) -> io::Error {
    let mut pointers: Vec<_> = arguments.iter().map(|argument| argument.as_ptr()).collect();
    pointers.push(ptr::null());
    let environment = [ptr::null()];
    // SAFETY: both lists end with a null pointer, and they and the strings in the first outlive the call.
    unsafe { libc::fexecve(file.as_raw_fd(), pointers.as_ptr(), environment.as_ptr()) };
    io::Error::last_os_error()
}
