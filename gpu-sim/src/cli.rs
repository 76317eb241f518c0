//! The command `gpu-sim`: makes simulated nodes and lets things happen to them.

mod calls;
mod load;
mod mig;

use std::{
    error::Error as _,
    ffi::OsString,
    fmt::Write as _,
    io::{self, Write as _},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::{Error, Node, NodeSpec, Profile, Recovery, Result, Service, boards, profiles};

/// Makes simulated NVIDIA nodes and lets things happen to them.
#[derive(Debug, Parser)]
#[command(name = "gpu-sim", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the node templates and boards.
    Profiles,
    /// Make a node in an empty or absent folder.
    New(New),
    /// Print the exports that point a program at a node.
    Env(OfNode),
    /// Report an Xid of a GPU, once to everyone who waits for Xids now.
    Xid {
        #[command(flatten)]
        gpu: OfGpu,
        /// The Xid, such as 79.
        code: u64,
        /// GPU instance that it is of. Default: the whole GPU.
        #[arg(long, value_name = "N", requires = "ci")]
        gi: Option<u32>,
        /// Compute instance that it is of.
        #[arg(long, value_name = "N", requires = "gi")]
        ci: Option<u32>,
    },
    /// Let a GPU fall off the bus: every NVML call for it answers "GPU is lost". No Xid is reported.
    Lose(OfGpu),
    /// Deny permission to ask a GPU.
    Deny(OfGpu),
    /// Let a GPU hang: calls for it do not return.
    Hang {
        #[command(flatten)]
        gpu: OfGpu,
        /// How long, from now on.
        #[arg(long, value_name = "S")]
        seconds: u64,
    },
    /// Let each call for a GPU take longer.
    Slow {
        #[command(flatten)]
        gpu: OfGpu,
        /// How much longer.
        #[arg(long, value_name = "MS")]
        milliseconds: u64,
    },
    /// Count memory errors and report them. No Xid is reported.
    Ecc {
        #[command(flatten)]
        gpu: OfGpu,
        /// Uncorrected (double-bit) errors.
        #[arg(long, value_name = "N", default_value_t = 0)]
        dbe: u64,
        /// Corrected (single-bit) errors.
        #[arg(long, value_name = "N", default_value_t = 0)]
        sbe: u64,
    },
    /// Bring a GPU back that was lost, denied, hung or slow.
    Restore(OfGpu),
    /// Take a GPU off the PCI bus: neither NVML nor the kernel knows it any more. No event is reported.
    Unplug(OfGpu),
    /// Put a GPU back that was taken out.
    Plug(OfGpu),
    /// Let a simulated process run on a GPU.
    Load(load::Load),
    /// End a simulated process, or all of a GPU.
    Unload {
        #[command(flatten)]
        gpu: OfGpu,
        /// Its number.
        #[arg(long, value_name = "P")]
        pid: Option<u32>,
    },
    /// Load another driver version.
    Driver {
        #[command(flatten)]
        node: OfNode,
        /// Branch or full version.
        version: String,
        /// Only the kernel's part, so that driver and library differ.
        #[arg(long)]
        keep_library: bool,
    },
    /// Partition a GPU.
    #[command(subcommand)]
    Mig(mig::Command),
    /// Log NVML calls, and print them.
    Calls(calls::Calls),
    /// Let a service of the driver run or not: its socket in the node's tree is there or not.
    Service {
        #[command(flatten)]
        node: OfNode,
        /// Which.
        service: Service,
        /// Whether it runs.
        state: OnOff,
    },
    /// Reset a GPU that no process uses.
    Reset(OfGpu),
    /// Let the driver want something done to a GPU. No event is reported.
    Recovery {
        #[command(flatten)]
        gpu: OfGpu,
        /// What.
        action: Recovery,
    },
    /// Restart the machine: MIG instances, simulated processes and faults are gone.
    Reboot(OfNode),
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum OnOff {
    On,
    Off,
}

#[derive(Debug, Args)]
struct New {
    /// A node template or board: see `gpu-sim profiles`.
    #[arg(long, value_name = "NAME")]
    profile: String,
    /// How many GPUs. Default: as many as the template has room for.
    #[arg(long, value_name = "N")]
    gpus: Option<usize>,
    /// Where UUIDs, serial numbers and the permuted PCI order come from: the same seed gives the same node.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Driver branch or full version. Default: the template's.
    #[arg(long, value_name = "VERSION")]
    driver: Option<String>,
    /// Let the numbers of the device nodes differ from the PCI order, as they may on hardware.
    #[arg(long)]
    permute_pci: bool,
    /// The folder to make the node in.
    #[arg(long)]
    dir: PathBuf,
}

#[derive(Debug, Args)]
struct OfNode {
    /// The node's folder.
    #[arg(long, env = "GPU_SIM_DIR")]
    dir: PathBuf,
}

#[derive(Debug, Args)]
struct OfGpu {
    #[command(flatten)]
    node: OfNode,
    /// The GPU, by its place in node.yaml: NVML's index as long as none is taken out.
    #[arg(long, value_name = "I")]
    gpu: usize,
}

/// Runs the command with these arguments, the program's name first.
///
/// Exit codes: 0 done, 1 failed with one message on stderr, 2 bad usage.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print(); // where neither stream can be written, nobody can be told
            return if error.use_stderr() {
                ExitCode::from(2)
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    match cli.command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let cause = error.source().map(|source| format!(": {source}")).unwrap_or_default();
            let _ = writeln!(io::stderr(), "gpu-sim: {error}{cause}");
            ExitCode::FAILURE
        }
    }
}

