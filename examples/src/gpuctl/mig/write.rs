use std::path::PathBuf;

use clap::Args;
use gpu_sharing::mig::parted::{Form, export, generate};

use super::{Format, inventory, open, write};
use crate::{
    hardware::Hardware,
    program::{print, remark},
};

#[derive(Debug, Args)]
pub(in crate::gpuctl) struct Export {
    /// The form
    #[arg(short, long, env = "MIG_PARTED_OUTPUT_FORMAT", value_enum, default_value_t = Format::Yaml)]
    output_format: Format,

    /// The name of the configuration
    #[arg(
        short = 'l',
        long,
        env = "MIG_PARTED_CONFIG_LABEL",
        default_value = "current",
        value_name = "NAME"
    )]
    config_label: String,

    #[command(flatten)]
    hardware: Hardware,
}

#[derive(Debug, Args)]
pub(in crate::gpuctl) struct GenerateConfig {
    /// Where to write it; default: standard output
    #[arg(short = 'f', long, env = "MIG_PARTED_OUTPUT_FILE", value_name = "PATH")]
    output_file: Option<PathBuf>,

    /// The form
    #[arg(short, long, env = "MIG_PARTED_OUTPUT_FORMAT", value_enum, default_value_t = Format::Yaml)]
    output_format: Format,

    #[command(flatten)]
    hardware: Hardware,
}

impl Export {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let inventory = inventory(&open(&self.hardware)?, &self.hardware)?;
        for gpu in &inventory.gpus {
            let instances = gpu.mig.iter().flat_map(|mig| &mig.gpu_instances);
            for instance in instances.filter(|instance| instance.compute_instances.is_empty()) {
                let (index, id) = (gpu.index, instance.id);
                remark(format_args!(
                    "note: GPU instance {id} of GPU {index} has no compute instance, and is left out"
                ));
            }
        }
        print(
            self.output_format
                .write(&export(&inventory, &self.config_label), Form::Exported),
        )
    }
}

impl GenerateConfig {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let inventory = inventory(&open(&self.hardware)?, &self.hardware)?;
        let text = self.output_format.write(&generate(&inventory)?, Form::Generated);
        match &self.output_file {
            Some(path) => write(path, &text),
            None => print(text),
        }
    }
}
