use std::path::Path;

use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings::nvmlProcessUtilizationSample_t;

use super::{
    super::{Library, guard::Progress, raw::process},
    gpu::Reader,
};
use crate::{Container, GpuProcess, GpuUsage, Problem, ProcessKind, Result, Usage, file::read_bytes};

/// The most that is read of a file of `/proc`: the groups of a process are one line for each hierarchy, each a path at most.
const LONGEST: u64 = 1 << 16;

impl Library {
    /// Asks who uses the GPUs of the node.
    ///
    /// `host_root` is where the host's `/proc` lies, `/` outside a container. The driver gives the host's process numbers: in
    /// a container with a `/proc` of its own, names and containers are absent or those of others.
    ///
    /// # Errors
    /// Only where the node as a whole does not answer.
    pub fn usage(&self, host_root: &Path) -> Result<Usage> {
        let mut usage = Usage::default();
        for index in 0..self.count()? {
            let work = move |nvml: &Nvml, progress: &Progress| {
                let mut reader = Reader::new(index, progress);
                let answer = reader.usage(nvml);
                (answer, reader.problems)
            };
            match self.guarded_gpu(index, work) {
                Ok((answer, problems)) => {
                    usage.problems.extend(problems);
                    match answer {
                        Ok(gpu) => usage.gpus.push(gpu),
                        Err(problem) => usage.problems.push(problem),
                    }
                }
                Err(problem) => usage.problems.push(*problem),
            }
        }
        let processes = usage.gpus.iter_mut().flat_map(|gpu| &mut gpu.processes);
        processes.for_each(|process| describe(process, host_root));
        Ok(usage)
    }
}

impl Library {
    /// What processes have had of one GPU, by NVML's index, since a time in microseconds since 1970: as many samples as the driver
    /// has kept, by time. Empty where nobody used the GPU, and where it offers no such samples (as in MIG mode).
    ///
    /// # Errors
    /// Where the GPU is lost, hangs or cannot be asked at all.
    pub fn process_utilization(&self, index: u32, since_us: u64) -> Result<Vec<ProcessUtilization>, Box<Problem>> {
        self.guarded_gpu(index, move |nvml: &Nvml, progress: &Progress| {
            let mut reader = Reader::new(index, progress);
            let device = reader.needed("nvmlDeviceGetHandleByIndex_v2", || nvml.device_by_index(index))?;
            let samples = reader.offered("nvmlDeviceGetProcessUtilization", || {
                process::utilization(&device, since_us)
            })?;
            let mut samples: Vec<_> = samples.unwrap_or_default().iter().map(ProcessUtilization::of).collect();
            samples.sort_by_key(|sample| (sample.timestamp_us, sample.pid));
            Ok(samples)
        })?
        .map_err(Box::new)
    }
}

/// What a process has had of a GPU in one of the driver's samples (`nvmlDeviceGetProcessUtilization`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessUtilization {
    /// Its number as the driver gives it, which is the host's.
    pub pid: u32,
    /// When, in microseconds since 1970.
    pub timestamp_us: u64,
    /// Of the multiprocessors' time.
    pub multiprocessor_percent: u32,
    /// Of the memory's time.
    pub memory_percent: u32,
    /// Of the encoders' time.
    pub encoder_percent: u32,
    /// Of the decoders' time.
    pub decoder_percent: u32,
}

impl ProcessUtilization {
    fn of(sample: &nvmlProcessUtilizationSample_t) -> Self {
        Self {
            pid: sample.pid,
            timestamp_us: sample.timeStamp,
            multiprocessor_percent: sample.smUtil,
            memory_percent: sample.memUtil,
            encoder_percent: sample.encUtil,
            decoder_percent: sample.decUtil,
        }
    }
}

impl Reader<'_> {
    fn usage(&mut self, nvml: &Nvml) -> Result<GpuUsage, Problem> {
        let device = self.needed("nvmlDeviceGetHandleByIndex_v2", || nvml.device_by_index(self.index()))?;
        let gpu = self.uuid(&device)?;
        let mut processes = Vec::new();
        for kind in [ProcessKind::Compute, ProcessKind::Graphics, ProcessKind::Mps] {
            processes.extend(self.processes(&device, kind)?);
        }
        processes.sort_by_key(|process| {
            (
                process.pid,
                process.gpu_instance,
                process.compute_instance,
                process.kind,
            )
        });
        Ok(GpuUsage { gpu, processes })
    }

    fn processes(&mut self, device: &Device<'_>, kind: ProcessKind) -> Result<Vec<GpuProcess>, Problem> {
        let call = match kind {
            ProcessKind::Compute => "nvmlDeviceGetComputeRunningProcesses_v3",
            ProcessKind::Graphics => "nvmlDeviceGetGraphicsRunningProcesses_v3",
            ProcessKind::Mps => "nvmlDeviceGetMPSComputeRunningProcesses_v3",
        };
        let found = self.offered(call, || process::processes(device, kind))?;
        let found = found.unwrap_or_default().into_iter();
        Ok(found
            .map(|process| GpuProcess {
                pid: process.pid,
                kind,
                memory_bytes: process.memory_bytes,
                gpu_instance: process.gpu_instance,
                compute_instance: process.compute_instance,
                command: None,
                container: None,
            })
            .collect())
    }
}

/// Adds what `/proc` says. A process that is gone by now, or out of sight, is left as it is.
fn describe(process: &mut GpuProcess, host_root: &Path) {
    let folder = host_root.join(format!("proc/{}", process.pid));
    let read = |file: &str| {
        let text = read_bytes(&folder.join(file), LONGEST).ok()?;
        Some(String::from_utf8_lossy(&text).into_owned())
    };
    process.command = read("comm").map(|name| name.trim_end().to_owned());
    process.container = read("cgroup").and_then(|text| Container::from_cgroup(&text));
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_process_is_described_by_the_hosts_proc() {
        let host = tempfile::tempdir().unwrap();
        let folder = host.path().join("proc/42");
        fs::create_dir_all(&folder).unwrap();
        let id = "5c".repeat(32);
        fs::write(folder.join("comm"), "train\n").unwrap();
        fs::write(folder.join("cgroup"), format!("0::/system.slice/docker-{id}.scope\n")).unwrap();
        let mut process = GpuProcess {
            pid: 42,
            kind: ProcessKind::Compute,
            memory_bytes: None,
            gpu_instance: None,
            compute_instance: None,
            command: None,
            container: None,
        };
        let unseen = process.clone();
        describe(&mut process, host.path());
        assert_eq!(process.command.as_deref(), Some("train"));
        assert_eq!(process.container.map(|container| container.id), Some(id));
        let mut gone = GpuProcess {
            pid: 43,
            ..unseen.clone()
        };
        describe(&mut gone, host.path());
        assert_eq!(gone, GpuProcess { pid: 43, ..unseen });
    }
}
