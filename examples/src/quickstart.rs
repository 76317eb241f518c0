//! `quickstart`: how a pod gets a GPU, from the driver to the container, on this machine and in a few seconds.
//!
//! The node is simulated unless an NVML library is named; the kubelet is a double. Everything in between is what runs in
//! production.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fmt::Write as _,
    fs,
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use clap::Parser;
use gpu_plugin::{
    Node, NodeConfig, ResourceSet, Sockets,
    gpu_cdi::{ContainerEdits, DeviceRule, Format, Mount, Spec},
    gpu_kubelet::double::{Config, Kubelet},
    gpu_sharing::config::{Config as Settings, DeviceListStrategy},
    names::{CDI_FILE, GPU_RESOURCE},
    run,
};
use tempfile::TempDir;
use tokio::sync::{Notify, oneshot, watch};

use crate::{
    driver_files::driver_files,
    executor,
    gpuctl::inventory_table,
    hardware::Hardware,
    logging::Logging,
    program::{self, print},
};

/// How long any step may take.
const SOON: Duration = Duration::from_secs(10);

/// Shows how a pod gets a GPU: on a simulated node with 4 GPUs, or on this one's.
#[derive(Debug, Parser)]
#[command(name = "quickstart", version)]
struct Quickstart {
    /// If any of these is given, this machine's GPUs take the place of simulated ones; nothing is changed on them
    #[command(flatten)]
    hardware: Hardware,

    /// Where the simulated GPUs get their UUIDs and serial numbers from
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with_all = HARDWARE)]
    seed: u64,

    /// Numbers the simulated device nodes otherwise than by PCI address, as happens on real machines
    #[arg(long, conflicts_with_all = HARDWARE)]
    permute_pci: bool,

    #[command(flatten)]
    logging: Logging,
}

const HARDWARE: [&str; 3] = ["nvml_library", "driver_root", "host_root"];

/// Runs `quickstart` with these arguments, the program's name first.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let quickstart: Quickstart = program::parse(arguments);
    program::run(|| {
        quickstart.logging.start_at(tracing::Level::WARN)?; // the story itself tells what goes well
        executor::run(story(&quickstart))
    })
}

