//! Making and removing instances.

use std::fmt::Write as _;

use nvml_wrapper::Device;
use nvml_wrapper_sys::bindings::nvmlGpuInstancePlacement_t;

use super::{Failure, enabled, name, raw};
use crate::mig::compute_profile;

#[derive(Debug, PartialEq, Eq)]
pub(in crate::smi) enum Change {
    /// Profiles by id or name, each with a start if given; and whether each gets a compute instance.
    Create(Vec<(String, Option<u32>)>, bool),
    /// Sizes by profile id, in these GPU instances; none of either means the whole of each.
    CreateCompute(Vec<u32>, Vec<u32>),
    /// GPU instances; none means all.
    Destroy(Vec<u32>),
    /// GPU instances and compute instances; none means all.
    DestroyCompute(Vec<u32>, Vec<u32>),
}

impl Change {
    /// From a list such as `19,1g.10gb:4`.
    pub(super) fn create(list: &str) -> Self {
        let one = |profile: &str| match profile.rsplit_once(':') {
            Some((profile, start)) if start.parse::<u32>().is_ok() => (profile.trim().to_owned(), start.parse().ok()),
            _ => (profile.trim().to_owned(), None),
        };
        Self::Create(list.split(',').map(one).collect(), false)
    }

    pub(super) fn create_compute(list: Option<&str>) -> Self {
        let list = list.unwrap_or_default();
        let sizes = list.split(',').filter_map(|profile| profile.trim().parse().ok());
        Self::CreateCompute(sizes.collect(), Vec::new())
    }

    pub(super) fn narrow(self, instances: Vec<u32>, compute: Vec<u32>, with_compute: bool) -> Self {
        match self {
            Self::Create(profiles, _) => Self::Create(profiles, with_compute),
            Self::CreateCompute(sizes, _) => Self::CreateCompute(sizes, instances),
            Self::Destroy(_) => Self::Destroy(instances),
            Self::DestroyCompute(..) => Self::DestroyCompute(instances, compute),
        }
    }

    /// Says what was done. What was done until something fails stays done.
    pub(super) fn answer(self, gpus: &[Device<'_>]) -> Result<String, Failure> {
        let mut text = String::new();
        for (index, gpu) in enabled(gpus)? {
            match &self {
                Self::Create(profiles, with_compute) => create(index, gpu, profiles, *with_compute, &mut text)?,
                Self::CreateCompute(sizes, wanted) => create_compute(index, gpu, sizes, wanted, &mut text)?,
                Self::Destroy(wanted) => destroy(index, gpu, wanted, &mut text)?,
                Self::DestroyCompute(wanted, ids) => destroy_compute(index, gpu, wanted, ids, &mut text)?,
            }
        }
        if text.is_empty() {
            return Err(Failure::not_found("No instances found: Not Found"));
        }
        Ok(text)
    }
}

/// What was done before stays on stdout, so it goes into the message's way: first that, then why it went no further.
fn failed(done: &str, what: &str, which: &str, failure: &Failure) -> Failure {
    Failure {
        message: format!("{done}{what}: {0}\n{which}: {0}", failure.message),
        exit_code: failure.exit_code,
    }
}

fn create(
    index: u32,
    gpu: &Device<'_>,
    wanted: &[(String, Option<u32>)],
    with_compute: bool,
    text: &mut String,
) -> Result<(), Failure> {
    let raw = raw::Gpu::of(gpu);
    let profiles = raw.profiles();
    for (which, start) in wanted {
        let full =
            |profile: &nvml_wrapper_sys::bindings::nvmlGpuInstanceProfileInfo_t| name(gpu, profile, profile.sliceCount);
        let is_it = |profile: &&nvml_wrapper_sys::bindings::nvmlGpuInstanceProfileInfo_t| {
            let name = full(profile);
            which.parse() == Ok(profile.id) || which == &name || Some(which.as_str()) == name.strip_prefix("MIG ")
        };
        let Some(profile) = profiles.iter().find(is_it) else {
            let what = format!("Unable to create a GPU instance on GPU {index:>2} using profile {which}");
            return Err(failed(
                text,
                &what,
                "Failed to create GPU instances",
                &Failure::of_code(2),
            ));
        };
        let place = match start {
            None => None,
            Some(start) => Some(nvmlGpuInstancePlacement_t {
                start: *start,
                size: raw.placements(profile.id)?.first().map_or(0, |place| place.size),
            }),
        };
        let what = format!(
            "Unable to create a GPU instance on GPU {index:>2} using profile {}",
            profile.id
        );
        let made = raw
            .create(profile.id, place)
            .map_err(|failure| failed(text, &what, "Failed to create GPU instances", &failure))?;
        let _ = writeln!(
            text,
            "Successfully created GPU instance ID {:>2} on GPU {index:>2} using profile {} (ID {:>2})",
            made.info.id,
            full(profile),
            profile.id
        );
        if with_compute {
            let size = compute_profile(profile.sliceCount).unwrap_or(0);
            add_compute(index, gpu, made, size, profile, text)?;
        }
    }
    Ok(())
}

fn add_compute(
    index: u32,
    gpu: &Device<'_>,
    instance: raw::Instance<'_>,
    size: u32,
    profile: &nvml_wrapper_sys::bindings::nvmlGpuInstanceProfileInfo_t,
    text: &mut String,
) -> Result<(), Failure> {
    let id = instance.info.id;
    let what =
        format!("Unable to create a compute instance on GPU {index:>2} GPU instance ID {id:>2} using profile {size}");
    let made = instance
        .create_compute(size)
        .map_err(|failure| failed(text, &what, "Failed to create compute instances", &failure))?;
    let _ = writeln!(
        text,
        "Successfully created compute instance ID {:>2} on GPU {index:>2} GPU instance ID {id:>2} using profile {} (ID {size:>2})",
        made.info.id,
        name(gpu, profile, made.info.placement.size),
    );
    Ok(())
}

/// The instances meant: those named, or all.
fn meant<'nvml>(gpu: raw::Gpu<'nvml>, wanted: &[u32]) -> Result<Vec<raw::Instance<'nvml>>, Failure> {
    let mut found = gpu.instances()?;
    found.retain(|instance| wanted.is_empty() || wanted.contains(&instance.info.id));
    Ok(found)
}

