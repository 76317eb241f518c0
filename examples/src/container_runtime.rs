//! `gpu-container-runtime`: gives containers the devices that they ask for, then becomes runc or crun.
//!
//! For engines that inject no CDI devices themselves, in the place of `nvidia-container-runtime`, `.cdi` and `.legacy`. It
//! takes the arguments of the low-level runtime and hands them on untouched, so that `--help` is that runtime's; only
//! `--version` tells its own before, as the vendor's does. Its settings are in the toolkit's `config.toml`.

use std::{
    ffi::OsString,
    io::Write as _,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Command, ExitCode},
};

use anyhow::{anyhow, ensure};
use gpu_cdi::runtime::Invocation;

use crate::{
    names,
    toolkit_config::{ToolkitConfig, keys},
};

mod container;
mod log;
mod low_level;

use container::Container;
use log::Log;

/// The kernel's modules, the driver's among them where it is loaded.
const MODULES: &str = "/proc/modules";

/// Runs the runtime with these arguments, the program's name first; returns only if it cannot.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().skip(1).collect();
    let invocation = Invocation::parse(&arguments);
    let mut log = Log::new(&invocation);
    let error = match run(&invocation, &arguments, &mut log) {
        Ok(never) => match never {},
        Err(error) => error,
    };
    log.error(&error);
    ExitCode::FAILURE
}

/// No value: a runtime that was become does not return.
enum Never {}

fn run(invocation: &Invocation, arguments: &[OsString], log: &mut Log) -> anyhow::Result<Never> {
    if invocation.asks_version {
        // Who asks wants the runtime's as well, whatever becomes of this line.
        let _ = writeln!(
            std::io::stdout(),
            "gpu-container-runtime version {}\n",
            env!("CARGO_PKG_VERSION")
        );
    }
    let toolkit = ToolkitConfig::read(None)?;
    log.configure(&toolkit, invocation);
    let runtime = low_level::find(&toolkit.config.runtimes)?;
    let depth = low_level::depth();
    ensure!(
        depth < low_level::DEEPEST,
        "{}: `{}` leads back to this program",
        toolkit.key(keys::RUNTIMES),
        runtime.display()
    );
    if invocation.makes_container {
        Container::read(invocation.config())?.prepare(&toolkit, Path::new(MODULES), log)?;
    }
    log.debug(&format!("becomes `{}`", runtime.display()));
    let mut command = Command::new(&runtime);
    command.args(arguments);
    command.env(names::RUNTIME_DEPTH, (depth + 1).to_string());
    let error = command.exec();
    Err(anyhow!(error).context(format!("cannot run `{}`", runtime.display())))
}
