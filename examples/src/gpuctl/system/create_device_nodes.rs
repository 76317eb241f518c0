use std::path::PathBuf;

use anyhow::ensure;
use clap::Args;

use super::Common;
use crate::{host_root::check_folder, program::BadUsage};

#[derive(Debug, Args)]
pub(in crate::gpuctl) struct CreateDeviceNodes {
    /// The root whose modprobe loads kernel modules, and whose `dev` gets the nodes unless that is told apart
    #[arg(long, alias = "root", default_value = "/", value_name = "PATH")]
    driver_root: PathBuf,

    /// The root whose `dev` gets the nodes [default: the driver root]
    #[arg(long, value_name = "PATH")]
    dev_root: Option<PathBuf>,

    /// nvidiactl, nvidia-modeset, nvidia-uvm and nvidia-uvm-tools
    #[arg(long)]
    control_devices: bool,

    /// Loads the driver's kernel modules first, by the root's modprobe
    #[arg(long)]
    load_kernel_modules: bool,

    #[command(flatten)]
    pub(super) common: Common,
}

impl CreateDeviceNodes {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        ensure!(
            self.control_devices,
            BadUsage::new("say which nodes are to be made: `--control-devices`")
        );
        // A root that is mistyped is not to be made.
        if self.load_kernel_modules || self.dev_root.is_none() {
            check_folder("driver root", &self.driver_root)?;
        }
        if let Some(root) = &self.dev_root {
            check_folder("device root", root)?;
        }
        if self.load_kernel_modules {
            self.common.load_kernel_modules(&self.driver_root)?;
        }
        self.common
            .create_control_nodes(self.dev_root.as_ref().unwrap_or(&self.driver_root))
    }
}
