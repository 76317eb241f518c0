//! GPU performance monitoring: metrics of the time between two samples (Hopper and later).

use nvml_wrapper::{
    Device, Nvml,
    error::{NvmlError, nvml_sym, nvml_try},
};
use nvml_wrapper_sys::bindings::{
    nvmlGpmMetric_t, nvmlGpmMetric_t__bindgen_ty_1, nvmlGpmMetricsGet_t, nvmlGpmSample_t, nvmlReturn_t,
};

use super::Handle;

/// As many as one call is asked for: the wrapper panics beyond the struct's 210.
const AT_ONCE: usize = 64;

/// A sample's memory, which NVML has allocated. It is of no one GPU before it is taken.
#[derive(Debug)]
pub(in crate::nvml) struct Sample(nvmlGpmSample_t);

// SAFETY: NVML's samples are memory that any thread may use, one at a time: the value is not shared, only moved.
unsafe impl Send for Sample {}

impl Sample {
    pub(in crate::nvml) fn new(nvml: &Nvml) -> Result<Self, NvmlError> {
        // Checked here so that it cannot be absent later.
        nvml_sym(nvml.lib().nvmlGpmSampleFree.as_ref())?;
        let call = nvml_sym(nvml.lib().nvmlGpmSampleAlloc.as_ref())?;
        let mut sample = std::ptr::null_mut();
        // SAFETY: NVML is initialised as long as `nvml` lives, and `sample` is a valid place for one handle.
        nvml_try(unsafe { call(&raw mut sample) })?;
        Ok(Self(sample))
    }

    /// Takes the sample, of the whole GPU or of one GPU instance.
    pub(in crate::nvml) fn take(&mut self, device: &Device<'_>, gpu_instance: Option<u32>) -> Result<(), NvmlError> {
        let lib = device.nvml().lib();
        let handle = Handle::of(device).0;
        if let Some(instance) = gpu_instance {
            let call = nvml_sym(lib.nvmlGpmMigSampleGet.as_ref())?;
            // SAFETY: both handles are NVML's own, and the sample is not freed before it is given back.
            nvml_try(unsafe { call(handle, instance, self.0) })
        } else {
            let call = nvml_sym(lib.nvmlGpmSampleGet.as_ref())?;
            // SAFETY: both handles are NVML's own, and the sample is not freed before it is given back.
            nvml_try(unsafe { call(handle, self.0) })
        }
    }

    /// Gives the memory back to the NVML that allocated it.
    pub(in crate::nvml) fn free(self, nvml: &Nvml) {
        if let Ok(call) = &nvml.lib().nvmlGpmSampleFree {
            // SAFETY: the sample is NVML's own, and is moved into this call: nobody uses it after. One that cannot be freed is
            // left to NVML.
            let _ = unsafe { call(self.0) };
        }
    }
}

/// NVML's code and the value of each metric between two samples of one GPU, in the order asked for.
pub(in crate::nvml) fn metrics(
    nvml: &Nvml,
    first: &Sample,
    second: &Sample,
    ids: &[u32],
) -> Result<Vec<(nvmlReturn_t, f64)>, NvmlError> {
    let call = nvml_sym(nvml.lib().nvmlGpmMetricsGet.as_ref())?;
    let mut values = Vec::with_capacity(ids.len());
    for ids in ids.chunks(AT_ONCE) {
        let mut request = nvmlGpmMetricsGet_t {
            version: nvml_wrapper_sys::bindings::NVML_GPM_METRICS_GET_VERSION,
            numMetrics: 0,
            sample1: first.0,
            sample2: second.0,
            metrics: [NO_METRIC; 210],
        };
        for (place, id) in request.metrics.iter_mut().zip(ids) {
            place.metricId = *id;
            request.numMetrics += 1;
        }
        // SAFETY: the samples are NVML's own and were taken, and `request` is a valid struct of the version that it says it is,
        // with as many metrics as it says.
        nvml_try(unsafe { call(&raw mut request) })?;
        let answers = request.metrics.iter().take(ids.len());
        values.extend(answers.map(|metric| (metric.nvmlReturn, metric.value)));
    }
    Ok(values)
}

const NO_METRIC: nvmlGpmMetric_t = nvmlGpmMetric_t {
    metricId: 0,
    nvmlReturn: 0,
    value: 0.0,
    metricInfo: nvmlGpmMetric_t__bindgen_ty_1 {
        shortName: std::ptr::null_mut(),
        longName: std::ptr::null_mut(),
        unit: std::ptr::null_mut(),
    },
};
