//! A device as CUDA shows it: a whole GPU or a MIG device.

use crate::{
    attribute,
    code::{Answer, Code},
    nvml::{Handle, Nvml},
};

#[derive(Debug, Clone)]
pub(crate) struct Device {
    pub(crate) gpu: Handle,
    pub(crate) mig: Option<Handle>,
    pub(crate) gpu_uuid: String,
    pub(crate) uuid: String,
}

impl Device {
    /// What there is: GPUs in NVML's order, each that is partitioned as its MIG devices. One that is lost is not there.
    pub(crate) fn all(nvml: &Nvml) -> Answer<Vec<Self>> {
        let mut devices = Vec::new();
        for index in 0..nvml.count()? {
            if let Ok(gpu) = nvml.gpu(index) {
                // It may be lost between two calls.
                let _ = Self::of_gpu(nvml, gpu, &mut devices);
            }
        }
        Ok(devices)
    }

    fn of_gpu(nvml: &Nvml, gpu: Handle, devices: &mut Vec<Self>) -> Answer {
        let gpu_uuid = nvml.uuid(gpu)?;
        if nvml.mig_mode(gpu)? {
            for mig in nvml.mig_devices(gpu)? {
                devices.push(Self {
                    gpu,
                    mig: Some(mig),
                    gpu_uuid: gpu_uuid.clone(),
                    uuid: nvml.uuid(mig)?,
                });
            }
        } else {
            devices.push(Self {
                gpu,
                mig: None,
                uuid: gpu_uuid.clone(),
                gpu_uuid,
            });
        }
        Ok(())
    }

    pub(crate) fn handle(&self) -> Handle {
        self.mig.unwrap_or(self.gpu)
    }

    /// How many multiprocessors it has.
    pub(crate) fn multiprocessors(&self, nvml: &Nvml) -> Answer<u32> {
        if let Some(mig) = self.mig {
            return nvml.multiprocessors(mig);
        }
        let per_one = attribute::cores_per_multiprocessor(nvml.compute_capability(self.gpu)?);
        Ok(nvml.cores(self.gpu)? / per_one)
    }

    /// Whether a context may be made on it: the mode allows it, and so do others.
    pub(crate) fn check_compute_mode(&self, nvml: &Nvml, shared: bool) -> Answer {
        const PROHIBITED: u32 = 2;
        const EXCLUSIVE_PROCESS: u32 = 3;
        match nvml.compute_mode(self.gpu)? {
            PROHIBITED => Err(Code::DEVICE_UNAVAILABLE),
            EXCLUSIVE_PROCESS if !shared && nvml.is_used_by_others(self.gpu)? => Err(Code::DEVICE_UNAVAILABLE),
            _ => Ok(()),
        }
    }
}

/// The 16 bytes of a UUID such as `GPU-8932f937-d72c-4106-c12f-20bd9faed9f6`.
pub(crate) fn uuid_bytes(uuid: &str) -> Answer<[u8; 16]> {
    let hex: Vec<u8> = uuid
        .get(4..)
        .unwrap_or_default()
        .bytes()
        .filter(|byte| *byte != b'-')
        .collect();
    let mut bytes = [0; 16];
    if hex.len() != 32 {
        return Err(Code::UNKNOWN);
    }
    for (byte, pair) in bytes.iter_mut().zip(hex.chunks(2)) {
        let pair = std::str::from_utf8(pair).map_err(|_| Code::UNKNOWN)?;
        *byte = u8::from_str_radix(pair, 16).map_err(|_| Code::UNKNOWN)?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_16_bytes_or_unknown() {
        let bytes = uuid_bytes("MIG-00010203-0405-0607-0809-0a0b0c0d0e0f").unwrap();
        assert_eq!(bytes, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
        for other in ["", "GPU-", "GPU-1", "GPU-000102030405060708090a0b0c0d0e0g"] {
            assert_eq!(uuid_bytes(other), Err(Code::UNKNOWN), "{other}");
        }
    }
}
