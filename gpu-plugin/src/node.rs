use std::{collections::BTreeSet, ops::ControlFlow, path::PathBuf, sync::Arc};

use gpu_cdi::{DiscoverConfig, DriverFiles, GenerateOptions, HookName, Kind, NameStrategy, generate};
use gpu_core::{
    Gpu, Inventory, Problem, ProblemKind,
    nvml::{HealthWatch, Library, LibrarySearch, Watched},
};

use crate::{
    DeviceIdStrategy, DeviceListStrategy, GpuResource, HealthPolicy, Resource, ResourceName, Result, error::chain,
    names,
};

/// How the GPUs of a node are offered.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// What pods ask for. Default: `nvidia.com/gpu`.
    pub resource: ResourceName,
    /// Where the driver library is. Default: wherever the loader finds it.
    pub library: LibrarySearch,
    /// Where the host's `/sys` is. Default: `/`.
    pub host_root: PathBuf,
    /// How a container is told its GPUs. Default: by environment variable.
    pub lists: Vec<DeviceListStrategy>,
    /// By which name. Default: UUID.
    pub ids: DeviceIdStrategy,
    /// Which events make a GPU unhealthy.
    pub health: HealthPolicy,
    /// Whether a node that cannot be read, or whose CDI file cannot be written, is an error; if not, it is waited for.
    /// Default: an error. A node without GPUs is waited for in any case.
    pub fail_on_init_error: bool,
    /// The folder for CDI files, written if containers are told by CDI names. Default: `/var/run/cdi`.
    pub cdi_dir: PathBuf,
    /// Where the driver's files are, for CDI.
    pub driver_files: DiscoverConfig,
    /// The driver root on the host, if that is not where it was read.
    pub host_driver_root: Option<String>,
    /// The device root on the host, likewise.
    pub host_dev_root: Option<String>,
    /// The hook program on the host that CDI files name.
    pub hook_path: String,
    /// Hooks to leave out of CDI files. Default: none.
    pub disabled_hooks: BTreeSet<HookName>,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            resource: names::GPU_RESOURCE.parse().expect("a valid resource name"),
            library: LibrarySearch::default(),
            host_root: PathBuf::from("/"),
            lists: vec![DeviceListStrategy::EnvVar],
            ids: DeviceIdStrategy::Uuid,
            health: HealthPolicy::default(),
            fail_on_init_error: true,
            cdi_dir: PathBuf::from("/var/run/cdi"),
            driver_files: DiscoverConfig::default(),
            host_driver_root: None,
            host_dev_root: None,
            hook_path: GenerateOptions::default().hook_path,
            disabled_hooks: BTreeSet::new(),
        }
    }
}

/// The GPUs of this node, watched and ready to be served.
#[derive(Debug)]
pub struct Node {
    inventory: Inventory,
    remarks: Vec<String>,
    resource: Arc<GpuResource>,
    /// `None` where there is nothing to watch, or the driver offers no events.
    _watch: Option<HealthWatch>,
}

impl Node {
    /// Reads the GPUs, starts to watch their health, and writes the CDI file if one is needed.
    ///
    /// What cannot be read or offered is in [`problems`](Self::problems); the rest is offered, which may be nothing: then no
    /// file is written. This calls the driver and may take its time: run it off the async runtime.
    ///
    /// # Errors
    /// Where the node as a whole cannot be read, or its CDI file not be written.
    pub fn discover(config: &NodeConfig) -> Result<Self> {
        let resource = GpuResource::new(config.resource.clone(), &[], &config.lists, config.ids);
        Self::read(config, Arc::new(resource))
    }

    /// Reads the node again. The new value takes the place of this one: it has the same [`resource`](Self::resource), which
    /// from then on has the GPUs that there are now, healthy unless they failed meanwhile.
    ///
    /// # Errors
    /// As [`discover`](Self::discover); what is offered then stays as it is.
    pub fn rediscover(&self, config: &NodeConfig) -> Result<Self> {
        self.resource.begin_anew();
        Self::read(config, Arc::clone(&self.resource))
    }