impl Command {
    fn run(self) -> Result<()> {
        match self {
            Self::Profiles => print(&list()),
            Self::New(new) => new.run(),
            Self::Env(of) => write(&exports(&Node::open(of.dir)?)?),
            Self::Xid { gpu, code, gi, ci } => match gi.zip(ci) {
                None => gpu.node()?.inject_xid(gpu.gpu, code),
                Some(instance) => gpu.node()?.inject_xid_of_instance(gpu.gpu, code, instance),
            },
            Self::Lose(gpu) => gpu.node()?.lose(gpu.gpu),
            Self::Restore(gpu) => gpu.node()?.restore(gpu.gpu),
            Self::Unplug(gpu) => gpu.node()?.unplug(gpu.gpu),
            Self::Plug(gpu) => gpu.node()?.plug(gpu.gpu),
            Self::Deny(gpu) => gpu.node()?.deny(gpu.gpu, true),
            Self::Hang { gpu, seconds } => gpu.node()?.hang(gpu.gpu, Duration::from_secs(seconds)),
            Self::Slow { gpu, milliseconds } => gpu.node()?.slow(gpu.gpu, Duration::from_millis(milliseconds)),
            Self::Ecc { gpu, dbe, sbe } => gpu.node()?.inject_ecc(gpu.gpu, sbe, dbe),
            Self::Load(load) => load.run(),
            Self::Unload { gpu, pid } => gpu.node()?.unload(gpu.gpu, pid),
            Self::Driver {
                node,
                version,
                keep_library,
            } => {
                let mut node = Node::open(node.dir)?;
                if keep_library {
                    node.load_kernel_driver(&version)
                } else {
                    node.load_driver(&version)
                }
            }
            Self::Mig(command) => command.run(),
            Self::Calls(calls) => calls.run(),
            Self::Service { node, service, state } => {
                Node::open(node.dir)?.set_service(service, matches!(state, OnOff::On))
            }
            Self::Reset(gpu) => gpu.node()?.reset(gpu.gpu),
            Self::Recovery { gpu, action } => gpu.node()?.want_recovery(gpu.gpu, action),
            Self::Reboot(of) => Node::open(of.dir)?.reboot(),
        }
    }
}

impl OfGpu {
    fn node(&self) -> Result<Node> {
        Node::open(&self.node.dir)
    }
}

impl New {
    fn run(self) -> Result<()> {
        let mut spec = NodeSpec::new(self.profile)
            .seed(self.seed)
            .permute_pci(self.permute_pci);
        if let Some(count) = self.gpus {
            spec = spec.gpus(count);
        }
        if let Some(version) = self.driver {
            spec = spec.driver(version);
        }
        let node = Node::create(&spec, self.dir)?;
        let count = node.gpus().len();
        let board = node.gpus().first().map_or("no", |gpu| gpu.board.as_str());
        let driver = &node.file().driver;
        print(&format!(
            "{}: {count} x {board}, driver {driver}\n",
            node.folder().display()
        ))
    }
}

fn print(text: &str) -> Result<()> {
    write(text.as_bytes())
}

fn write(bytes: &[u8]) -> Result<()> {
    io::stdout().write_all(bytes).map_err(Error::write("standard output"))
}

fn list() -> String {
    let mut text = String::from("Node templates\n");
    for profile in profiles() {
        let Profile {
            name, summary, driver, ..
        } = profile;
        let _ = writeln!(text, "  {name:<16} {summary}, driver {driver}");
    }
    text += "Boards\n";
    for board in boards() {
        let mebibytes = board.memory.total_bytes >> 20;
        let _ = writeln!(text, "  {:<16} {}, {mebibytes} MiB", board.name, board.product);
    }
    text
}

/// For `eval` in a shell. What lists several folders gets the node's in front.
fn exports(node: &Node) -> Result<Vec<u8>> {
    let root = node.folder();
    // The loader takes both for the end of a folder's name.
    if root.as_os_str().as_bytes().iter().any(|byte| b":;".contains(byte)) {
        return Err(Error::NotListable { path: root.to_owned() });
    }
    let mut text = Vec::new();
    let mut export = |name: &str, path: &Path, more: &str| {
        text.extend_from_slice(format!("export {name}=").as_bytes());
        text.extend_from_slice(&quoted(path));
        text.extend_from_slice(more.as_bytes());
        text.push(b'\n');
    };
    for (name, path) in node.env() {
        let more = if name == "LD_LIBRARY_PATH" {
            r#""${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}""#
        } else {
            ""
        };
        export(name, &path, more);
    }
    export("PATH", &node.root().join("usr/bin"), r#""${PATH:+:$PATH}""#);
    Ok(text)
}

/// A path as a word of the shell's, whatever bytes it has.
fn quoted(path: &Path) -> Vec<u8> {
    let mut word = vec![b'\''];
    for byte in path.as_os_str().as_bytes() {
        if *byte == b'\'' {
            word.extend_from_slice(br"'\''");
        } else {
            word.push(*byte);
        }
    }
    word.push(b'\'');
    word
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_quote_in_a_path_survives_the_shell() {
        assert_eq!(quoted(Path::new("/tmp/it's")), br"'/tmp/it'\''s'");
    }
}
