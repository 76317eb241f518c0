use std::path::PathBuf;

use clap::{Args, ValueEnum};
use gpu_core::Inventory;

use super::{Source, hooks::RunHooks, tell_notes, tell_problems};
use crate::{
    hardware::Hardware,
    mig_apply::{Extent, Node, Report, indexed, plan},
    program::{print, remark},
    vendor,
};

#[derive(Debug, Args)]
pub(in crate::gpuctl) struct Apply {
    #[command(flatten)]
    source: Source,

    /// Commands to run before and after
    #[arg(short = 'k', long, env = "MIG_PARTED_HOOKS_FILE", value_name = "PATH")]
    hooks_file: Option<PathBuf>,

    /// A MIG mode that takes a reset is left noted for the next one; without `--mode-only` it is refused
    #[arg(short, long, env = "MIG_PARTED_SKIP_RESET", value_parser = vendor::parse_bool, num_args = 0..=1,
          require_equals = true, default_value = "false", default_missing_value = "true")]
    skip_reset: bool,

    /// MIG modes alone
    #[arg(short, long, env = "MIG_PARTED_MODE_CHANGE_ONLY", value_parser = vendor::parse_bool, num_args = 0..=1,
          require_equals = true, default_value = "false", default_missing_value = "true")]
    mode_only: bool,

    /// Says what would be done, and does nothing (an addition of this program)
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    hardware: Hardware,
}

#[derive(Debug, Args)]
pub(in crate::gpuctl) struct Plan {
    #[command(flatten)]
    source: Source,

    /// MIG modes alone
    #[arg(short, long, env = "MIG_PARTED_MODE_CHANGE_ONLY", value_parser = vendor::parse_bool, num_args = 0..=1,
          require_equals = true, default_value = "false", default_missing_value = "true")]
    mode_only: bool,

    /// How to print it
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,

    #[command(flatten)]
    hardware: Hardware,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Output {
    Text,
    Json,
}

impl Plan {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        show(&self.source, self.mode_only, self.output, &self.hardware)
    }
}

impl Apply {
    pub(super) fn run(&self, debug: bool) -> anyhow::Result<()> {
        if self.dry_run {
            return show(&self.source, self.mode_only, Output::Text, &self.hardware);
        }
        let configs = self.source.configs()?;
        let mut hooks = RunHooks::read(self.hooks_file.as_deref(), debug)?;
        hooks.set("MIG_PARTED_CONFIG_FILE", self.source.config_file.display());
        hooks.set(
            "MIG_PARTED_SELECTED_CONFIG",
            self.source.selected_config.as_deref().unwrap_or_default(),
        );
        hooks.set(
            "MIG_PARTED_HOOKS_FILE",
            self.hooks_file.as_deref().unwrap_or("".as_ref()).display(),
        );
        hooks.set("MIG_PARTED_SKIP_RESET", self.skip_reset);
        hooks.set("MIG_PARTED_MODE_CHANGE_ONLY", self.mode_only);
        let mut node = Node::new(self.hardware.clone());
        let inventory = node.inventory()?;
        tell_problems(&inventory);
        tell_notes(&self.source.select(&configs, &inventory)?);
        let extent = Extent {
            mode_only: self.mode_only,
            skip_reset: self.skip_reset,
        };
        let select = |inventory: &Inventory| self.source.select(&configs, inventory);
        hooks.around(|hooks| node.change(&select, extent, hooks).map(|report| tell(&report)))?;
        print("MIG configuration applied successfully\n")
    }
}

/// What was done, on standard error.
pub(super) fn tell(report: &Report) {
    if report.steps.is_empty() {
        remark("nothing to do: it is applied already");
    }
    report.steps.iter().for_each(remark);
    for index in &report.pending {
        remark(format_args!("MIG mode of GPU {index} changes with the next reset"));
    }
}

fn show(source: &Source, mode_only: bool, output: Output, hardware: &Hardware) -> anyhow::Result<()> {
    let configs = source.configs()?;
    let mut node = Node::new(hardware.clone());
    let inventory = node.inventory()?;
    tell_problems(&inventory);
    let mut selection = source.select(&configs, &inventory)?;
    tell_notes(&selection);
    if mode_only {
        selection = selection.mode_only(&inventory);
    }
    let planned = plan(&inventory, &node.usage()?, &selection)?;
    for gpu in &planned.by_catalogue {
        let text = format!("note: {gpu} tells its profiles once MIG mode is on: its part is by the catalogue");
        remark(indexed(&text, &inventory));
    }
    match output {
        Output::Json => print(serde_json::to_string_pretty(&planned.plan)? + "\n"),
        Output::Text => {
            let steps = planned.plan.check(&planned.fleet)?;
            let lines: Vec<_> = steps
                .steps()
                .iter()
                .map(|step| indexed(&step.to_string(), &inventory) + "\n")
                .collect();
            if lines.is_empty() {
                print("nothing to do\n")
            } else {
                print(lines.concat())
            }
        }
    }
}
