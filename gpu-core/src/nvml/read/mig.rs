use nvml_wrapper::{Device, error::NvmlError};
use nvml_wrapper_sys::bindings::nvmlGpuInstanceProfileInfo_t;

use super::{
    super::raw::{self, mig as calls},
    gpu::Reader,
};
use crate::{
    ComputeInstance, Engines, GpuInstance, GpuInstanceProfile, Mig, MigAttributes, MigDevice, MigProfile, MigUuid,
    Placement, Problem, Result,
};

/// Far more MIG devices than a GPU has: a driver that counts more is out of its mind.
pub(in crate::nvml) const MOST_MIG_DEVICES: u32 = 256;

impl Reader<'_> {
    /// `total_bytes` is the GPU's memory, 0 where it has none of its own. While the mode is off the profiles are read if
    /// `idle_profiles` says so.
    pub(super) fn mig(
        &mut self,
        device: &Device<'_>,
        total_bytes: u64,
        idle_profiles: bool,
    ) -> Result<Option<Mig>, Problem> {
        const ENABLED: u32 = 1; // NVML_DEVICE_MIG_ENABLE
        let Some(mode) = self.offered("nvmlDeviceGetMigMode", || device.mig_mode())? else {
            return Ok(None);
        };
        let mut mig = Mig {
            enabled: mode.current == ENABLED,
            pending_enabled: mode.pending == ENABLED,
            ..Mig::default()
        };
        if mig.enabled || idle_profiles {
            mig.profiles = self.profiles(device, total_bytes)?;
        }
        if mig.enabled {
            mig.gpu_instances = self.gpu_instances(device, &mig.profiles)?;
            self.mig_devices(device, total_bytes, &mut mig)?;
        }
        Ok(Some(mig))
    }

    fn profiles(&mut self, device: &Device<'_>, total_bytes: u64) -> Result<Vec<GpuInstanceProfile>, Problem> {
        let mut profiles = Vec::new();
        for constant in calls::GPU_INSTANCE_PROFILES {
            let info = self.offered("nvmlDeviceGetGpuInstanceProfileInfo", || {
                calls::gpu_instance_profile(device, constant)
            })?;
            if let Some(info) = info {
                if info.sliceCount == 0 {
                    // It could not be named, and no instance of it made.
                    let call = "nvmlDeviceGetGpuInstanceProfileInfo";
                    self.incomplete(call, format!("profile {constant} has no slices"));
                    continue;
                }
                profiles.push(self.profile(device, constant, &info, total_bytes)?);
            }
        }
        Ok(profiles)
    }

    fn profile(
        &mut self,
        device: &Device<'_>,
        constant: u32,
        info: &nvmlGpuInstanceProfileInfo_t,
        total_bytes: u64,
    ) -> Result<GpuInstanceProfile, Problem> {
        let extras = self.offered("nvmlDeviceGetGpuInstanceProfileInfoV", || {
            calls::gpu_instance_profile_extras(device, constant)
        })?;
        let (driver_name, graphics) = extras.unwrap_or_default();
        let placements = self.offered("nvmlDeviceGetGpuInstancePossiblePlacements_v2", || {
            calls::gpu_instance_placements(device, info.id)
        })?;
        let mut placements: Vec<_> = placements
            .unwrap_or_default()
            .iter()
            .map(|placement| Placement {
                start: placement.start,
                size: placement.size,
            })
            .collect();
        placements.sort_unstable();
        Ok(GpuInstanceProfile {
            name: MigProfile::derive(
                constant,
                info.sliceCount,
                info.sliceCount,
                info.memorySizeMB,
                total_bytes,
            ),
            driver_name,
            id: info.id,
            constant,
            slices: info.sliceCount,
            max_instances: info.instanceCount,
            memory_mib: info.memorySizeMB,
            multiprocessors: info.multiprocessorCount,
            engines: Engines {
                copy_engines: info.copyEngineCount,
                decoders: info.decoderCount,
                encoders: info.encoderCount,
                jpeg_engines: info.jpegCount,
                ofa_engines: info.ofaCount,
            },
            p2p: info.isP2pSupported != 0,
            graphics,
            placements,
        })
    }

    fn gpu_instances(
        &mut self,
        device: &Device<'_>,
        profiles: &[GpuInstanceProfile],
    ) -> Result<Vec<GpuInstance>, Problem> {
        let mut instances = Vec::new();
        for profile in profiles {
            let found = self.offered("nvmlDeviceGetGpuInstances", || {
                calls::GpuInstance::list(device, profile.id, profile.max_instances)
            })?;
            for instance in found.unwrap_or_default() {
                // One that is gone by now is no longer found.
                let Some(info) = self.offered("nvmlGpuInstanceGetInfo", || instance.info())? else {
                    continue;
                };
                instances.push(GpuInstance {
                    id: info.id,
                    profile_id: info.profileId,
                    profile: Some(profile.name.clone()),
                    placement: Placement {
                        start: info.placement.start,
                        size: info.placement.size,
                    },
                    compute_instances: self.compute_instances(instance)?,
                });
            }
        }
        instances.sort_by_key(|instance| (instance.placement, instance.id));
        Ok(instances)
    }

    fn compute_instances(&mut self, parent: calls::GpuInstance<'_>) -> Result<Vec<ComputeInstance>, Problem> {
        let mut instances = Vec::new();
        let mut seen = Vec::new();
        for constant in calls::COMPUTE_INSTANCE_PROFILES {
            let profile = self.offered("nvmlGpuInstanceGetComputeInstanceProfileInfo", || {
                parent.compute_profile(constant)
            })?;
            // Two constants may stand for one profile.
            let Some(profile) = profile.filter(|profile| !seen.contains(&profile.id)) else {
                continue;
            };
            seen.push(profile.id);
            let found = self.offered("nvmlGpuInstanceGetComputeInstances", || {
                calls::ComputeInstance::list(parent, profile.id, profile.instanceCount)
            })?;
            for instance in found.unwrap_or_default() {
                if let Some(info) = self.offered("nvmlComputeInstanceGetInfo_v2", || instance.info())? {
                    instances.push(ComputeInstance {
                        id: info.id,
                        profile_id: info.profileId,
                        placement: Placement {
                            start: info.placement.start,
                            size: info.placement.size,
                        },
                    });
                }
            }
        }
        instances.sort_by_key(|instance| instance.id);
        Ok(instances)
    }

    fn mig_devices(&mut self, device: &Device<'_>, total_bytes: u64, mig: &mut Mig) -> Result<(), Problem> {
        let slots = self.offered("nvmlDeviceGetMaxMigDeviceCount", || device.mig_device_count())?;
        for index in 0..slots.unwrap_or_default().min(MOST_MIG_DEVICES) {
            let found = self.offered("nvmlDeviceGetMigDeviceHandleByIndex", || {
                device.mig_device_by_index(index)
            })?;
            let Some(found) = found else { continue };
            if let Some(found) = self.mig_device(&found, index, total_bytes, mig)? {
                mig.devices.push(found);
            }
        }
        Ok(())
    }

    /// `None` for one that went while it was being read, or that cannot be named.
    fn mig_device(
        &mut self,
        device: &Device<'_>,
        index: u32,
        total_bytes: u64,
        mig: &Mig,
    ) -> Result<Option<MigDevice>, Problem> {
        let Some(answer) = self.offered("nvmlDeviceGetUUID", || raw::text::uuid(device))? else {
            return Ok(None);
        };
        let uuid = match answer.parse::<MigUuid>() {
            Ok(uuid) => uuid,
            Err(error) => {
                self.incomplete("nvmlDeviceGetUUID", error.to_string());
                return Ok(None);
            }
        };
        let gpu_instance = self.offered("nvmlDeviceGetGpuInstanceId", || calls::gpu_instance_id(device))?;
        let compute_instance = self.offered("nvmlDeviceGetComputeInstanceId", || calls::compute_instance_id(device))?;
        let Some((gpu_instance, compute_instance)) = gpu_instance.zip(compute_instance) else {
            return Ok(None);
        };
        let attributes = self.offered("nvmlDeviceGetAttributes_v2", || attributes(device))?;
        Ok(Some(MigDevice {
            index,
            uuid,
            gpu_instance,
            compute_instance,
            profile: attributes.and_then(|attributes| profile_of(mig, gpu_instance, &attributes, total_bytes)),
            name: self.offered("nvmlDeviceGetName", || raw::text::name(device))?,
            attributes,
        }))
    }
}

