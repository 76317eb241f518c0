//! A process that is killed, at whichever of its system calls, leaves a node that others read alike.
#![expect(unsafe_code, reason = "stops a process at each of its system calls")]

use std::{
    fs, io,
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
};

use gpu_sim::{Node, NodeSpec};

use super::shown;
use crate::{Simulated, driver::Driver};

/// A program that stops before and after each of its system calls. Before one is as good as after the one before it.
struct Traced(Child);

impl Traced {
    /// `gpu-sim`, before its first instruction.
    fn start(node: &Node, arguments: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpu-sim"));
        command
            .args(arguments.split_whitespace())
            .env("GPU_SIM_DIR", node.folder())
            .stderr(Stdio::null())
            .stdout(Stdio::null());
        let trace_me = || {
            // SAFETY: no memory is passed.
            match unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        };
        // SAFETY: between fork and exec it makes one system call and touches no memory.
        unsafe { command.pre_exec(trace_me) };
        let traced = Self(command.spawn().expect("gpu-sim starts"));
        assert!(traced.has_stopped(), "it stops when it starts");
        traced
    }

    fn pid(&self) -> libc::pid_t {
        self.0.id().cast_signed()
    }

    /// Waits for it; `false` if it has ended.
    fn has_stopped(&self) -> bool {
        let mut status = 0;
        // SAFETY: the status is there until the call returns.
        assert_eq!(unsafe { libc::waitpid(self.pid(), &raw mut status, 0) }, self.pid());
        libc::WIFSTOPPED(status)
    }

    /// Lets it go on to its next stop; `false` if it ends before.
    fn step(&self) -> bool {
        // SAFETY: the process is a child of this thread that has stopped; no memory is passed.
        assert_eq!(unsafe { libc::ptrace(libc::PTRACE_SYSCALL, self.pid(), 0, 0) }, 0);
        self.has_stopped()
    }

    /// Whether it has the lock's file open: what it does before changes nothing.
    fn has_lock(&self) -> bool {
        let files = fs::read_dir(format!("/proc/{}/fd", self.pid())).expect("it is there");
        let target = |file: io::Result<fs::DirEntry>| fs::read_link(file.ok()?.path()).ok();
        files.filter_map(target).any(|file| file.ends_with("state/lock"))
    }

    fn kill(mut self) {
        self.0.kill().expect("it is there");
        self.0.wait().expect("it is there");
    }
}

/// Runs `gpu-sim` up to that system call, counted from when it has opened the lock, and kills it there. Answers whether it came so far.
fn killed_at(calls: usize, node: &Node, arguments: &str) -> bool {
    let traced = Traced::start(node, arguments);
    while !traced.has_lock() {
        assert!(traced.step(), "it takes the lock");
    }
    let came = (0..calls).all(|_| traced.step() && traced.step());
    if came {
        traced.kill();
    }
    came
}

/// What the state, the library and the file tree tell agree.
#[track_caller]
fn check(node: &Simulated, driver: &Driver, at: usize) {
    let opened = Node::open(node.node.folder()).unwrap_or_else(|error| panic!("killed at {at}: {error}"));
    let told = opened.mig(0).expect("the state is read");
    let seen = driver.instances(driver.gpu(0));
    assert_eq!(
        told.iter().map(|instance| instance.id).collect::<Vec<_>>(),
        seen.iter().map(|it| it.0).collect::<Vec<_>>(),
        "killed at {at}"
    );
    let files = told.iter().flat_map(|instance| {
        let compute = instance.devices.iter();
        let compute = compute.map(move |(id, ..)| format!("gi{}/ci{id}/access", instance.id));
        compute.chain([format!("gi{}/access", instance.id)])
    });
    let (shown_files, shown_nodes) = shown(&opened, 0);
    assert_eq!(shown_files, files.collect(), "killed at {at}");
    assert_eq!(shown_nodes.len(), shown_files.len(), "killed at {at}");
}

#[test]
fn killed_at_any_system_call_a_writer_leaves_a_readable_node() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(1));
    node.node.set_mig_mode(0, true).unwrap();
    let driver = Driver::load(&node.node.library());
    let (mut stops, mut before, mut after) = (0, 0, 0);
    while killed_at(stops, &node.node, "mig create 3g.40gb --gpu 0") {
        check(&node, &driver, stops);
        if let Some(made) = node.node.mig(0).unwrap().first() {
            node.node.destroy_mig(0, made.id).unwrap();
            after += 1;
        } else {
            before += 1;
        }
        stops += 1;
    }
    assert!(before > 0 && after > 0, "{before} before the change, {after} after it");

    let made = node.node.mig(0).unwrap();
    let destroy = format!("mig destroy {} --gpu 0", made[0].id);
    let (mut stops, mut before, mut after) = (0, 0, 0);
    while killed_at(stops, &node.node, &destroy) {
        check(&node, &driver, stops);
        if node.node.mig(0).unwrap().is_empty() {
            assert_eq!(node.node.create_mig(0, "3g.40gb", None).unwrap(), made[0]);
            after += 1;
        } else {
            before += 1;
        }
        stops += 1;
    }
    assert!(before > 0 && after > 0, "{before} before the change, {after} after it");
}
