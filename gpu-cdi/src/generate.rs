//! From an inventory and a driver root to a spec; no I/O.

mod coherence;
mod common;
mod companions;
mod gpus;
mod hooks;
mod imex;
mod links;
mod management;
mod options;
mod simplify;
mod skipped;
mod tegra;
mod vfio;
mod wsl;

use gpu_core::Inventory;

pub use self::{
    coherence::split_by_coherence,
    companions::{Companion, generate_companion},
    hooks::{HookName, ParseHookNameError},
    imex::{ImexChannel, ParseImexChannelError, generate_imex},
    management::generate_management,
    options::{DeviceId, GenerateOptions, NameStrategy, ParseNameStrategyError},
    skipped::{SkipReason, SkippedDevice, SkippedMig},
    tegra::{ORIN_COMPAT_DIR, generate_tegra},
    vfio::{GeneratedVfio, VfioProblem, generate_vfio},
    wsl::generate_wsl,
};
use self::{hooks::Hooks, options::Roots};
use crate::{ContainerEdits, Device, DriverFiles, Error, Result, Spec, names};

/// A spec, and what is missing from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generated {
    /// The spec: valid, with the oldest version that will do.
    pub spec: Spec,
    /// GPUs and MIG devices of the inventory that the spec does not offer, in the inventory's order.
    pub skipped: Vec<SkippedDevice>,
}

/// Describes the GPUs of a node: one device per GPU or MIG device and naming strategy, `all`, and what they have in common.
///
/// A GPU in MIG mode cannot be used whole: its MIG devices are described, and it is not.
///
/// The same input gives the same spec. Devices are in the order of their names, device nodes and mounts in that of their
/// depth and then their paths: a folder is mounted before what goes into it.
///
/// A GPU or MIG device that cannot be offered is in [`skipped`](Generated::skipped) and does not cost the others their
/// entries. A device without one of its nodes is not offered: half a MIG device would be a container that sees none.
///
/// # Errors
/// - [`Error::NoDriverLibraries`]: a spec without the driver would give containers a GPU that nothing can use.
/// - [`Error::NothingToDescribe`]: no device is left.
/// - [`Error::UnknownDevice`]: a device was selected that the node does not have.
/// - [`Error::RelativeRoot`]: the path of a root or of `ldconfig` is not absolute.
/// - [`Error::Invalid`]: an option makes the spec one that no reader takes, e.g. an empty hook path.
pub fn generate(inventory: &Inventory, files: &DriverFiles, options: &GenerateOptions) -> Result<Generated> {
    let version = driver_version(files, || {
        inventory.driver.as_ref().map(|driver| driver.version.to_string())
    })?;
    let roots = Roots::new(&files.driver_root, &files.dev_root, options)?;
    let hooks = Hooks::new(options)?;

    let (devices, skipped) = gpus::devices(inventory, files, options, &roots, &hooks)?;
    if devices.is_empty() {
        return Err(Error::NothingToDescribe { skipped });
    }
    let common = common::edits(files, version, options, &roots, &hooks);
    let spec = finish(options, devices, common)?;
    Ok(Generated { spec, skipped })
}

/// Describes one device, `none`, for containers that get the driver and no GPU.
///
/// # Errors
/// [`Error::NoDriverLibraries`] and [`Error::Invalid`] as for [`generate`].
pub fn generate_none(files: &DriverFiles, options: &GenerateOptions) -> Result<Spec> {
    let version = driver_version(files, || None)?;
    let roots = Roots::new(&files.driver_root, &files.dev_root, options)?;
    let common = common::edits(files, version, options, &roots, &Hooks::new(options)?);
    let edits = ContainerEdits {
        // A device must have edits.
        env: vec![format!("{}=", names::EMPTY_DEVICE)],
        ..ContainerEdits::default()
    };
    let alone = GenerateOptions {
        all_device: false,
        ..options.clone()
    };
    finish(&alone, vec![Device::new(options::none_name(), edits)], common)
}

fn driver_version(files: &DriverFiles, looked_for: impl FnOnce() -> Option<String>) -> Result<&str> {
    files.driver_version.as_deref().ok_or_else(|| Error::NoDriverLibraries {
        root: files.driver_root.clone(),
        version: looked_for(),
    })
}

/// Puts a spec together: simplified, with a device `all` if it is asked for, and of the oldest version that will do.
fn finish(options: &GenerateOptions, devices: Vec<Device>, container_edits: ContainerEdits) -> Result<Spec> {
    let mut spec = Spec::new(options.kind.clone(), devices);
    spec.container_edits = container_edits;
    simplify::simplify(&mut spec);
    if options.all_device {
        add_all(&mut spec);
        simplify::simplify(&mut spec);
    }
    spec.cdi_version = spec.required_version();
    spec.validate()?;
    Ok(spec)
}

/// Adds a device with the edits of all others, unless one of that name is there.
fn add_all(spec: &mut Spec) {
    let name = options::all_name();
    if spec.devices.iter().any(|device| device.name == name) {
        return;
    }
    let mut container_edits = ContainerEdits::default();
    for device in &spec.devices {
        gpus::append(&mut container_edits, device.container_edits.clone());
    }
    spec.devices.push(Device::new(name, container_edits));
}