fn create_compute(
    index: u32,
    gpu: &Device<'_>,
    sizes: &[u32],
    wanted: &[u32],
    text: &mut String,
) -> Result<(), Failure> {
    let raw = raw::Gpu::of(gpu);
    let profiles = raw.profiles();
    for instance in meant(raw, wanted)? {
        let Some(profile) = profiles.iter().find(|profile| profile.id == instance.info.profileId) else {
            continue;
        };
        let whole = [compute_profile(profile.sliceCount).unwrap_or(0)];
        for &size in if sizes.is_empty() { &whole[..] } else { sizes } {
            add_compute(index, gpu, instance, size, profile, text)?;
        }
    }
    Ok(())
}

fn destroy(index: u32, gpu: &Device<'_>, wanted: &[u32], text: &mut String) -> Result<(), Failure> {
    for instance in meant(raw::Gpu::of(gpu), wanted)? {
        let id = instance.info.id;
        let what = format!("Unable to destroy GPU instance ID {id:>2} from GPU {index:>2}");
        instance
            .destroy()
            .map_err(|failure| failed(text, &what, "Failed to destroy GPU instances", &failure))?;
        let _ = writeln!(
            text,
            "Successfully destroyed GPU instance ID {id:>2} from GPU {index:>2}"
        );
    }
    Ok(())
}

fn destroy_compute(
    index: u32,
    gpu: &Device<'_>,
    wanted: &[u32],
    ids: &[u32],
    text: &mut String,
) -> Result<(), Failure> {
    for instance in meant(raw::Gpu::of(gpu), wanted)? {
        let within = instance.info.id;
        for compute in instance.compute()? {
            let id = compute.info.id;
            if !ids.is_empty() && !ids.contains(&id) {
                continue;
            }
            let place = format!("compute instance ID {id:>2} from GPU {index:>2} GPU instance ID {within:>2}");
            compute.destroy().map_err(|failure| {
                let what = format!("Unable to destroy {place}");
                failed(text, &what, "Failed to destroy compute instances", &failure)
            })?;
            let _ = writeln!(text, "Successfully destroyed {place}");
        }
    }
    Ok(())
}
