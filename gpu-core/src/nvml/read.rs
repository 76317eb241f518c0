//! From NVML's answers to an [`Inventory`].

use std::{path::Path, sync::Arc};

use nvml_wrapper::Nvml;

use super::{
    Library, Parts,
    guard::{Failure, Progress, Subject},
    raw,
};
use crate::{CudaVersion, Driver, Error, Gpu, GpuPair, Inventory, Problem, ProblemKind, Result};

mod gpu;
mod link;
mod mig;
mod usage;

pub(super) use self::gpu::Reader;
pub(super) use self::mig::MOST_MIG_DEVICES;
pub use self::usage::ProcessUtilization;

impl Library {
    /// Reads all GPUs of the node, and of each what [`with_parts`](Self::with_parts) says.
    ///
    /// `host_root` is where the host's `/sys` lies, `/` outside a container.
    ///
    /// # Errors
    /// Only where the node as a whole does not answer. A GPU that is lost, does not return from a call, or cannot be read is
    /// in [`Inventory::problems`].
    pub fn inventory(&self, host_root: &Path) -> Result<Inventory> {
        let (driver, count) = self.guarded(None, node)??;
        let mut gpus = Vec::new();
        let mut topology = Vec::new();
        let mut problems = Vec::new();
        // The GPUs that answered, for those after them to be related to.
        let mut others = Vec::new();
        for index in 0..count {
            let work = {
                let host_root = host_root.to_owned();
                let others = others.clone();
                let parts = self.parts;
                move |nvml: &Nvml, progress: &Progress| read(nvml, progress, &host_root, parts, index, &others)
            };
            let part = self.guarded_gpu(index, work).unwrap_or_else(Part::of);
            problems.extend(part.problems);
            topology.extend(part.pairs);
            if let Some((gpu, handle)) = part.gpu {
                gpus.push(gpu);
                if self.parts.topology {
                    others.push((index, handle));
                }
            }
        }
        topology.sort_by_key(|pair| pair.gpus);
        Ok(Inventory {
            schema_version: Inventory::SCHEMA_VERSION,
            generation: self.next_generation(),
            driver: Some(driver),
            gpus,
            topology,
            problems,
        })
    }

    /// How many GPUs there are, lost ones included.
    pub(super) fn count(&self) -> Result<u32> {
        self.guarded(None, count)?
    }

    /// Does work about the whole node where it cannot hang this thread.
    pub(super) fn guarded<T: Send + 'static>(
        &self,
        subject: Subject,
        work: impl FnOnce(&Nvml, &Progress) -> T + Send + 'static,
    ) -> Result<T> {
        self.run(subject, work).map_err(Failure::into_error)
    }

    /// Does work about one GPU where it cannot hang this thread.
    pub(super) fn guarded_gpu<T: Send + 'static>(
        &self,
        index: u32,
        work: impl FnOnce(&Nvml, &Progress) -> T + Send + 'static,
    ) -> Result<T, Box<Problem>> {
        self.run(Some(index), work).map_err(|failure| {
            let (kind, call, message) = match failure {
                Failure::Hung(stuck) => (ProblemKind::Hung, stuck.call, stuck.to_string()),
                other => (ProblemKind::Unreadable, "read", other.into_error().to_string()),
            };
            Box::new(Problem {
                index,
                uuid: None,
                pci: None,
                kind,
                call: call.to_owned(),
                message,
            })
        })
    }

    fn run<T: Send + 'static>(
        &self,
        subject: Subject,
        work: impl FnOnce(&Nvml, &Progress) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let nvml = Arc::clone(&self.nvml);
        self.workers
            .run(subject, self.call_timeout, move |progress| work(&nvml, progress))
    }
}

/// What was read of one GPU.
struct Part {
    gpu: Option<(Gpu, raw::Handle)>,
    pairs: Vec<GpuPair>,
    problems: Vec<Problem>,
}

impl Part {
    /// Nothing, for this reason.
    #[expect(
        clippy::boxed_local,
        reason = "it comes in the box that keeps the error of `guarded_gpu` small"
    )]
    fn of(problem: Box<Problem>) -> Self {
        Self {
            gpu: None,
            pairs: Vec::new(),
            problems: vec![*problem],
        }
    }
}

fn read(
    nvml: &Nvml,
    progress: &Progress,
    host_root: &Path,
    parts: Parts,
    index: u32,
    others: &[(u32, raw::Handle)],
) -> Part {
    let mut reader = Reader::new(index, progress);
    match reader.gpu(nvml, host_root, parts) {
        Ok((gpu, device)) => {
            let pair = |(other, handle): &(u32, raw::Handle)| reader.pair(*other, &handle.device(nvml), &device);
            let pairs = others.iter().map(pair).collect();
            Part {
                gpu: Some((gpu, raw::Handle::of(&device))),
                pairs,
                problems: reader.problems,
            }
        }
        Err(problem) => {
            reader.problems.push(problem);
            Part {
                gpu: None,
                pairs: Vec::new(),
                problems: reader.problems,
            }
        }
    }
}

fn node(nvml: &Nvml, progress: &Progress) -> Result<(Driver, u32)> {
    let call = "nvmlSystemGetDriverVersion";
    let answer = progress
        .call(call, || raw::text::driver_version(nvml))
        .map_err(|source| Error::Call { call, source })?;
    let version = answer
        .parse()
        .map_err(|source| Error::Answer { call, answer, source })?;
    let branch = progress.call("nvmlSystemGetDriverBranch", || raw::fabric::driver_branch(nvml));
    let driver = Driver {
        version,
        nvml_version: progress
            .call("nvmlSystemGetNVMLVersion", || raw::text::nvml_version(nvml))
            .ok(),
        cuda_version: cuda_version(nvml, progress),
        branch: branch.ok().filter(|branch| !branch.is_empty()),
    };
    Ok((driver, count(nvml, progress)?))
}

/// How many GPUs there are, lost ones included.
fn count(nvml: &Nvml, progress: &Progress) -> Result<u32> {
    /// Eight times as many as the driver can have (`NV_MAX_DEVICES`): one that counts more is out of its mind.
    const MOST: u32 = 256;
    let call = "nvmlDeviceGetCount_v2";
    let count = progress.call(call, || nvml.device_count());
    match count.map_err(|source| Error::Call { call, source })? {
        count @ 0..=MOST => Ok(count),
        count => Err(Error::Implausible {
            call,
            answer: count.to_string(),
        }),
    }
}

/// The second version of the call asks libcuda, which a container with NVML alone does not have; the first then still
/// knows what the driver was built with.
fn cuda_version(nvml: &Nvml, progress: &Progress) -> Option<CudaVersion> {
    let number = match progress.call("nvmlSystemGetCudaDriverVersion_v2", || nvml.sys_cuda_driver_version()) {
        Ok(number) => u32::try_from(number).ok(),
        Err(_) => progress
            .call("nvmlSystemGetCudaDriverVersion", || raw::cuda_driver_version(nvml))
            .ok(),
    };
    number.filter(|number| *number > 0).map(CudaVersion::from_nvml)
}
