use std::{
    fmt, mem,
    sync::{Arc, Mutex, PoisonError},
};

use nvml_wrapper::Nvml;

use super::{
    Library,
    guard::Progress,
    raw::gpm::{Sample, metrics},
    read::Reader,
};
use crate::Problem;

/// What a GPU, or one GPU instance, did between two moments (Hopper and later; `nvmlGpm*`).
///
/// It keeps the last sample, so that each reading is of the time since the one before, and takes the next into memory that it
/// has already. NVML wants at least 100 ms between two.
pub struct GpmSampler {
    library: Arc<Library>,
    index: u32,
    gpu_instance: Option<u32>,
    samples: Arc<Mutex<Samples>>,
}

#[derive(Debug, Default)]
struct Samples {
    last: Option<Sample>,
    /// Memory for the next.
    spare: Option<Sample>,
}

impl GpmSampler {
    /// A sampler of the GPU with that index, or of one of its GPU instances. Nothing is asked of the GPU yet.
    pub fn new(library: Arc<Library>, index: u32, gpu_instance: Option<u32>) -> Self {
        Self {
            library,
            index,
            gpu_instance,
            samples: Arc::default(),
        }
    }

    /// The metrics (`NVML_GPM_METRIC_*`), in the order asked for, since the last reading; `None` at the first one. A metric is
    /// `None` where the GPU does not offer it, or the answer is no number.
    ///
    /// # Errors
    /// Where the GPU is lost or hangs, or has no such monitoring.
    pub fn read(&self, ids: &[u32]) -> Result<Option<Vec<Option<f64>>>, Box<Problem>> {
        let ids = ids.to_vec();
        let samples = Arc::clone(&self.samples);
        let (index, instance) = (self.index, self.gpu_instance);
        self.library
            .guarded_gpu(index, move |nvml: &Nvml, progress: &Progress| {
                let reader = Reader::new(index, progress);
                let device = reader.needed("nvmlDeviceGetHandleByIndex_v2", || nvml.device_by_index(index))?;
                let mut samples = samples.lock().unwrap_or_else(PoisonError::into_inner);
                if samples.spare.is_none() {
                    samples.spare = Some(reader.needed("nvmlGpmSampleAlloc", || Sample::new(nvml))?);
                }
                let Samples { last, spare } = &mut *samples;
                let Some(next) = spare.as_mut() else { return Ok(None) };
                reader.needed("nvmlGpmSampleGet", || next.take(&device, instance))?;
                mem::swap(last, spare);
                let (Some(first), Some(second)) = (spare, last) else {
                    return Ok(None);
                };
                let values = reader.needed("nvmlGpmMetricsGet", || metrics(nvml, first, second, &ids))?;
                let value = |(code, value): (u32, f64)| Some(value).filter(|value| code == 0 && value.is_finite());
                Ok(Some(values.into_iter().map(value).collect()))
            })?
            .map_err(Box::new)
    }
}

impl Drop for GpmSampler {
    fn drop(&mut self) {
        // A worker that is stuck holds them: then they are left to it.
        if let Ok(mut samples) = self.samples.try_lock() {
            let Samples { last, spare } = mem::take(&mut *samples);
            last.into_iter()
                .chain(spare)
                .for_each(|sample| sample.free(&self.library.nvml));
        }
    }
}

impl fmt::Debug for GpmSampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GpmSampler")
            .field("index", &self.index)
            .field("gpu_instance", &self.gpu_instance)
            .finish_non_exhaustive()
    }
}
