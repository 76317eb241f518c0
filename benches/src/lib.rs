//! What the benches share: `cargo bench -p gpu-benches`.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command},
};

use anyhow::{Context as _, ensure};
use gpu_sim::{Node, NodeSpec};

/// The GPUs of a divided node.
pub const GPUS: usize = 8;

/// As many MIG devices as an H100 can have.
pub const SEVENTHS: [&str; 7] = ["1g.10gb"; 7];

/// A simulated node with [`GPUS`] H100, each divided into MIG devices of these profiles, in an empty or absent folder.
///
/// # Errors
/// Where the folder cannot be written, or the profiles do not fit.
pub fn divided(folder: &Path, profiles: &[&str]) -> anyhow::Result<Node> {
    let node = Node::create(&NodeSpec::new("h100").gpus(GPUS), folder)?;
    for gpu in 0..GPUS {
        node.set_mig_mode(gpu, true)?;
        for profile in profiles {
            node.create_mig(gpu, profile, None)?;
        }
    }
    Ok(node)
}

/// The program that a variable of the environment names; else that of this name beside the bench, which is
/// `target/release/deps/BENCH-…`.
///
/// # Panics
/// If it is not built.
pub fn program(variable: &str, name: &str) -> PathBuf {
    let beside = || {
        let own = env::current_exe().expect("the path of this bench");
        own.ancestors().nth(2).unwrap_or(&own).join(name)
    };
    let program = env::var_os(variable).map_or_else(beside, PathBuf::from);
    assert!(program.exists(), "there is no `{}`: build it first", program.display());
    program
}

/// A program under test, which does not outlive the bench.
#[derive(Debug)]
pub struct Running(pub Child);

impl Running {
    /// The lines about memory and threads of its `/proc/PID/status`.
    ///
    /// # Errors
    /// Where that cannot be read.
    pub fn memory(&self) -> anyhow::Result<String> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        let wanted = |line: &&str| {
            ["VmHWM", "VmRSS", "RssAnon", "RssFile", "Threads"]
                .iter()
                .any(|key| line.starts_with(key))
        };
        let lines = status.lines().filter(wanted).map(|line| format!("  {line}"));
        Ok(lines.collect::<Vec<_>>().join("\n"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Compiles `native/NAME.c` to the file of that name in a folder, with arguments before and behind what that takes.
///
/// # Errors
/// Where there is no C compiler, or it refuses.
pub fn compile(folder: &Path, name: &str, first: &[&str], last: &[String]) -> anyhow::Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("native/{name}.c"));
    let output = folder.join(name);
    let status = Command::new("cc")
        .args(first)
        .args(last)
        .arg("-o")
        .arg(&output)
        .arg(source)
        .status();
    ensure!(status.context("a C compiler")?.success(), "{name}.c does not compile");
    Ok(output)
}
