use clap::Args;
use gpu_core::nvml::Library;

use super::{inventory_table, output::Output};
use crate::{hardware::Hardware, program::remark};

#[derive(Debug, Args)]
pub(super) struct Inventory {
    #[command(flatten)]
    hardware: Hardware,

    /// How to print it
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

impl Inventory {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let library = Library::open(&self.hardware.library_search())?;
        let inventory = library.inventory(&self.hardware.host_root)?;
        for problem in &inventory.problems {
            remark(format_args!("warning: {problem}"));
        }
        self.output.print(&inventory, inventory_table)
    }
}
