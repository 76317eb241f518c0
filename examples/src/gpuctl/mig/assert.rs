use anyhow::bail;
use clap::Args;

use super::{Source, inventory, open, tell_notes};
use crate::{
    hardware::Hardware,
    program::{print, remark},
    vendor,
};

#[derive(Debug, Args)]
pub(in crate::gpuctl) struct Assert {
    #[command(flatten)]
    source: Source,

    /// MIG modes alone
    #[arg(short, long, env = "MIG_PARTED_MODE_CHANGE_ONLY", value_parser = vendor::parse_bool, num_args = 0..=1,
          require_equals = true, default_value = "false", default_missing_value = "true")]
    mode_only: bool,

    /// Only whether the file has such a configuration and no mistake; looks at no GPU
    #[arg(short = 'a', long, env = "MIG_PARTED_VALID_CONFIG", value_parser = vendor::parse_bool, num_args = 0..=1,
          require_equals = true, default_value = "false", default_missing_value = "true")]
    valid_config: bool,

    #[command(flatten)]
    hardware: Hardware,
}

impl Assert {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let configs = self.source.configs()?;
        configs.named(self.source.selected_config.as_deref())?;
        if self.valid_config {
            return print("Selected MIG configuration is valid\n");
        }
        let library = open(&self.hardware)?;
        let inventory = inventory(&library, &self.hardware)?;
        let selection = self.source.select(&configs, &inventory)?;
        tell_notes(&selection);
        let differences = if self.mode_only {
            selection.mode_differs(&inventory)
        } else {
            selection.differs(&inventory)
        };
        if !differences.is_empty() {
            differences.iter().for_each(remark);
            bail!("assertion failure: selected configuration not currently applied");
        }
        print(if self.mode_only {
            "Selected MIG mode settings from configuration currently applied\n"
        } else {
            "Selected MIG configuration currently applied\n"
        })
    }
}
