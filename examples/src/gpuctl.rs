//! `gpuctl`: a node's GPUs, for people.

use std::{ffi::OsString, process::ExitCode};

use clap::{Args, Parser, Subcommand, ValueEnum};
use gpu_core::{Inventory, nvml::Library};

use crate::{
    hardware::Hardware,
    program::{self, print, remark},
};

mod table;

pub use self::table::inventory_table;

/// Looks at the GPUs of this node.
#[derive(Debug, Parser)]
#[command(name = "gpuctl", version)]
struct Gpuctl {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Prints the driver and every GPU of this node; what could not be read is named on standard error
    Inventory(InventoryCommand),
}

#[derive(Debug, Args)]
struct InventoryCommand {
    #[command(flatten)]
    hardware: Hardware,

    /// How to print it
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Output {
    Json,
    Yaml,
    Table,
}

/// Runs `gpuctl` with these arguments, the program's name first.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let gpuctl = Gpuctl::parse_from(arguments);
    program::run(|| match gpuctl.command {
        Command::Inventory(command) => inventory(&command),
    })
}

fn inventory(command: &InventoryCommand) -> anyhow::Result<()> {
    let library = Library::open(&command.hardware.library_search())?;
    let inventory = library.inventory(&command.hardware.host_root)?;
    for problem in &inventory.problems {
        remark(format_args!("warning: {problem}"));
    }
    print(render(&inventory, command.output)?)
}

fn render(inventory: &Inventory, output: Output) -> anyhow::Result<String> {
    Ok(match output {
        Output::Json => serde_json::to_string_pretty(inventory)? + "\n",
        Output::Yaml => serde_saphyr::to_string(inventory)?,
        Output::Table => inventory_table(inventory),
    })
}
