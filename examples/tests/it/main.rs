//! The programs as processes: exit codes, signals, what goes to standard output and what to standard error.

use std::{
    io::Read,
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

mod cdi;
mod device_plugin;
mod flags;
mod gpuctl;
mod growth;
mod help;
#[cfg(feature = "stack")]
mod label;
mod mig;
mod quickstart;
mod runtime;
#[cfg(feature = "stack")]
mod stack;
mod system;

/// More than any program needs on a busy machine.
const LONG: Duration = Duration::from_mins(1);

/// A program that is killed when its test is over.
struct Running {
    child: Child,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        Self {
            child: child.expect("the program starts"),
        }
    }

    fn id(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(self.id(), signal).expect("the program runs");
    }

    /// Its output, once it is killed if it has not ended.
    fn stop(mut self) -> Output {
        let _ = self.child.kill();
        self.end(LONG)
    }

    /// Its exit code and output, once it has ended by itself.
    fn end(mut self, within: Duration) -> Output {
        // Read meanwhile, so that no full pipe keeps it.
        let stdout = read(self.child.stdout.take());
        let stderr = read(self.child.stderr.take());
        let started = Instant::now();
        let status = loop {
            match self.child.try_wait().expect("the program can be waited for") {
                Some(status) => break status,
                None if started.elapsed() > within => panic!("it runs for more than {within:?}"),
                None => thread::sleep(Duration::from_millis(5)),
            }
        };
        Output {
            status,
            stdout: stdout.join().expect("no panic"),
            stderr: stderr.join().expect("no panic"),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(from: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            from.read_to_end(&mut bytes).expect("a pipe can be read");
        }
        bytes
    })
}

/// A program without the settings of whoever runs the tests.
fn program(path: &str) -> Command {
    let mut command = Command::new(path);
    command.env_clear().env("PATH", "/usr/bin:/bin");
    command
}

fn run(command: &mut Command) -> Output {
    Running::start(command).end(LONG)
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).expect("text")
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).expect("text")
}

#[test]
fn every_program_tells_its_version() {
    for path in [
        env!("CARGO_BIN_EXE_gpu-cdi-hook"),
        env!("CARGO_BIN_EXE_gpu-device-plugin"),
        env!("CARGO_BIN_EXE_gpuctl"),
        env!("CARGO_BIN_EXE_quickstart"),
    ] {
        let output = run(program(path).arg("--version"));
        assert!(output.status.success(), "{path}");
        let name = path.rsplit('/').next().expect("a name");
        assert_eq!(stdout(&output), format!("{name} {}\n", env!("CARGO_PKG_VERSION")));
    }
}