    fn read(config: &NodeConfig, resource: Arc<GpuResource>) -> Result<Self> {
        let library = Arc::new(Library::open(&config.library)?);
        let inventory = library.inventory(&config.host_root)?;
        let mut remarks = Vec::new();
        let mut gpus = for_computing(&inventory.gpus, &mut remarks);
        // Before anything else: what happens from here on is seen.
        let watch = match gpus.as_slice() {
            [] => None,
            gpus => watch(library, gpus, &resource, config.health.clone(), &mut remarks),
        };
        if config.lists.contains(&DeviceListStrategy::CdiCri) {
            gpus = undivided(gpus, &mut remarks);
            if !gpus.is_empty() {
                let inventory = Inventory {
                    gpus,
                    ..inventory.clone()
                };
                gpus = write_cdi_file(config, &inventory, &mut remarks)?;
            }
        }
        resource.offer(&gpus);
        Ok(Self {
            inventory,
            remarks,
            resource,
            _watch: watch,
        })
    }

    /// What was read.
    pub fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    /// What is offered.
    pub fn resource(&self) -> &Arc<GpuResource> {
        &self.resource
    }

    /// Whether there is no GPU to offer.
    pub fn is_empty(&self) -> bool {
        self.resource.devices().borrow().is_empty()
    }

    /// What a person should know of this node, in words: which GPUs are not offered or not watched and why, and what of the
    /// driver's files cannot be read. The inventory's own problems are not among it.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// All that is amiss: the inventory's problems, and the [`remarks`](Self::remarks).
    pub fn problems(&self) -> Vec<String> {
        let problems = self.inventory.problems.iter().map(ToString::to_string);
        problems.chain(self.remarks.iter().cloned()).collect()
    }
}

fn for_computing(gpus: &[Gpu], remarks: &mut Vec<String>) -> Vec<Gpu> {
    let (display, computing): (Vec<_>, Vec<_>) = gpus.iter().cloned().partition(Gpu::is_display_only);
    let remark = |gpu: &Gpu| {
        format!(
            "GPU {} ({}) is not offered: `{}` is for displays",
            gpu.index, gpu.uuid, gpu.name
        )
    };
    remarks.extend(display.iter().map(remark));
    computing
}

/// A container that asks for a whole GPU by its CDI name finds none where it is in MIG mode.
fn undivided(gpus: Vec<Gpu>, remarks: &mut Vec<String>) -> Vec<Gpu> {
    let (divided, whole): (Vec<_>, Vec<_>) = gpus.into_iter().partition(Gpu::mig_enabled);
    let remark = |gpu: &Gpu| format!("not offered: GPU {} ({}) has MIG enabled", gpu.index, gpu.uuid);
    remarks.extend(divided.iter().map(remark));
    whole
}

/// The GPUs that the file describes; without any there is no file.
fn write_cdi_file(config: &NodeConfig, inventory: &Inventory, remarks: &mut Vec<String>) -> Result<Vec<Gpu>> {
    let mut discover = config.driver_files.clone();
    discover.driver_version = inventory.driver.as_ref().map(|driver| driver.version.to_string());
    let files = DriverFiles::discover(&discover)?;
    remarks.extend(files.problems.iter().map(ToString::to_string));

    let mut options = GenerateOptions::default();
    options.kind = names::CDI_KIND.parse::<Kind>().expect("a valid kind");
    options.names = vec![match config.ids {
        DeviceIdStrategy::Uuid => NameStrategy::Uuid,
        DeviceIdStrategy::Index => NameStrategy::Index,
    }];
    options.all_device = false;
    options.host_driver_root.clone_from(&config.host_driver_root);
    options.host_dev_root.clone_from(&config.host_dev_root);
    options.hook_path.clone_from(&config.hook_path);
    options.disabled_hooks.clone_from(&config.disabled_hooks);
    let (spec, skipped) = match generate(inventory, &files, &options) {
        Ok(generated) => (Some(generated.spec), generated.skipped),
        Err(gpu_cdi::Error::NothingToDescribe { skipped }) => (None, skipped),
        Err(error) => return Err(error.into()),
    };
    remarks.extend(skipped.iter().map(|skipped| format!("not offered: {skipped}")));
    if let Some(spec) = spec {
        let path = config.cdi_dir.join(names::CDI_FILE);
        spec.write(&path)?;
        tracing::info!(path = %path.display(), "wrote the CDI file");
    }
    let described = |gpu: &&Gpu| skipped.iter().all(|skipped| skipped.uuid != gpu.uuid);
    Ok(inventory.gpus.iter().filter(described).cloned().collect())
}

