//! `gpuctl system`: in the place of `nvidia-ctk system`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand};

use self::{create_dev_char_symlinks::CreateDevCharSymlinks, create_device_nodes::CreateDeviceNodes};
use super::kernel_modules;
use crate::{
    device_nodes::{self, Node},
    host_root, names,
    program::remark,
};

mod create_dev_char_symlinks;
mod create_device_nodes;
mod dev_char_link;

#[derive(Debug, Subcommand)]
pub(super) enum System {
    /// Makes the links by device number that runc needs when systemd manages cgroups
    CreateDevCharSymlinks(CreateDevCharSymlinks),
    /// Makes device nodes that are missing
    CreateDeviceNodes(CreateDeviceNodes),
}

#[derive(Debug, Args)]
struct Common {
    /// Says what would be made, and makes nothing
    #[arg(long)]
    dry_run: bool,

    /// Where the host's /proc is (an addition of this program)
    #[arg(long, value_name = "PATH", env = names::HOST_ROOT, default_value = "/")]
    host_root: PathBuf,
}

impl System {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let (Self::CreateDevCharSymlinks(CreateDevCharSymlinks { common, .. })
        | Self::CreateDeviceNodes(CreateDeviceNodes { common, .. })) = self;
        host_root::check(&common.host_root)?;
        match self {
            Self::CreateDevCharSymlinks(command) => command.run(),
            Self::CreateDeviceNodes(command) => command.run(),
        }
    }
}

impl Common {
    fn load_kernel_modules(&self, root: &Path) -> anyhow::Result<()> {
        for module in kernel_modules::ALL {
            if self.dry_run {
                remark(format_args!("would load the kernel module `{module}`"));
            } else {
                kernel_modules::load(module, root)?;
            }
        }
        Ok(())
    }

    fn create_control_nodes(&self, dev_root: &Path) -> anyhow::Result<()> {
        let mut is_complete = true;
        for node in self.known(device_nodes::control(&self.host_root))? {
            let (act, verb): (fn(&Node, &Path) -> _, _) = if self.dry_run {
                (device_nodes::is_missing, "would make")
            } else {
                (device_nodes::create, "made")
            };
            let path = device_nodes::here(&node, dev_root);
            if act(&node, dev_root).with_context(|| format!("cannot make `{}`", path.display()))? {
                is_complete = false;
                remark(format_args!(
                    "{verb} `{}` {}:{}",
                    path.display(),
                    node.major,
                    node.minor
                ));
            }
        }
        if is_complete {
            let folder = dev_root.join("dev");
            remark(format_args!("all control nodes are in `{}`", folder.display()));
        }
        Ok(())
    }

    /// The driver's nodes, of which there are some if it is loaded.
    fn known(&self, nodes: Vec<Node>) -> anyhow::Result<Vec<Node>> {
        ensure!(
            !nodes.is_empty(),
            "no NVIDIA driver is loaded: `{}` names none of its devices",
            self.host_root.join("proc/devices").display()
        );
        Ok(nodes)
    }
}

#[cfg(test)]
mod tests;
