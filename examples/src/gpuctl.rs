//! `gpuctl`: a node's GPUs, for people.

use std::{ffi::OsString, process::ExitCode};

use clap::{Parser, Subcommand};

use crate::program;

mod cdi;
mod count;
mod input;
mod inventory;
mod kernel_modules;
mod labels;
mod mig;
mod output;
mod runtime;
mod system;
mod table;

pub use self::table::inventory_table;

/// Looks at the GPUs of this node, and sets up what containers need to use them.
#[derive(Debug, Parser)]
#[command(name = "gpuctl", version)]
struct Gpuctl {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Prints the driver and every GPU of this node; what could not be read is named on standard error
    Inventory(inventory::Inventory),
    /// Prints the labels that `gpu-feature-discovery` would give this node, or a node of this inventory
    Labels(labels::Labels),
    /// Describes GPUs for containers (CDI), and looks at such descriptions
    #[command(subcommand)]
    Cdi(cdi::Cdi),
    /// Divides GPUs into MIG instances by a file of configurations, with least disruption
    Mig(mig::Mig),
    /// Makes containerd, CRI-O or Docker offer the NVIDIA runtime; edits files and restarts nothing
    #[command(subcommand)]
    Runtime(runtime::Runtime),
    /// Makes what the driver's device nodes need
    #[command(subcommand)]
    System(system::System),
    /// A container hook, as CDI files name it that were written for `nvidia-ctk hook`
    #[command(disable_help_flag = true)]
    Hook {
        /// The hook and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

/// Runs `gpuctl` with these arguments, the program's name first.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    match program::parse::<Gpuctl>(arguments).command {
        Command::Inventory(command) => program::run(|| command.run()),
        Command::Labels(command) => program::run(|| command.run()),
        Command::Cdi(command) => program::run(|| command.run()),
        Command::Mig(command) => program::run(|| command.run()),
        Command::Runtime(command) => program::run(|| command.run()),
        Command::System(command) => program::run(|| command.run()),
        Command::Hook { arguments } => {
            let name = ["nvidia-ctk", "hook"].map(OsString::from);
            gpu_cdi::hook::main(name.into_iter().chain(arguments))
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_are_well_formed() {
        Gpuctl::command().debug_assert();
    }
}
