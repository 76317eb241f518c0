use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use gpu_core::Inventory;
use gpu_sharing::mig::parted::Checkpoint;

use super::{apply::tell, hooks::RunHooks, input::read, inventory, open, write};
use crate::{
    hardware::Hardware,
    mig_apply::{Extent, Node},
    program::print,
    vendor,
};

#[derive(Debug, Args)]
pub(in crate::gpuctl) struct Save {
    /// The file to write
    #[arg(short = 'f', long, env = "MIG_PARTED_CHECKPOINT_FILE", value_name = "PATH")]
    checkpoint_file: PathBuf,

    #[command(flatten)]
    hardware: Hardware,
}

#[derive(Debug, Args)]
pub(in crate::gpuctl) struct Restore {
    /// The file to restore from; `-` for standard input
    #[arg(short = 'f', long, env = "MIG_PARTED_CHECKPOINT_FILE", value_name = "PATH")]
    checkpoint_file: PathBuf,

    /// Commands to run before and after
    #[arg(short = 'k', long, env = "MIG_PARTED_HOOKS_FILE", value_name = "PATH")]
    hooks_file: Option<PathBuf>,

    /// MIG modes alone
    #[arg(short, long, env = "MIG_PARTED_MODE_CHANGE_ONLY", value_parser = vendor::parse_bool, num_args = 0..=1,
          require_equals = true, default_value = "false", default_missing_value = "true")]
    mode_only: bool,

    #[command(flatten)]
    hardware: Hardware,
}

impl Save {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let inventory = inventory(&open(&self.hardware)?, &self.hardware)?;
        write(&self.checkpoint_file, &Checkpoint::take(&inventory)?.to_json())
    }
}

impl Restore {
    pub(super) fn run(&self, debug: bool) -> anyhow::Result<()> {
        let file = || format!("cannot use `{}`", self.checkpoint_file.display());
        let checkpoint = Checkpoint::parse(&read(&self.checkpoint_file)?).with_context(file)?;
        let mut hooks = RunHooks::read(self.hooks_file.as_deref(), debug)?;
        hooks.set("MIG_PARTED_CHECKPOINT_FILE", self.checkpoint_file.display());
        hooks.set(
            "MIG_PARTED_HOOKS_FILE",
            self.hooks_file.as_deref().unwrap_or("".as_ref()).display(),
        );
        hooks.set("MIG_PARTED_MODE_CHANGE_ONLY", self.mode_only);
        let mut node = Node::new(self.hardware.clone());
        let extent = Extent {
            mode_only: self.mode_only,
            skip_reset: false,
        };
        let select = |inventory: &Inventory| checkpoint.select(inventory).with_context(file);
        hooks.around(|hooks| node.change(&select, extent, hooks).map(|report| tell(&report)))?;
        print("MIG configuration restored successfully\n")
    }
}
