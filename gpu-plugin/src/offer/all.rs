//! GPUs that NVML does not tell apart: they are one device.

use gpu_cdi::Platform;
use gpu_core::Inventory;
use gpu_sharing::config::{Config, Sharing};

use super::{GpuChoice, Named, OfferError, OfferedDevice};
use crate::names::{TEGRA_DEVICE, WSL_DEVICE, WSL_NODE};

/// That device by the resource that it belongs to, as the vendor's plugin names it (k8s-device-plugin v0.20.0,
/// `internal/rm/tegra_devices.go`, `wsl_devices.go`); nothing where Windows has no GPU.
pub(super) fn named(
    platform: Platform,
    inventory: &Inventory,
    config: &Config,
    choice: &GpuChoice,
) -> Result<Named, OfferError> {
    if *choice != GpuChoice::default() {
        return Err(OfferError::NoChoice { platform });
    }
    let (model, device) = match platform {
        Platform::Wsl if inventory.gpus.is_empty() && inventory.problems.is_empty() => return Ok(Named::new()),
        Platform::Wsl => {
            let model = inventory.gpus.first().map_or("", |gpu| &gpu.name);
            (model, OfferedDevice::all(WSL_DEVICE, WSL_DEVICE, Some(WSL_NODE)))
        }
        _ => (TEGRA_DEVICE, OfferedDevice::all(TEGRA_DEVICE, "0", None)),
    };
    let name = config.gpu_resource(model);
    match &config.sharing {
        Sharing::Mps(shared) if shared.resources.iter().any(|entry| entry.name == name) => {
            Err(OfferError::NoMps { platform })
        }
        _ => Ok(Named::from([(name, vec![device])])),
    }
}
