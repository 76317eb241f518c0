//! A node with GPUs: the simulated driver's files in the place of a real driver's, our programs in an image, and our hook
//! where a toolkit would have installed it.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use crate::{Cluster, images, wait};

/// The folder of the simulated node, on the node.
const FOLDER: &str = "/var/lib/gpu-e2e/sim";
/// Where our hook lies on the node.
const HOOK: &str = "/var/lib/gpu-e2e/toolkit/gpu-cdi-hook";
const LIMIT: Duration = Duration::from_mins(1);

/// The cluster's node with simulated GPUs and the device plugin on it.
#[derive(Clone, Debug)]
pub struct GpuNode {
    stack: PathBuf,
}

impl GpuNode {
    /// Makes the node one with four H100, if no test before has, and waits until they are allocatable.
    ///
    /// # Errors
    /// If a part of it cannot be put in place, or the GPUs are not offered within a minute.
    pub fn ready(cluster: &Cluster) -> Result<Self> {
        let stack = env::var_os("GPU_E2E_STACK").context("GPU_E2E_STACK is not set: start the tests with `e2e/run`")?;
        let node = Self { stack: stack.into() };
        if !Path::new(FOLDER).exists() {
            node.make_hardware()?;
            node.install_hook()?;
            cluster.load(&images::stack(&node.stack)?)?;
            cluster.apply_text(&node.manifest()?)?;
        }
        node.wait_for_allocatable(cluster, "4")?;
        Ok(node)
    }

    /// The driver root on the node.
    pub fn driver_root(&self) -> PathBuf {
        Path::new(FOLDER).join("root")
    }

    /// Waits until the node's status says so many allocatable `nvidia.com/gpu`.
    ///
    /// # Errors
    /// If it does not within a minute.
    pub fn wait_for_allocatable(&self, cluster: &Cluster, count: &str) -> Result<()> {
        self.wait_for_allocatable_of(cluster, "nvidia.com/gpu", count)
    }

    /// The same of another resource.
    ///
    /// # Errors
    /// If it does not within a minute.
    pub fn wait_for_allocatable_of(&self, cluster: &Cluster, resource: &str, count: &str) -> Result<()> {
        let name = cluster.node();
        wait::until(&format!("{count} allocatable {resource}"), LIMIT, || {
            let node = cluster.json(["get", "node", name])?;
            Ok((node["status"]["allocatable"][resource] == count).then_some(()))
        })
    }

    /// The device node of a GPU on the node, as `stat -c '%n %t:%T'` says it of the one in a container.
    ///
    /// # Errors
    /// If the simulated node has no such GPU.
    pub fn device_of(&self, uuid: &str) -> Result<String> {
        let folder = self.driver_root().join("proc/driver/nvidia/gpus");
        for gpu in fs::read_dir(&folder).with_context(|| format!("cannot list `{}`", folder.display()))? {
            let information = fs::read_to_string(gpu?.path().join("information"))?;
            let value = |key: &str| {
                let line = information.lines().find(|line| line.starts_with(key));
                line.and_then(|line| line.split_once(':'))
                    .map(|(_, value)| value.trim().to_owned())
            };
            if value("GPU UUID").as_deref() == Some(uuid) {
                let minor: u32 = value("Device Minor").context("no minor number")?.parse()?;
                return Ok(format!("/dev/nvidia{minor} c3:{minor:x}"));
            }
        }
        anyhow::bail!("the simulated node has no GPU `{uuid}`")
    }

    /// The manifest of the toolkit's DaemonSet, which installs its programs beneath `install_dir` on the node.
    ///
    /// # Errors
    /// If the driver root is not UTF-8.
    pub fn toolkit_manifest(&self, install_dir: &str) -> Result<String> {
        let root = self.driver_root();
        let root = root.to_str().context("the driver root is not UTF-8")?;
        Ok(include_str!("../manifests/toolkit.yaml")
            .replace("value: DRIVER_ROOT ", &format!("value: {root} "))
            .replace("path: DRIVER_ROOT ", &format!("path: {root} "))
            .replace("SIMULATION", FOLDER)
            .replace("INSTALL_DIR", install_dir))
    }

    /// The manifest of the MPS daemon's DaemonSet.
    ///
    /// # Errors
    /// If the driver root is not UTF-8.
    pub fn mps_manifest(&self) -> Result<String> {
        let root = self.driver_root();
        let root = root.to_str().context("the driver root is not UTF-8")?;
        Ok(include_str!("../manifests/mps-daemon.yaml")
            .replace("path: DRIVER_ROOT", &format!("path: {root}"))
            .replace("path: SIMULATION", &format!("path: {FOLDER}"))
            .replace("mountPath: SIMULATION", &format!("mountPath: {FOLDER}")))
    }

