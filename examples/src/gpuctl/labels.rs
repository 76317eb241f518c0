use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::Context;
use clap::Args;
use comfy_table::{Table, presets::NOTHING};
use gpu_core::{Inventory, nvml::Library};
use gpu_labels::{
    Node, Options,
    gpu_sharing::config::{self, Config, ConfigFile, Flags, MigStrategy, Program, Reading},
    labels, pci_labels,
};

use super::{input, output::Output};
use crate::{
    config_file,
    hardware::Hardware,
    names::{CONFIG_FILE, feature_discovery::MIG_STRATEGY},
    program::remark,
};

#[derive(Debug, Args)]
pub(super) struct Labels {
    #[command(flatten)]
    hardware: Hardware,

    /// Take this inventory, as `gpuctl inventory -o json` prints it, and not this node's; `-` is standard input
    #[arg(long, value_name = "FILE")]
    inventory: Option<PathBuf>,

    /// The configuration file that is shared with the device plugin
    #[arg(long, value_name = "PATH", env = CONFIG_FILE)]
    config_file: Option<PathBuf>,

    /// Labels of MIG devices: none, single or mixed; before what the configuration file says
    #[arg(long, value_name = "STRATEGY", env = MIG_STRATEGY)]
    mig_strategy: Option<MigStrategy>,

    /// The file with the machine's type, below the host root
    #[arg(long, value_name = "PATH", default_value = "/sys/class/dmi/id/product_name")]
    machine_type_file: PathBuf,

    /// Labels of every model of a node with several
    #[arg(long = "per-model-labels")]
    per_model: bool,

    /// Also the labels by which operators find nodes with GPUs
    #[arg(long = "pci-labels")]
    pci: bool,

    /// How to print them
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

impl Labels {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let config = self.config()?;
        let (inventory, node) = self.node()?;
        let options = Options {
            per_model: self.per_model,
        };
        let (mut found, remarks) = labels(&inventory, &node, &config, options)?;
        if self.pci {
            found.extend(pci_labels(&node));
        }
        for problem in &inventory.problems {
            warn(problem);
        }
        for remark in &remarks {
            warn(remark);
        }
        let found: BTreeMap<&str, &str> = found
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        self.output.print(&found, table)
    }

    fn config(&self) -> anyhow::Result<Config> {
        let path = self.config_file.as_deref().unwrap_or(Path::new("/dev/null"));
        let (file, _) = ConfigFile::parse(&config_file::read(path)?, Reading::Strict)
            .with_context(|| format!("cannot use the configuration file `{}`", path.display()))?;
        let flags = Flags {
            mig_strategy: self.mig_strategy,
            ..Flags::default()
        };
        let (config, warnings) = Config::resolve(file, flags, config::Options::default());
        config.check(Program::FeatureDiscovery)?;
        for warning in &warnings {
            warn(warning);
        }
        Ok(config)
    }

    /// The GPUs and what is around them; of an inventory from elsewhere nothing is.
    fn node(&self) -> anyhow::Result<(Inventory, Node)> {
        if let Some(path) = &self.inventory {
            let inventory = serde_json::from_str(&input::read(path)?)
                .with_context(|| format!("`{}` is not an inventory", path.display()))?;
            return Ok((inventory, Node::default()));
        }
        let host_root = &self.hardware.host_root;
        let machine_type_file = self
            .machine_type_file
            .strip_prefix("/")
            .unwrap_or(&self.machine_type_file);
        let (node, problems) = Node::read(host_root, Some(&host_root.join(machine_type_file)));
        for problem in &problems {
            warn(problem);
        }
        let library = Library::open(&self.hardware.library_search())?;
        Ok((library.inventory(host_root)?, node))
    }
}

fn warn(text: impl std::fmt::Display) {
    remark(format_args!("warning: {text}"));
}

fn table(labels: &BTreeMap<&str, &str>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(["Label", "Value"]);
    table.add_rows(labels.iter().map(|(key, value)| [key, value]));
    format!("{table}\n")
}
