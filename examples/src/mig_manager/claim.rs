//! The GPUs that change are this program's while they do.

use anyhow::Context as _;
use gpu_core::{
    GpuUuid,
    ownership::{Owner, OwnerFile},
};

use super::{MigManager, blocking};

/// GPUs that were asked for.
#[derive(Debug)]
pub(super) struct Claim {
    owners: OwnerFile,
    gpus: Vec<GpuUuid>,
}

impl Claim {
    /// Claims GPUs but for those that the device plugin offers: these stay its own while instances are only added to them.
    ///
    /// # Errors
    /// If another owns one of them.
    pub(super) async fn take(manager: &MigManager, gpus: Vec<GpuUuid>) -> anyhow::Result<Self> {
        let owners = owners(manager);
        blocking(move || {
            let theirs = owners.read().context("cannot tell who owns the GPUs")?.owners;
            let offered = |gpu: &GpuUuid| theirs.get(gpu).is_some_and(|claim| claim.owner == Owner::DevicePlugin);
            let others: Vec<_> = gpus.iter().filter(|gpu| !offered(gpu)).cloned().collect();
            owners
                .claim(Owner::MigManager, &others)
                .context("cannot claim the GPUs")?;
            Ok(Self { owners, gpus })
        })
        .await
    }

    /// Claims the device plugin's as well: it is gone, since it was made to wait.
    pub(super) async fn take_over(self) -> anyhow::Result<()> {
        blocking(move || {
            self.owners.release(Owner::DevicePlugin, &self.gpus)?;
            self.owners
                .claim(Owner::MigManager, &self.gpus)
                .context("cannot claim the GPUs")
        })
        .await
    }
}

/// Gives up all GPUs.
pub(super) async fn release(manager: &MigManager) {
    let owners = owners(manager);
    let released = blocking(move || Ok(owners.release_all(Owner::MigManager)?)).await;
    if let Err(error) = released {
        tracing::warn!("cannot give up the GPUs: {error:#}");
    }
}

fn owners(manager: &MigManager) -> OwnerFile {
    // `/var/run` is a link into the host's root, which leads elsewhere from here.
    let run = manager.host_root_mount.join("run");
    OwnerFile::new(run.join("nvidia-gpu-owners.json")).kubelet(manager.on_host("/var/lib/kubelet".as_ref()))
}