    /// Gives the node the image of `cuda-devices`, [`images::CUDA`].
    ///
    /// # Errors
    /// See [`images::cuda`] and [`Cluster::load`].
    pub fn load_cuda(&self, cluster: &Cluster) -> Result<()> {
        cluster.load(&images::cuda(&self.stack)?)
    }

    /// The UUIDs of the GPUs, in the order of the node's files.
    ///
    /// # Errors
    /// If the simulated node cannot be read.
    pub fn uuids(&self) -> Result<Vec<String>> {
        let folder = self.driver_root().join("proc/driver/nvidia/gpus");
        let mut uuids = Vec::new();
        for gpu in fs::read_dir(&folder).with_context(|| format!("cannot list `{}`", folder.display()))? {
            let information = fs::read_to_string(gpu?.path().join("information"))?;
            let line = information.lines().find(|line| line.starts_with("GPU UUID"));
            let uuid = line
                .and_then(|line| line.split_once(':'))
                .context("a GPU without a UUID")?
                .1;
            uuids.push(uuid.trim().to_owned());
        }
        uuids.sort();
        Ok(uuids)
    }

    /// Runs `gpu-sim` on the simulated node.
    ///
    /// # Errors
    /// If it fails.
    pub fn sim(&self, arguments: &[&str]) -> Result<String> {
        let output = Command::new(self.stack.join("gpu-sim"))
            .args(arguments)
            .args(["--dir", FOLDER])
            .output();
        let output = output.context("cannot run gpu-sim")?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "gpu-sim {arguments:?} failed: {complaint}");
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The index of the last GPU that is another than this.
    ///
    /// # Errors
    /// If the simulated node cannot be read, or has no other GPU.
    pub fn other_than(&self, uuid: &str) -> Result<usize> {
        let folder = self.driver_root().join("proc/driver/nvidia/gpus");
        let entries = fs::read_dir(&folder).with_context(|| format!("cannot list `{}`", folder.display()))?;
        // Named by PCI address, whose order is that of indices.
        let mut gpus = entries.map(|gpu| Ok(gpu?.path())).collect::<Result<Vec<_>>>()?;
        gpus.sort();
        let is_other =
            |gpu: &PathBuf| fs::read_to_string(gpu.join("information")).is_ok_and(|text| !text.contains(uuid));
        gpus.iter().rposition(is_other).context("there is no other GPU")
    }

    /// The numbers of a GPU's GPU instances.
    ///
    /// # Errors
    /// If the simulated node cannot be read.
    pub fn instances(&self, gpu: usize) -> Result<Vec<String>> {
        let listing = self.sim(&["mig", "list", "--gpu", &gpu.to_string()])?;
        let instances = listing
            .lines()
            .filter_map(|line| line.strip_prefix("gi ")?.split(' ').next());
        Ok(instances.map(str::to_owned).collect())
    }

    fn make_hardware(&self) -> Result<()> {
        fs::create_dir_all("/var/lib/gpu-e2e").context("cannot make the folder of the simulated node")?;
        // Minor numbers that differ from the PCI order, so that nobody can mistake one for the other.
        self.sim(&[
            "new",
            "--profile",
            "h100",
            "--gpus",
            "4",
            "--seed",
            "1",
            "--permute-pci",
        ])
        .map(drop)
    }

    fn install_hook(&self) -> Result<()> {
        fs::create_dir_all("/var/lib/gpu-e2e/toolkit")
            .and_then(|()| fs::copy(self.stack.join("gpu-cdi-hook"), HOOK))
            .with_context(|| format!("cannot install `{HOOK}`"))
            .map(drop)
    }

    fn manifest(&self) -> Result<String> {
        let root = self.driver_root();
        let root = root.to_str().context("the driver root is not UTF-8")?;
        let text = include_str!("../manifests/device-plugin.yaml");
        Ok(text
            .replace("value: DRIVER_ROOT", &format!("value: {root}"))
            .replace("path: DRIVER_ROOT", &format!("path: {root}"))
            .replace("path: SIMULATION", &format!("path: {FOLDER}"))
            .replace("mountPath: SIMULATION", &format!("mountPath: {FOLDER}"))
            .replace("value: HOOK", &format!("value: {HOOK}")))
    }
}
