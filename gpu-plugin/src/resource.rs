use gpu_kubelet::{
    device_plugin::{self, ContainerAllocateResponse, NumaNode, TopologyInfo},
    names,
};
use gpu_sharing::config::ResourceName;
use tokio::sync::watch;

/// What a device plugin offers: a name, a list of devices that may change, and what a container gets of them.
///
/// [`serve`](crate::serve) does the rest. The crate's README has a whole plugin.
pub trait Resource: Send + Sync + 'static {
    /// The name that pods ask for.
    fn name(&self) -> &ResourceName;

    /// The devices now, and whenever they change. The kubelet is sent the whole list each time.
    fn devices(&self) -> watch::Receiver<Vec<Device>>;

    /// What a container gets that was given these devices.
    ///
    /// Called for each start of a container that has none yet, and the kubelet waits without a deadline: answer from
    /// memory.
    ///
    /// # Errors
    /// A text for the pod's events; the pod fails for good.
    fn allocate(&self, ids: &[String]) -> Result<ContainerAllocateResponse, String>;

    /// Which of `available` to take, if `size` devices are needed and `must_include` are among them.
    ///
    /// The kubelet takes it as advice. The default takes what must be included and then the first available ones in the
    /// order of the list of devices, or none at all if there are fewer than `size`.
    fn preferred(&self, available: &[String], must_include: &[String], size: usize) -> Vec<String> {
        if size > available.len() {
            return Vec::new();
        }
        let devices = self.devices();
        let devices = devices.borrow();
        let place = |id: &String| devices.iter().position(|device| device.id == *id).unwrap_or(usize::MAX);
        let mut rest: Vec<_> = available.iter().filter(|id| !must_include.contains(id)).collect();
        rest.sort_by_key(|id| (place(id), id.as_str()));
        must_include.iter().chain(rest).take(size).cloned().collect()
    }
}

/// One unit of a [`Resource`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// What the kubelet calls it; 63 characters at most.
    pub id: String,
    /// Whether it may be handed out.
    pub healthy: bool,
    /// The NUMA node that it belongs to, for the kubelet's topology manager.
    pub numa_node: Option<u32>,
}

impl From<&Device> for device_plugin::Device {
    fn from(device: &Device) -> Self {
        let health = if device.healthy {
            names::HEALTHY
        } else {
            names::UNHEALTHY
        };
        let node = |node| TopologyInfo {
            nodes: vec![NumaNode { id: i64::from(node) }],
        };
        Self {
            id: device.id.clone(),
            health: health.to_owned(),
            topology: device.numa_node.map(node),
        }
    }
}
