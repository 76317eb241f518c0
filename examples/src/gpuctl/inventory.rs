use clap::{Args, ValueEnum};
use gpu_core::nvml::Library;

use super::inventory_table;
use crate::{
    hardware::Hardware,
    program::{print, remark},
};

#[derive(Debug, Args)]
pub(super) struct Inventory {
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

impl Inventory {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let library = Library::open(&self.hardware.library_search())?;
        let inventory = library.inventory(&self.hardware.host_root)?;
        for problem in &inventory.problems {
            remark(format_args!("warning: {problem}"));
        }
        print(match self.output {
            Output::Json => serde_json::to_string_pretty(&inventory)? + "\n",
            Output::Yaml => serde_saphyr::to_string(&inventory)?,
            Output::Table => inventory_table(&inventory),
        })
    }
}
