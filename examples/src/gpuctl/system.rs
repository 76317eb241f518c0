//! `gpuctl system`: in the place of `nvidia-ctk system`.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};
use clap::{Args, Subcommand};
use gpu_cdi::{DiscoverConfig, DriverFiles};

use super::kernel_modules;
use crate::{
    device_nodes::{self, Node},
    host_root,
    program::remark,
    vendor,
};

#[derive(Debug, Subcommand)]
pub(super) enum System {
    /// Makes the links by device number that runc needs when systemd manages cgroups
    CreateDevCharSymlinks(CreateDevCharSymlinks),
    /// Makes device nodes that are missing
    CreateDeviceNodes(CreateDeviceNodes),
}

#[derive(Debug, Args)]
pub(super) struct CreateDevCharSymlinks {
    /// The folder of the links
    #[arg(long, env = "DEV_CHAR_PATH", default_value = "/dev/char", value_name = "PATH")]
    dev_char_path: PathBuf,

    /// The root whose `dev` holds the nodes, also set by `DRIVER_ROOT`
    #[arg(long, env = "NVIDIA_DRIVER_ROOT", value_name = "PATH", default_value_os_t = vendor::env_or("DRIVER_ROOT", "/").into())]
    driver_root: PathBuf,

    /// For all devices that the driver has, also those without a node yet
    #[arg(long)]
    create_all: bool,

    /// Makes the control nodes first; with `--create-all`
    #[arg(long, requires = "create_all")]
    create_device_nodes: bool,

    /// Loads the driver's kernel modules first, by the driver root's modprobe; with `--create-all`
    #[arg(long, requires = "create_all")]
    load_kernel_modules: bool,

    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub(super) struct CreateDeviceNodes {
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
    common: Common,
}

#[derive(Debug, Args)]
struct Common {
    /// Says what would be made, and makes nothing
    #[arg(long)]
    dry_run: bool,

    /// Where the host's /proc is (an addition of this program)
    #[arg(long, value_name = "PATH", env = "GPU_HOST_ROOT", default_value = "/")]
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
        for node in self.known(device_nodes::control(&self.host_root))? {
            if self.dry_run {
                remark(format_args!("would make `{}` {}:{}", node.path, node.major, node.minor));
                continue;
            }
            let path = device_nodes::here(&node, dev_root);
            if device_nodes::create(&node, dev_root).with_context(|| format!("cannot make `{}`", path.display()))? {
                remark(format_args!("made `{}`", path.display()));
            }
        }
        Ok(())
    }
}

impl Common {
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

impl CreateDevCharSymlinks {
    fn run(&self) -> anyhow::Result<()> {
        if self.load_kernel_modules {
            self.common.load_kernel_modules(&self.driver_root)?;
        }
        if self.create_device_nodes {
            self.common.create_control_nodes(&self.driver_root)?;
        }
        let nodes = if self.create_all {
            self.common.known(device_nodes::all(&self.common.host_root))?
        } else {
            self.existing()?
        };
        let mut failed = 0;
        for node in nodes {
            let link = self.dev_char_path.join(format!("{}:{}", node.major, node.minor));
            let target = device_nodes::here(&node, &self.driver_root);
            if self.common.dry_run {
                remark(format_args!(
                    "would link `{}` to `{}`",
                    link.display(),
                    target.display()
                ));
                continue;
            }
            match set_link(&link, &target) {
                Ok(true) => remark(format_args!("linked `{}` to `{}`", link.display(), target.display())),
                Ok(false) => {}
                Err(error) => {
                    failed += 1;
                    remark(format_args!(
                        "error: cannot make the link `{}`: {error}",
                        link.display()
                    ));
                }
            }
        }
        if failed > 0 {
            bail!("{failed} links could not be made");
        }
        Ok(())
    }

