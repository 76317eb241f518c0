//! `gpu-mps-daemon`: runs the MPS daemons of a node, in the place of the vendor's `mps-control-daemon`.

use std::{
    env,
    ffi::OsString,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::bail;
use clap::{Args, Parser, Subcommand, ValueEnum};
use gpu_core::nvml::LibrarySearch;
use gpu_sharing::{
    config::{Flags, MigStrategy, Program},
    mps::{Root, names::CONTROL},
};

use crate::{
    executor,
    logging::Logging,
    names, program,
    settings::{ConfigArguments, Settings},
    stop,
};

mod keeper;
mod node;
mod run;
mod shared_memory;
mod told;

/// Runs a daemon of the Multi-Process Service for each resource that containers share by MPS.
///
/// Flags, environment variables and configuration file are those of the vendor's mps-control-daemon v0.20. A change of the
/// configuration restarts the daemons of resources that changed, and no others.
#[derive(Debug, Parser)]
#[command(name = "gpu-mps-daemon", version, args_conflicts_with_subcommands = true)]
struct MpsDaemon {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    daemon: Daemon,

    /// Where daemons, device plugin and clients meet (an addition of this program)
    #[arg(long, env = names::mps_daemon::ROOT, default_value = "/mps", value_name = "PATH", global = true)]
    mps_dir: PathBuf,

    /// Where the host's /proc and /sys are (an addition of this program)
    #[arg(long, env = names::HOST_ROOT, default_value = "/", value_name = "PATH", global = true)]
    host_root: PathBuf,

    #[command(flatten)]
    logging: Logging,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make the shared memory of MPS servers and their clients, and end
    MountShm,
}

#[derive(Debug, Args)]
struct Daemon {
    #[command(flatten)]
    config: ConfigArguments,

    /// What MIG devices are offered as: none, single or mixed; with mixed nothing can be shared by MPS, as the device plugin has it
    /// [`MIG_STRATEGY`]
    #[arg(long, value_name = "STRATEGY")]
    mig_strategy: Option<MigStrategy>,

    /// The compute mode of shared GPUs (an addition of this program)
    #[arg(long, env = names::mps_daemon::COMPUTE_MODE, value_enum, default_value_t = ComputeModeChoice::ExclusiveProcess,
          value_name = "MODE")]
    compute_mode: ComputeModeChoice,

    /// The control program of MPS; default: nvidia-cuda-mps-control in PATH (an addition of this program)
    #[arg(long, env = names::mps_daemon::CONTROL, value_name = "PATH")]
    mps_control: Option<PathBuf>,

    /// Answer /healthz and /readyz at this address (an addition of this program)
    #[arg(long, env = names::LISTEN, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,

    /// The NVML library; default: beneath /driver-root, then the loader's search path (an addition of this program)
    #[arg(long, env = names::NVML_LIBRARY, value_name = "PATH")]
    nvml_library: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ComputeModeChoice {
    /// A shared GPU serves MPS alone; at the end it has the mode back that it had
    ExclusiveProcess,
    /// It stays as it is: processes outside MPS may use it too
    Keep,
}

/// Runs `gpu-mps-daemon` with these arguments, the program's name first.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: MpsDaemon = program::parse(arguments);
    program::run(|| {
        arguments.logging.start()?;
        match arguments.command {
            Some(Command::MountShm) => shared_memory::mount_at(&arguments.root(), &arguments.host_root),
            None => arguments.serve(),
        }
    })
}

impl MpsDaemon {
    fn serve(&self) -> anyhow::Result<()> {
        let settings = self.settings()?;
        let control = self.control()?;
        stop::end_in_time()?;
        executor::run(run::run(self, settings, control))
    }

    fn settings(&self) -> anyhow::Result<Settings> {
        let flags = Flags {
            mig_strategy: self.daemon.mig_strategy,
            ..Flags::default()
        };
        self.daemon.config.settings(Program::MpsDaemon, flags)
    }

    fn config_text(&self) -> anyhow::Result<Option<String>> {
        self.daemon.config.text(Program::MpsDaemon)
    }

    fn root(&self) -> Root {
        Root::new(&self.mps_dir)
    }

    fn library_search(&self) -> LibrarySearch {
        let usual = Path::new("/driver-root");
        LibrarySearch {
            library: self.daemon.nvml_library.clone(),
            driver_root: Some(if usual.is_dir() { usual } else { Path::new("/") }.to_owned()),
        }
    }

    /// The control program: it comes with the driver, and is mounted into the container with it.
    fn control(&self) -> anyhow::Result<PathBuf> {
        if let Some(control) = &self.daemon.mps_control {
            if !control.is_file() {
                bail!("there is no control program `{}`", control.display());
            }
            return Ok(control.clone());
        }
        let path = env::var_os("PATH").unwrap_or_default();
        let found = env::split_paths(&path)
            .map(|folder| folder.join(CONTROL))
            .find(|path| path.is_file());
        match found {
            Some(control) => Ok(control),
            None => bail!(
                "no `{CONTROL}` in PATH: it comes with the driver (NVIDIA_DRIVER_CAPABILITIES must have `compute` and \
                 `utility`); or set {}",
                names::mps_daemon::CONTROL
            ),
        }
    }
}
