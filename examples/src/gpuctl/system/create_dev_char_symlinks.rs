use std::{io, path::PathBuf};

use anyhow::Context as _;
use clap::Args;
use gpu_cdi::{DiscoverConfig, DriverFiles};

use super::{Common, dev_char_link::Link};
use crate::{
    device_nodes::{self, Node},
    gpuctl::count::count,
    host_root::check_folder,
    names,
    program::remark,
    vendor,
};

#[derive(Debug, Args)]
pub(in crate::gpuctl) struct CreateDevCharSymlinks {
    /// The folder of the links
    #[arg(long, env = "DEV_CHAR_PATH", default_value = "/dev/char", value_name = "PATH")]
    dev_char_path: PathBuf,

    /// The root whose `dev` holds the nodes, also set by `DRIVER_ROOT`
    #[arg(long, env = names::DRIVER_ROOT, value_name = "PATH", default_value_os_t = vendor::env_or("DRIVER_ROOT", "/").into())]
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

    /// Names each link that is made, as a dry run does (an addition of this program)
    #[arg(short, long)]
    verbose: bool,

    #[command(flatten)]
    pub(super) common: Common,
}

impl CreateDevCharSymlinks {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        if self.load_kernel_modules || self.create_device_nodes {
            check_folder("driver root", &self.driver_root)?;
        }
        if self.load_kernel_modules {
            self.common.load_kernel_modules(&self.driver_root)?;
        }
        if self.create_device_nodes {
            self.common.create_control_nodes(&self.driver_root)?;
        }
        let nodes = self.nodes()?;
        let link = |node| Link::to(node, &self.driver_root, &self.dev_char_path);
        self.make(&nodes.iter().map(link).collect::<Vec<_>>())
    }

    fn nodes(&self) -> anyhow::Result<Vec<Node>> {
        if !self.create_all {
            return self.existing();
        }
        // It may be the path of a host that is not seen here.
        if !self.driver_root.is_dir() {
            remark(format_args!(
                "warning: there is no driver root `{}` here: the links lead nowhere until there is",
                self.driver_root.display()
            ));
        }
        self.common.known(device_nodes::all(&self.common.host_root))
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

    /// Makes the links that are missing, or says which it would make.
    fn make(&self, links: &[Link]) -> anyhow::Result<()> {
        let is_dry = self.common.dry_run;
        let (act, verb): (fn(&Link) -> _, _) = if is_dry {
            (Link::is_missing, "would link")
        } else {
            (Link::make, "linked")
        };
        let mut made = 0;
        let mut failed: Vec<(&Link, io::Error)> = Vec::new();
        for link in links {
            match act(link) {
                Ok(false) => {}
                Ok(true) => {
                    made += 1;
                    if is_dry || self.verbose {
                        let (path, target) = (link.path.display(), link.target.display());
                        remark(format_args!("{verb} `{path}` to `{target}`"));
                    }
                }
                Err(error) => failed.push((link, error)),
            }
        }
        self.sum_up(made, links.len() - made - failed.len());
        let number = failed.len();
        match failed.into_iter().next() {
            None => Ok(()),
            Some((link, error)) => Err(error).with_context(|| {
                let of = count(links.len(), "link");
                format!(
                    "cannot make {number} of {of}, the first of them `{}`",
                    link.path.display()
                )
            }),
        }
    }

    fn sum_up(&self, made: usize, kept: usize) {
        let folder = self.dev_char_path.display();
        let verb = if self.common.dry_run { "would make" } else { "made" };
        let made_here = format!("{verb} {} in `{folder}`", count(made, "link"));
        remark(match (made, kept) {
            (0, 0) => format!("there is nothing to link in `{folder}`"),
            (0, kept) => format!("nothing to do in `{folder}`: it has {} already", count(kept, "link")),
            (_, 0) => made_here,
            (_, kept) => format!("{made_here}, which had {} already", count(kept, "link")),
        });
    }
}