    /// The GPUs' nodes that there are, with their numbers.
    fn existing(&self) -> anyhow::Result<Vec<Node>> {
        let files = DriverFiles::discover(&DiscoverConfig::new(&self.driver_root))?;
        let others = ["/dev/nvidia-fs", "/dev/nvidia-nvswitch", "/dev/nvidia-nvlink"];
        let nodes = files.device_nodes.iter().filter(|node| {
            node.path.starts_with("/dev/nvidia") && !others.iter().any(|start| node.path.starts_with(start))
        });
        let node = |node: &gpu_cdi::DeviceFile| {
            let number = node.number?;
            Some(Node {
                path: node.path.clone(),
                major: number.major,
                minor: number.minor,
                mode: node.mode,
            })
        };
        Ok(nodes.filter_map(node).collect())
    }
}

impl CreateDeviceNodes {
    fn run(&self) -> anyhow::Result<()> {
        ensure!(
            self.control_devices,
            "say which nodes are to be made: `--control-devices`"
        );
        if self.load_kernel_modules {
            self.common.load_kernel_modules(&self.driver_root)?;
        }
        self.common
            .create_control_nodes(self.dev_root.as_ref().unwrap_or(&self.driver_root))
    }
}

/// Makes a link, in the place of one that leads elsewhere; whether there was anything to do.
fn set_link(link: &Path, target: &Path) -> io::Result<bool> {
    match fs::read_link(link) {
        Ok(found) if found == target => return Ok(false),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        // What is no link is nobody's to replace.
        Err(error) => return Err(error),
    }
    if let Some(folder) = link.parent() {
        fs::create_dir_all(folder)?;
    }
    let temporary = link.with_extension("gpuctl");
    let made = std::os::unix::fs::symlink(target, &temporary).and_then(|()| fs::rename(&temporary, link));
    if made.is_err() {
        // Best effort: the first error is the one to report.
        let _ = fs::remove_file(&temporary);
    }
    made.map(|()| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_leads_elsewhere_is_replaced_and_a_file_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("char/195:0");
        assert!(set_link(&link, Path::new("/dev/nvidia1")).unwrap());
        assert!(set_link(&link, Path::new("/dev/nvidia0")).unwrap());
        assert!(!set_link(&link, Path::new("/dev/nvidia0")).unwrap());
        assert_eq!(fs::read_link(&link).unwrap(), Path::new("/dev/nvidia0"));
        assert_eq!(fs::read_dir(folder.path().join("char")).unwrap().count(), 1);
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(set_link(&file, Path::new("/dev/nvidia0")).is_err());
    }

    #[derive(Debug, clap::Parser)]
    struct Program {
        #[command(subcommand)]
        system: System,
    }

    fn run(arguments: &[&str]) -> anyhow::Result<()> {
        let arguments = ["x"].iter().chain(arguments);
        <Program as clap::Parser>::try_parse_from(arguments)?.system.run()
    }

    #[test]
    fn a_node_without_a_driver_is_told_from_one_where_nothing_is_to_do() {
        let root = tempfile::tempdir().unwrap();
        let here = format!("--host-root={}", root.path().display());
        for command in [
            ["create-device-nodes", "--control-devices"],
            ["create-dev-char-symlinks", "--create-all"],
        ] {
            let error = run(&[&command[..], &[&here]].concat()).unwrap_err().to_string();
            assert!(error.starts_with("no NVIDIA driver is loaded: "), "{error}");
            let error = run(&[&command[..], &["--host-root=/nowhere"]].concat())
                .unwrap_err()
                .to_string();
            assert_eq!(error, "cannot find the host's root `/nowhere`");
        }
    }

    #[test]
    fn driver_root_and_dev_root_are_two() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc")).unwrap();
        fs::write(root.path().join("proc/devices"), "Character devices:\n195 nvidia\n").unwrap();
        // In its place stands what is none, which shows where it was looked for.
        fs::create_dir_all(root.path().join("b/dev/nvidiactl")).unwrap();
        let (here, a, b) = (
            format!("--host-root={}", root.path().display()),
            format!("--driver-root={}/a", root.path().display()),
            format!("--dev-root={}/b", root.path().display()),
        );
        let error = run(&["create-device-nodes", "--control-devices", &here, &a, &b]).unwrap_err();
        let expected = format!("cannot make `{}/b/dev/nvidiactl`", root.path().display());
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn nodes_are_linked_for_all_that_the_driver_has() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc")).unwrap();
        fs::write(root.path().join("proc/devices"), "Character devices:\n195 nvidia\n").unwrap();
        let command = CreateDevCharSymlinks {
            dev_char_path: root.path().join("char"),
            driver_root: "/run/nvidia/driver".into(),
            create_all: true,
            create_device_nodes: false,
            load_kernel_modules: false,
            common: Common {
                dry_run: false,
                host_root: root.path().to_owned(),
            },
        };
        command.run().unwrap();
        assert_eq!(
            fs::read_link(root.path().join("char/195:255")).unwrap(),
            Path::new("/run/nvidia/driver/dev/nvidiactl")
        );
    }
}