async fn story(arguments: &Quickstart) -> anyhow::Result<()> {
    let started = Instant::now();
    let dir = TempDir::new().context("cannot make a temporary directory")?;

    heading(1, "A node")?;
    let stage = Stage::new(arguments, dir.path())?;
    print(format_args!("{}\n", stage.description))?;

    heading(2, "What the driver says (gpu-core, through NVML)")?;
    let node = tokio::task::spawn_blocking({
        let config = stage.config(dir.path());
        move || Node::discover(&config)
    });
    let node = node.await?.context("cannot read the node")?;
    print(inventory_table(node.inventory()))?;
    for remark in node.remarks() {
        print(format_args!("! {remark}\n"))?;
    }
    ensure!(!node.is_empty(), "this node has no GPU to offer");
    let count = node.resources().iter().map(ResourceSet::len).sum();
    drop(node);

    heading(3, "What a container needs of it (gpu-cdi)")?;
    let path = dir.path().join("cdi").join(CDI_FILE);
    let spec = Spec::from_text(&fs::read_to_string(&path)?, Format::Json)?;
    print(format_args!("{}", describe_spec(&spec)))?;

    heading(4, "The kubelet hears of it (gpu-plugin, in front of a kubelet double)")?;
    let kubelet = Kubelet::start(Config::in_dir(dir.path().join("kubelet"))).await?;
    let sockets = Sockets {
        kubelet: kubelet.registration_socket(),
        pod_resources: None,
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let config = watch::Sender::new(stage.config(dir.path()));
    let plugin = tokio::spawn(async move {
        let stopped = async {
            let _ = stopped.await;
        };
        run(
            config.subscribe(),
            &sockets,
            &Notify::new(),
            &watch::Sender::default(),
            stopped,
        )
        .await
    });
    kubelet.wait_for_allocatable(GPU_RESOURCE, count, SOON).await?;
    print(format_args!("Allocatable {GPU_RESOURCE}: {count}\n"))?;

    heading(5, &format!("A pod asks for {GPU_RESOURCE}: 1"))?;
    let admission = kubelet.admit("default/smoke-test", "cuda", GPU_RESOURCE, 1).await?;
    let names: Vec<_> = admission
        .response
        .cdi_devices
        .iter()
        .map(|device| device.name.clone())
        .collect();
    print(format_args!(
        "The kubelet tells the container runtime: {}\n",
        names.join(", ")
    ))?;
    print(describe_container(&spec, &names)?)?;

    heading(6, "A GPU breaks")?;
    let left = stage.break_a_gpu(&kubelet, count).await?;

    drop(stop);
    plugin.await??;
    print(format_args!("\n{}", stage.summary(count, left, started.elapsed())))
}

fn heading(number: u32, text: &str) -> anyhow::Result<()> {
    print(format_args!("\n{number}. {text}\n\n"))
}

/// Where the story happens.
struct Stage {
    description: String,
    hardware: Hardware,
    /// `None` on a real node.
    simulated: Option<gpu_sim::Node>,
}

impl Stage {
    fn new(arguments: &Quickstart, dir: &Path) -> anyhow::Result<Self> {
        if !arguments.hardware.is_usual() {
            return Ok(Self {
                description: "This machine, with its own driver.".to_owned(),
                hardware: arguments.hardware.clone(),
                simulated: None,
            });
        }
        let spec = gpu_sim::NodeSpec::new("h100")
            .gpus(4)
            .seed(arguments.seed)
            .permute_pci(arguments.permute_pci);
        let node = gpu_sim::Node::create(&spec, dir.join("node")).context("cannot make the simulated node")?;
        Ok(Self {
            description: format!(
                "Simulated in `{}`: 4 H100, the driver's library with its real C interface, device nodes, /proc and /sys.",
                node.folder().display()
            ),
            hardware: Hardware {
                nvml_library: Some(node.library()),
                driver_root: node.root(),
                host_root: node.root(),
            },
            simulated: Some(node),
        })
    }

    fn config(&self, dir: &Path) -> NodeConfig {
        let root = &self.hardware.driver_root;
        let mut driver_files = driver_files(root, &self.hardware.host_root);
        let mut settings = Settings::default();
        settings.plugin.device_list_strategy = vec![DeviceListStrategy::CdiCri];
        if self.simulated.is_some() {
            driver_files.device_rule = DeviceRule::AnyFile; // only root can make real device nodes
        } else {
            settings.nvidia_driver_root = root.to_string_lossy().into_owned();
            settings.nvidia_dev_root.clone_from(&settings.nvidia_driver_root);
        }
        NodeConfig {
            config: settings,
            library: self.hardware.library_search(),
            host_root: self.hardware.host_root.clone(),
            cdi_dir: dir.join("cdi"),
            driver_files,
            ..NodeConfig::default()
        }
    }

    /// How many GPUs are left.
    async fn break_a_gpu(&self, kubelet: &Kubelet, count: usize) -> anyhow::Result<usize> {
        let Some(node) = &self.simulated else {
            print("Not on real hardware: nothing is broken here.\n")?;
            return Ok(count);
        };
        node.inject_xid(count - 1, 79)?;
        kubelet.wait_for_allocatable(GPU_RESOURCE, count - 1, SOON).await?;
        print(format_args!(
            "Xid 79 on GPU {}: it has fallen off the bus.\nAllocatable {GPU_RESOURCE}: {}\n",
            count - 1,
            count - 1
        ))?;
        Ok(count - 1)
    }

    fn summary(&self, count: usize, left: usize, took: Duration) -> String {
        let mut text = format!(
            "Summary ({:.1} s)\n  {count} GPUs found, described for containers, offered to the kubelet; 1 pod got 1 of them.\n",
            took.as_secs_f64()
        );
        if self.simulated.is_some() {
            let _ = writeln!(text, "  1 GPU failed, and {left} are still offered.");
            text.push_str("  The NVML library, the kubelet and the files were stand-ins; the code between them is production's.\n");
        } else {
            text.push_str("  The GPUs and their driver were real, the kubelet was a stand-in.\n");
        }
        text
    }
}

fn describe_spec(spec: &Spec) -> String {
    let common = &spec.container_edits;
    let names: Vec<_> = spec
        .devices
        .iter()
        .map(|device| format!("  {}={}", spec.kind, device.name))
        .collect();
    format!(
        "CDI {} file with {} devices\n{}\nand for each container {} control nodes, {} driver files and {} hooks.\n",
        spec.cdi_version.as_str(),
        spec.devices.len(),
        names.join("\n"),
        common.device_nodes.len(),
        common.mounts.len(),
        common.hooks.len(),
    )
}

/// What a runtime that reads the spec gives to a container that was told these names.
fn describe_container(spec: &Spec, names: &[String]) -> anyhow::Result<String> {
    let mut edits: Vec<&ContainerEdits> = vec![&spec.container_edits];
    for name in names {
        let device = spec
            .devices
            .iter()
            .find(|device| format!("{}={}", spec.kind, device.name) == *name);
        edits.insert(
            0,
            &device
                .with_context(|| format!("`{name}` is not in the CDI file"))?
                .container_edits,
        );
    }
    let list = |what: &str, of: &dyn Fn(&ContainerEdits) -> Vec<String>| {
        let all: Vec<_> = edits.iter().flat_map(|edits| of(edits)).collect();
        format!("  {what:<8} {}\n", all.join("\n           "))
    };
    let mounts = edits.iter().flat_map(|edits| &edits.mounts);
    Ok(format!(
        "and the runtime puts into the container:\n{}{}{}",
        list("devices", &|edits| edits
            .device_nodes
            .iter()
            .map(|node| node.path.clone())
            .collect()),
        list("env", &|edits| edits.env.clone()),
        describe_mounts(mounts),
    ))
}

/// Folder by folder, with the first names of each.
fn describe_mounts<'a>(mounts: impl Iterator<Item = &'a Mount>) -> String {
    const SHOWN: usize = 3;
    let mut folders: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for mount in mounts {
        let (folder, name) = mount.container_path.rsplit_once('/').unwrap_or_default();
        folders.entry(folder).or_default().push(name);
    }
    let lines = folders.into_iter().map(|(folder, mut names)| {
        names.sort_unstable();
        let more = names.len().saturating_sub(SHOWN);
        names.truncate(SHOWN);
        let names = names.join(", ");
        match more {
            0 => format!("{folder}: {names}"),
            more => format!("{folder}: {names} and {more} more"),
        }
    });
    format!(
        "  {:<8} {}\n",
        "mounts",
        lines.collect::<Vec<_>>().join("\n           ")
    )
}
