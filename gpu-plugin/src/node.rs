use std::{future::Future, ops::ControlFlow, path::PathBuf, pin::pin, sync::Arc, time::Duration};

use gpu_cdi::{DiscoverConfig, DriverFiles, GenerateOptions, Kind, NameStrategy, generate};
use gpu_core::{
    Gpu, Inventory,
    nvml::{HealthWatch, Library, LibrarySearch, Watched},
};
use tokio::{task, time};

use crate::{
    DeviceIdStrategy, DeviceListStrategy, Error, GpuResource, HealthPolicy, Resource, ResourceName, Result, Sockets,
    names, serve,
};

/// Between looks at a node that has no driver or no GPU yet.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

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
    /// Whether a node without a working driver is an error; if not, it is waited for. Default: an error.
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
        }
    }
}

/// The GPUs of this node, read once, watched, and ready to be served.
#[derive(Debug)]
pub struct Node {
    inventory: Inventory,
    resource: Arc<GpuResource>,
    /// `None` where the driver offers no events.
    _watch: Option<HealthWatch>,
}

impl Node {
    /// Reads the GPUs, writes the CDI file if one is needed, and starts to watch for health events.
    ///
    /// What cannot be read is logged and not offered; the rest is. This calls the driver and may take its time: run it off
    /// the async runtime.
    ///
    /// # Errors
    /// Where the node as a whole cannot be read, or its CDI file not be written.
    pub fn discover(config: &NodeConfig) -> Result<Self> {
        let library = Arc::new(Library::open(&config.library)?);
        let inventory = library.inventory(&config.host_root)?;
        for problem in &inventory.problems {
            tracing::warn!("{problem}");
        }
        let mut gpus = inventory.gpus.clone();
        if config.lists.contains(&DeviceListStrategy::CdiCri) && !gpus.is_empty() {
            gpus = write_cdi_file(config, &inventory)?;
        }
        let resource = Arc::new(GpuResource::new(
            config.resource.clone(),
            &gpus,
            &config.lists,
            config.ids,
        ));
        let watch = watch(library, &gpus, Arc::clone(&resource), config.health.clone());
        Ok(Self {
            inventory,
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
}

/// Offers the GPUs of this node to the kubelet until `stop` completes.
///
/// A node that has no GPU yet is looked at again every ten seconds, and so is one without a working driver unless
/// [`fail_on_init_error`](NodeConfig::fail_on_init_error) is set.
///
/// # Errors
/// As [`Node::discover`] and [`serve`].
pub async fn run(config: &NodeConfig, sockets: &Sockets, stop: impl Future<Output = ()>) -> Result<()> {
    let mut stop = pin!(stop);
    let node = tokio::select! {
        () = &mut stop => return Ok(()),
        node = discover_when_possible(config) => node?,
    };
    serve(Arc::clone(node.resource()), sockets, stop).await
}

async fn discover_when_possible(config: &NodeConfig) -> Result<Node> {
    let mut said = None;
    loop {
        let found = task::spawn_blocking({
            let config = config.clone();
            move || Node::discover(&config)
        });
        let reason = match found.await {
            Ok(Ok(node)) if !node.resource.devices().borrow().is_empty() => return Ok(node),
            Ok(Ok(_)) => "this node has no GPU to offer".to_owned(),
            Ok(Err(error)) if config.fail_on_init_error || !error.is_transient() => return Err(error),
            Ok(Err(error)) => error.with_causes(),
            Err(error) => error.to_string(),
        };
        if said.as_ref() != Some(&reason) {
            tracing::warn!("{reason}; looking again every {} s", LOOK_AGAIN.as_secs());
            said = Some(reason);
        }
        time::sleep(LOOK_AGAIN).await;
    }
}

/// The GPUs that the file describes.
fn write_cdi_file(config: &NodeConfig, inventory: &Inventory) -> Result<Vec<Gpu>> {
    let mut discover = config.driver_files.clone();
    discover.driver_version = inventory.driver.as_ref().map(|driver| driver.version.to_string());
    let files = DriverFiles::discover(&discover)?;
    for problem in &files.problems {
        tracing::warn!("{problem}");
    }
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
    let generated = generate(inventory, &files, &options)?;
    for skipped in &generated.skipped {
        tracing::warn!("not offered: {skipped}");
    }
    let path = config.cdi_dir.join(names::CDI_FILE);
    generated.spec.write(&path)?;
    tracing::info!(path = %path.display(), "wrote the CDI file");
    let described = |gpu: &&Gpu| generated.skipped.iter().all(|skipped| skipped.uuid != gpu.uuid);
    Ok(inventory.gpus.iter().filter(described).cloned().collect())
}

/// A node whose driver offers no events works, and its GPUs stay healthy whatever happens: that is said.
fn watch(library: Arc<Library>, gpus: &[Gpu], resource: Arc<GpuResource>, policy: HealthPolicy) -> Option<HealthWatch> {
    let watch = HealthWatch::start(library, gpus, move |watched| {
        match watched {
            Watched::Event(event) if resource.apply(&event, &policy) => {
                tracing::error!(gpu = %event.gpu, "{:?}: the GPU is unhealthy", event.kind);
            }
            Watched::Event(event) => tracing::info!(gpu = %event.gpu, "{:?}: the health of the GPU stays", event.kind),
            Watched::Lost(gpu) if resource.lose(&gpu) => tracing::error!(%gpu, "the GPU is lost"),
            Watched::Interrupted(error) => tracing::warn!("{}", Error::from(error).with_causes()),
            _ => {}
        }
        ControlFlow::Continue(())
    });
    match watch {
        Ok(watch) => {
            for problem in watch.problems() {
                tracing::warn!("no health events: {problem}");
            }
            Some(watch)
        }
        Err(error) => {
            tracing::warn!("no health events: {}", Error::from(error).with_causes());
            None
        }
    }
}