/// The name of a MIG device's profile. Only its GPU instance knows what sets it apart from others of its size (`+me`).
fn profile_of(mig: &Mig, gpu_instance: u32, attributes: &MigAttributes, total_bytes: u64) -> Option<MigProfile> {
    let profile = mig.profile(mig.gpu_instance(gpu_instance)?.profile_id)?;
    if attributes.gpu_slices == 0 || attributes.compute_slices == 0 {
        return None;
    }
    Some(MigProfile::derive(
        profile.constant,
        attributes.gpu_slices,
        attributes.compute_slices,
        attributes.memory_mib,
        total_bytes,
    ))
}

fn attributes(device: &Device<'_>) -> Result<MigAttributes, NvmlError> {
    let attributes = raw::mig::attributes(device)?;
    Ok(MigAttributes {
        memory_mib: attributes.memorySizeMB,
        multiprocessors: attributes.multiprocessorCount,
        gpu_slices: attributes.gpuInstanceSliceCount,
        compute_slices: attributes.computeInstanceSliceCount,
        engines: Engines {
            copy_engines: attributes.sharedCopyEngineCount,
            decoders: attributes.sharedDecoderCount,
            encoders: attributes.sharedEncoderCount,
            jpeg_engines: attributes.sharedJpegCount,
            ofa_engines: attributes.sharedOfaCount,
        },
    })
}
