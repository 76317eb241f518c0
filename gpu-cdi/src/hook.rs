//! The programs that a spec has the container runtime call.
//!
//! They run as root on the host while a container is being made, in its mount namespace, beside files that the image
//! chose. So this module trusts nothing beneath the container's root: each path is resolved within it by the kernel, and
//! what is made there is made by a folder's descriptor and a single name. It starts nothing that comes out of the
//! container, and takes nothing from the environment but `NVIDIA_CTK_DEBUG`.
//!
//! Sub-commands, flags and effects are those of the vendor's `nvidia-cdi-hook`.
//!
//! Needs Linux 5.6 or later for `update-ldcache` and `disable-device-node-modification`.
//!
//! # Example
//!
//! A whole hook program, to be linked statically (`-C target-feature=+crt-static`): the loader of a dynamic one would obey
//! the environment that it is called with before the program could empty it. [`main`] warns of being dynamic.
//!
//! ```no_run
//! fn main() -> std::process::ExitCode {
//!     gpu_cdi::hook::main(std::env::args_os())
//! }
//! ```

mod application_profile;
mod arguments;
mod chmod;
mod container;
mod create_symlinks;
mod cuda_compat;
mod device_node_modification;
mod error;
#[cfg(feature = "__fuzz")]
#[doc(hidden)]
pub mod fuzz;
mod isolation;
mod ld_so_conf;
mod ldconfig;
mod program;
mod state;
mod update_ldcache;

use std::{ffi::OsString, io::Read, path::PathBuf};

use self::{
    arguments::{Arguments, Command},
    container::Container,
};
pub use self::{
    error::{Error, Result},
    program::main,
};
use crate::names;

/// The host's files that hooks read.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Host {
    /// The driver's parameters. Default: `/proc/driver/nvidia/params`.
    pub params: PathBuf,
}

impl Default for Host {
    fn default() -> Self {
        Self {
            params: PathBuf::from(names::PARAMS_PATH),
        }
    }
}

/// What a hook did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// What was changed in the container, or why nothing was; for people who look for a fault.
    pub notes: Vec<String>,
    /// What is amiss and was passed over, as the vendor's hook does.
    pub warnings: Vec<String>,
    /// The answer to `--help` or `--version`.
    pub output: Option<String>,
}

impl Report {
    fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    fn warn(&mut self, warning: impl Into<String>) {
        self.warnings.push(warning.into());
    }
}

/// Carries out the hook that `args` name (the first is the program's name) on the container that `stdin` describes.
///
/// `stdin` is the OCI state of the container, in JSON. It is only read if the hook needs it. `update-ldcache` leaves the
/// process in other namespaces and needs one without other threads: [`main`] is for programs that do nothing else.
///
/// # Errors
/// [`Error::Usage`] for unknown flags and values, before anything is read or touched; else whatever the hook could not do. What it had done
/// by then stays: the runtime discards the container. An unknown sub-command is a warning and no error, so that a spec of
/// a newer generator does not keep containers from starting, as with the vendor's program.
pub fn run(host: &Host, args: impl IntoIterator<Item = OsString>, stdin: impl Read) -> Result<Report> {
    answer(host, Arguments::parse(args)?, stdin)
}

fn answer(host: &Host, arguments: Arguments, stdin: impl Read) -> Result<Report> {
    let mut report = Report::default();
    carry_out(host, arguments.command, &mut State::new(stdin), &mut report)?;
    Ok(report)
}

fn carry_out(host: &Host, command: Command, state: &mut State<impl Read>, report: &mut Report) -> Result<()> {
    match command {
        Command::Help => report.output = Some(arguments::HELP.to_owned()),
        Command::Version => report.output = Some(format!("gpu-cdi-hook {}\n", env!("CARGO_PKG_VERSION"))),
        Command::Noop => report.note("nothing to do"),
        Command::Unknown { hook } => report.warn(format!("unknown hook `{hook}`: nothing was done")),
        Command::CreateSymlinks { links, spec } => {
            create_symlinks::run(&state.container(spec)?, &links, report)?;
        }
        Command::EnableCudaCompat { compat, spec } => {
            if compat.is_needed() {
                cuda_compat::run(&state.container(spec)?, &compat, report)?;
            }
        }
        Command::UpdateLdcache {
            ldconfig,
            folders,
            spec,
        } => {
            update_ldcache::run(&state.root(spec)?, &ldconfig, &folders, report)?;
        }
        Command::DisableDeviceNodeModification { spec } => {
            if let Some(params) = device_node_modification::changed_params(host, report)? {
                device_node_modification::run(&state.container(spec)?, &params, report)?;
            }
        }
        Command::UpdateApplicationProfile { spec } => {
            application_profile::run(&state.container(spec)?, report)?;
        }
        Command::Chmod { mode, paths, spec } => {
            chmod::run(&state.container(spec)?, mode, &paths, report)?;
        }
        Command::Several { commands } => {
            for command in commands {
                carry_out(host, command, state, report)?;
            }
        }
    }
    Ok(())
}

/// The state of the container that hooks work on; what comes on standard input is read once, if at all.
struct State<R> {
    stdin: Option<R>,
    root: Option<PathBuf>,
}

impl<R: Read> State<R> {
    fn new(stdin: R) -> Self {
        Self {
            stdin: Some(stdin),
            root: None,
        }
    }

    /// The container's root on the host.
    fn root(&mut self, spec: Option<PathBuf>) -> Result<PathBuf> {
        if let Some(path) = spec {
            return state::container_root(Some(&path), std::io::empty());
        }
        if let Some(stdin) = self.stdin.take() {
            self.root = Some(state::container_root(None, stdin)?);
        }
        Ok(self.root.clone().unwrap_or_default())
    }

    fn container(&mut self, spec: Option<PathBuf>) -> Result<Container> {
        Container::open(&self.root(spec)?)
    }
}