/// A node whose driver offers no events works, and its GPUs stay healthy whatever happens: that is said.
fn watch(
    library: Arc<Library>,
    gpus: &[Gpu],
    resource: &Arc<GpuResource>,
    policy: HealthPolicy,
    remarks: &mut Vec<String>,
) -> Option<HealthWatch> {
    let watch = HealthWatch::start(library, gpus, {
        let resource = Arc::clone(resource);
        move |watched| {
            hear(&watched, &resource, &policy);
            ControlFlow::Continue(())
        }
    });
    match watch {
        Ok(watch) => {
            for problem in watch.problems() {
                remarks.push(not_watched(problem, resource));
            }
            Some(watch)
        }
        Err(error) => {
            remarks.push(format!("no health events: {}", chain(&error)));
            None
        }
    }
}

fn hear(watched: &Watched, resource: &GpuResource, policy: &HealthPolicy) {
    match watched {
        Watched::Event(event) if resource.apply(event, policy) => {
            tracing::error!(gpu = %event.gpu, "{:?}: the GPU is unhealthy", event.kind);
        }
        Watched::Event(event) => tracing::info!(gpu = %event.gpu, "{:?}: the health of the GPU stays", event.kind),
        Watched::Lost(gpu) if resource.fail(gpu) => tracing::error!(%gpu, "the GPU is lost"),
        Watched::Interrupted(error) => tracing::warn!("{}", chain(error)),
        _ => {}
    }
}

/// A GPU without events is an old one and works; one that fails when asked for events does not.
fn not_watched(problem: &Problem, resource: &GpuResource) -> String {
    match (&problem.uuid, problem.kind) {
        (Some(uuid), kind) if kind != ProblemKind::Incomplete => {
            resource.fail(uuid);
            format!("unhealthy, since its events cannot be watched: {problem}")
        }
        _ => format!("no health events: {problem}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "GPU-00000000-0000-4000-8000-000000000000";

    fn gpu(name: &str) -> Gpu {
        serde_json::from_value(serde_json::json!({
            "index": 0, "minor": 0, "uuid": UUID, "name": name,
            "pci": { "address": "0000:01:00.0", "id": "10de:0000" },
        }))
        .unwrap()
    }

    #[test]
    fn a_gpu_for_displays_is_not_offered() {
        let mut remarks = Vec::new();
        let gpus = [
            "DGX Display",
            "NVIDIA DGX Display",
            "NVIDIA DGX Display 2",
            "NVIDIA H200",
        ]
        .map(gpu);
        let offered = for_computing(&gpus, &mut remarks);
        let names: Vec<_> = offered.iter().map(|gpu| gpu.name.as_str()).collect();
        assert_eq!(names, ["NVIDIA DGX Display 2", "NVIDIA H200"]);
        assert_eq!(
            remarks,
            ["DGX Display", "NVIDIA DGX Display"]
                .map(|name| format!("GPU 0 ({UUID}) is not offered: `{name}` is for displays"))
        );
    }

    #[test]
    fn a_gpu_that_is_lost_is_unhealthy_whatever_the_policy() {
        let gpus = [gpu("NVIDIA H200")];
        let name = names::GPU_RESOURCE.parse().unwrap();
        let resource = GpuResource::new(name, &gpus, &[], DeviceIdStrategy::Uuid);
        let (policy, _) = HealthPolicy::new("all", "");
        hear(&Watched::Lost(gpus[0].uuid.clone()), &resource, &policy);
        assert!(!resource.devices().borrow()[0].healthy);
    }

    #[test]
    fn a_gpu_that_fails_when_asked_for_events_is_unhealthy() {
        #[track_caller]
        fn check(kind: ProblemKind, healthy: bool) {
            let gpu = gpu("NVIDIA H200");
            let problem = Problem {
                index: 0,
                uuid: Some(gpu.uuid.clone()),
                pci: None,
                kind,
                call: "nvmlDeviceRegisterEvents".to_owned(),
                message: "made up".to_owned(),
            };
            let name = names::GPU_RESOURCE.parse().unwrap();
            let resource = GpuResource::new(name, &[], &[], DeviceIdStrategy::Uuid);
            let remark = not_watched(&problem, &resource);
            resource.offer(&[gpu]); // which comes after the watch has started
            assert_eq!(resource.devices().borrow()[0].healthy, healthy, "{remark}");
        }
        check(ProblemKind::Lost, false);
        check(ProblemKind::Unreadable, false);
        check(ProblemKind::NoPermission, false);
        check(ProblemKind::Incomplete, true); // not supported: an old GPU
    }
}
