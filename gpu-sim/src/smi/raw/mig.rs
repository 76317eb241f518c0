//! The calls for MIG.

use std::{ffi::c_uint, ptr::null_mut};

use nvml_wrapper_sys::bindings::{
    NvmlLib, nvmlComputeInstance_t, nvmlComputeInstanceInfo_t, nvmlComputeInstanceProfileInfo_t, nvmlGpuInstance_t,
    nvmlGpuInstanceInfo_t, nvmlGpuInstancePlacement_t, nvmlGpuInstanceProfileInfo_t,
};

use super::{Gpu, call, check, zeroed};
use crate::smi::failure::Failure;

/// A GPU instance of a GPU.
#[derive(Clone, Copy)]
pub(in crate::smi) struct Instance<'nvml> {
    lib: &'nvml NvmlLib,
    handle: nvmlGpuInstance_t,
    pub(in crate::smi) info: nvmlGpuInstanceInfo_t,
}

/// A compute instance of a GPU instance.
#[derive(Clone, Copy)]
pub(in crate::smi) struct Compute<'nvml> {
    lib: &'nvml NvmlLib,
    handle: nvmlComputeInstance_t,
    pub(in crate::smi) info: nvmlComputeInstanceInfo_t,
}

impl<'nvml> Gpu<'nvml> {
    /// What the board offers, smallest first.
    pub(in crate::smi) fn profiles(self) -> Vec<nvmlGpuInstanceProfileInfo_t> {
        let mut found: Vec<nvmlGpuInstanceProfileInfo_t> = (0..32)
            .filter_map(|constant| {
                let mut info: nvmlGpuInstanceProfileInfo_t = zeroed();
                let out = &raw mut info;
                call!(
                    self.lib,
                    nvmlDeviceGetGpuInstanceProfileInfo(self.device, constant, out)
                )
                .ok()?;
                Some(info)
            })
            .collect();
        found.sort_by_key(|info| (info.sliceCount, info.memorySizeMB)); // stable: by constant among equals
        found
    }

    pub(in crate::smi) fn placements(self, profile: c_uint) -> Result<Vec<nvmlGpuInstancePlacement_t>, Failure> {
        let mut count = 0;
        let ask = |list, count| {
            call!(
                self.lib,
                nvmlDeviceGetGpuInstancePossiblePlacements_v2(self.device, profile, list, count)
            )
        };
        ask(null_mut(), &raw mut count)?;
        let mut list = vec![zeroed(); count as usize];
        ask(list.as_mut_ptr(), &raw mut count)?;
        list.truncate(count as usize);
        Ok(list)
    }

    pub(in crate::smi) fn remaining(self, profile: c_uint) -> Result<c_uint, Failure> {
        let mut count = 0;
        call!(
            self.lib,
            nvmlDeviceGetGpuInstanceRemainingCapacity(self.device, profile, &raw mut count)
        )?;
        Ok(count)
    }

    /// All GPU instances, by id.
    pub(in crate::smi) fn instances(self) -> Result<Vec<Instance<'nvml>>, Failure> {
        let mut found = Vec::new();
        for profile in self.profiles() {
            let mut list = vec![null_mut(); profile.instanceCount as usize];
            let mut count = 0;
            call!(
                self.lib,
                nvmlDeviceGetGpuInstances(self.device, profile.id, list.as_mut_ptr(), &raw mut count)
            )?;
            for handle in list.into_iter().take(count as usize) {
                found.push(self.instance(handle)?);
            }
        }
        found.sort_by_key(|instance| instance.info.id);
        Ok(found)
    }

    pub(in crate::smi) fn create(
        self,
        profile: c_uint,
        place: Option<nvmlGpuInstancePlacement_t>,
    ) -> Result<Instance<'nvml>, Failure> {
        let mut handle = null_mut();
        let out = &raw mut handle;
        match place {
            None => call!(self.lib, nvmlDeviceCreateGpuInstance(self.device, profile, out)),
            Some(place) => {
                let at = &raw const place;
                call!(
                    self.lib,
                    nvmlDeviceCreateGpuInstanceWithPlacement(self.device, profile, at, out)
                )
            }
        }?;
        self.instance(handle)
    }

    fn instance(self, handle: nvmlGpuInstance_t) -> Result<Instance<'nvml>, Failure> {
        let mut info = zeroed();
        call!(self.lib, nvmlGpuInstanceGetInfo(handle, &raw mut info))?;
        Ok(Instance {
            lib: self.lib,
            handle,
            info,
        })
    }
}

impl<'nvml> Instance<'nvml> {
    /// All compute instances, by id.
    pub(in crate::smi) fn compute(self) -> Result<Vec<Compute<'nvml>>, Failure> {
        let mut found = Vec::new();
        for profile in 0..16 {
            let mut list = [null_mut(); 8];
            let mut count = 0;
            let out = list.as_mut_ptr();
            let asked = call!(
                self.lib,
                nvmlGpuInstanceGetComputeInstances(self.handle, profile, out, &raw mut count)
            );
            if asked.is_err() {
                continue; // the instance does not offer it
            }
            for &handle in list.iter().take(count as usize) {
                found.push(self.compute_of(handle)?);
            }
        }
        found.sort_by_key(|compute| compute.info.id);
        Ok(found)
    }

    /// What compute instances it offers, smallest first, each with how many more fit.
    pub(in crate::smi) fn compute_profiles(self) -> Vec<(nvmlComputeInstanceProfileInfo_t, c_uint)> {
        let one = |profile| {
            let mut info: nvmlComputeInstanceProfileInfo_t = zeroed();
            call!(
                self.lib,
                nvmlGpuInstanceGetComputeInstanceProfileInfo(self.handle, profile, 0, &raw mut info)
            )
            .ok()?;
            let mut free = 0;
            call!(
                self.lib,
                nvmlGpuInstanceGetComputeInstanceRemainingCapacity(self.handle, info.id, &raw mut free)
            )
            .ok()?;
            Some((info, free))
        };
        let mut found: Vec<_> = (0..16).filter_map(one).collect();
        found.sort_by_key(|(info, _)| info.sliceCount);
        found
    }

    pub(in crate::smi) fn create_compute(self, profile: c_uint) -> Result<Compute<'nvml>, Failure> {
        let mut handle = null_mut();
        call!(
            self.lib,
            nvmlGpuInstanceCreateComputeInstance(self.handle, profile, &raw mut handle)
        )?;
        self.compute_of(handle)
    }

    pub(in crate::smi) fn destroy(self) -> Result<(), Failure> {
        call!(self.lib, nvmlGpuInstanceDestroy(self.handle))
    }

    fn compute_of(self, handle: nvmlComputeInstance_t) -> Result<Compute<'nvml>, Failure> {
        let mut info = zeroed();
        call!(self.lib, nvmlComputeInstanceGetInfo_v2(handle, &raw mut info))?;
        Ok(Compute {
            lib: self.lib,
            handle,
            info,
        })
    }
}

impl Compute<'_> {
    pub(in crate::smi) fn destroy(self) -> Result<(), Failure> {
        call!(self.lib, nvmlComputeInstanceDestroy(self.handle))
    }
}
