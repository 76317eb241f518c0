use std::collections::BTreeMap;

use super::{
    Root, SharedGpu, SharedResource,
    names::{ACTIVE_THREAD_PERCENTAGE, PINNED_DEVICE_MEM_LIMIT, PIPE_DIRECTORY, SHARED_MEMORY},
};

/// What a container gets so that CUDA in it runs through the MPS daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// Environment variables.
    pub environment: BTreeMap<&'static str, String>,
    /// Folders, read and write.
    pub mounts: Vec<Mount>,
}

/// A folder of the host in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Where the container sees it.
    pub container_path: String,
    /// Where it is on the host.
    pub host_path: String,
}

impl SharedResource {
    /// What a container gets that was given these GPUs; `host_root` is the MPS root on the host.
    ///
    /// The limits are in the environment too, for the container to see, and because the daemon knows one share of threads for
    /// all its GPUs; CUDA takes the smaller of both. Where a container has GPUs of different limits, its environment names the
    /// smallest share of threads and no memory, since how CUDA numbers its GPUs there is not known.
    ///
    /// `None` where one of them is not shared here. No GPUs are answered as well: that is what a container gets of any.
    pub fn client<'a>(&self, uuids: impl IntoIterator<Item = &'a str>, host_root: &str) -> Option<Client> {
        let gpus: Vec<_> = uuids.into_iter().map(|uuid| self.gpu(uuid)).collect::<Option<_>>()?;
        let (here, host) = (Root::default(), Root::new(host_root));
        let text = |path: std::path::PathBuf| path.to_string_lossy().into_owned();
        let pipe = text(here.pipe(&self.resource));
        let mut environment = BTreeMap::from([(PIPE_DIRECTORY, pipe.clone())]);
        if let Some(percentage) = least_share(&gpus) {
            environment.insert(ACTIVE_THREAD_PERCENTAGE, percentage.to_string());
        }
        if let Some(limits) = memory_limits(gpus) {
            environment.insert(PINNED_DEVICE_MEM_LIMIT, limits);
        }
        Some(Client {
            environment,
            mounts: vec![
                Mount {
                    container_path: pipe,
                    host_path: text(host.pipe(&self.resource)),
                },
                Mount {
                    container_path: SHARED_MEMORY.to_owned(),
                    host_path: text(host.shared_memory()),
                },
            ],
        })
    }
}

fn least_share(gpus: &[&SharedGpu]) -> Option<u32> {
    let shares: Option<Vec<_>> = gpus.iter().map(|gpu| gpu.thread_percentage).collect();
    shares?.into_iter().min()
}

/// The limits by the numbers that CUDA in the container gives its GPUs, from 0; replicas of one GPU are one.
fn memory_limits(mut gpus: Vec<&SharedGpu>) -> Option<String> {
    gpus.sort_by_key(|gpu| gpu.index);
    gpus.dedup_by_key(|gpu| gpu.index);
    let limit = gpus.first()?.memory_limit_mib?;
    if gpus.iter().any(|gpu| gpu.memory_limit_mib != Some(limit)) {
        return None;
    }
    let limits: Vec<_> = (0..gpus.len()).map(|number| format!("{number}={limit}M")).collect();
    Some(limits.join(","))
}
