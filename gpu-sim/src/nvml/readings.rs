//! What sensors and counters read on an idle board.

use std::ffi::{c_int, c_uint, c_ulonglong};

use nvml_wrapper_sys::bindings::{
    nvmlMarginTemperature_v1_t, nvmlReturn_t, nvmlRowRemapperHistogramValues_t, nvmlTemperature_v1_t, nvmlUtilization_t,
};

use super::{
    abi::{Handle, InOut, Out, put, version_of},
    code::{Answer, Code},
    session::{Gpu, on, values},
};
use crate::{Ecc, state::EccErrors};

values! {
    fn nvmlDeviceGetPowerUsage(gpu, _) -> c_uint { gpu.board.power.idle_mw }
    fn nvmlDeviceGetPowerManagementLimit(gpu, _) -> c_uint { gpu.board.power.default_mw }
    fn nvmlDeviceGetPowerManagementDefaultLimit(gpu, _) -> c_uint { gpu.board.power.default_mw }
    fn nvmlDeviceGetEnforcedPowerLimit(gpu, _) -> c_uint { gpu.board.power.default_mw }
    // Not of a partitioned GPU, as `nvml.h` has it.
    fn nvmlDeviceGetUtilizationRates(gpu, session) -> nvmlUtilization_t {{
        let record = session.record(gpu);
        if record.mig.mode {
            return Err(Code::NOT_SUPPORTED);
        }
        nvmlUtilization_t { gpu: record.utilization(), memory: 0 }
    }}
    // P0 even when idle (measured).
    fn nvmlDeviceGetPerformanceState(_, _) -> c_uint { 0 }
    fn nvmlDeviceGetPowerState(_, _) -> c_uint { 0 }
    // nvmlClocksEventReasonGpuIdle
    fn nvmlDeviceGetCurrentClocksEventReasons(_, _) -> c_ulonglong { 1 }
    fn nvmlDeviceGetCurrentClocksThrottleReasons(_, _) -> c_ulonglong { 1 }
    fn nvmlDeviceGetNumFans(_, _) -> c_uint { 0 }
    fn nvmlDeviceGetRowRemapperHistogram(gpu, _) -> nvmlRowRemapperHistogramValues_t {{
        if gpu.board.remappable_banks == 0 {
            return Err(Code::NOT_SUPPORTED);
        }
        nvmlRowRemapperHistogramValues_t { max: gpu.board.remappable_banks, high: 0, partial: 0, low: 0, none: 0 }
    }}
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPowerManagementLimitConstraints(
    device: Handle,
    min: Out<'_, c_uint>,
    max: Out<'_, c_uint>,
) -> nvmlReturn_t {
    on(device, |gpu, _| {
        put(min, gpu.board.power.min_mw)?;
        put(max, gpu.board.power.default_mw)
    })
}

/// The only sensor is the GPU's own, 0; another is an invalid argument (measured).
fn temperature(gpu: &Gpu, sensor: c_uint) -> Answer<c_uint> {
    if sensor == 0 {
        Ok(gpu.board.temperature.idle_c)
    } else {
        Err(Code::INVALID_ARGUMENT)
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTemperature(device: Handle, sensor: c_uint, celsius: Out<'_, c_uint>) -> nvmlReturn_t {
    on(device, |gpu, _| put(celsius, temperature(gpu, sensor)?))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTemperatureV(device: Handle, reading: InOut<'_, nvmlTemperature_v1_t>) -> nvmlReturn_t {
    on(device, |gpu, _| {
        let reading = reading.ok_or(Code::INVALID_ARGUMENT)?;
        if reading.version != version_of::<nvmlTemperature_v1_t>(1) {
            return Err(Code::ARGUMENT_VERSION_MISMATCH);
        }
        reading.temperature = temperature(gpu, reading.sensorType)?.cast_signed();
        Ok(())
    })
}

/// Degrees left until the highest operating temperature.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMarginTemperature(
    device: Handle,
    margin: InOut<'_, nvmlMarginTemperature_v1_t>,
) -> nvmlReturn_t {
    on(device, |gpu, _| {
        let margin = margin.ok_or(Code::INVALID_ARGUMENT)?;
        if margin.version != version_of::<nvmlMarginTemperature_v1_t>(1) {
            return Err(Code::ARGUMENT_VERSION_MISMATCH);
        }
        let temperature = &gpu.board.temperature;
        margin.marginTemperature = c_int::try_from(temperature.gpu_max_c)
            .and_then(|max| c_int::try_from(temperature.idle_c).map(|now| max - now))
            .map_err(|_| Code::UNKNOWN)?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTemperatureThreshold(
    device: Handle,
    threshold: c_uint,
    celsius: Out<'_, c_uint>,
) -> nvmlReturn_t {
    on(device, |gpu, _| {
        let temperature = &gpu.board.temperature;
        let value = match threshold {
            0 => temperature.shutdown_c,
            1 => temperature.slowdown_c,
            2 => temperature.memory_max_c,
            3 => temperature.gpu_max_c,
            4..=7 => return Err(Code::NOT_SUPPORTED), // acoustic and GPS thresholds (measured)
            _ => return Err(Code::INVALID_ARGUMENT),
        };
        put(celsius, value)
    })
}

/// The clock of a type: graphics 0, streaming multiprocessor 1, memory 2, video 3.
fn clock(gpu: &Gpu, kind: c_uint) -> Answer<crate::Clock> {
    let clocks = &gpu.board.clocks;
    match kind {
        0 | 1 => Ok(clocks.graphics),
        2 => Ok(clocks.memory),
        3 => Ok(clocks.video),
        _ => Err(Code::NOT_SUPPORTED), // measured, though documented as an invalid argument
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetClockInfo(device: Handle, kind: c_uint, mhz: Out<'_, c_uint>) -> nvmlReturn_t {
    on(device, |gpu, _| put(mhz, clock(gpu, kind)?.idle_mhz))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMaxClockInfo(device: Handle, kind: c_uint, mhz: Out<'_, c_uint>) -> nvmlReturn_t {
    on(device, |gpu, _| put(mhz, clock(gpu, kind)?.max_mhz))
}

/// Utilisation of an engine, with the sampling period of 100 ms (measured).
macro_rules! engines {
    ($(fn $name:ident();)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(device: Handle, percent: Out<'_, c_uint>, period_us: Out<'_, c_uint>) -> nvmlReturn_t {
            on(device, |_, _| {
                put(percent, 0)?;
                put(period_us, 100_000)
            })
        }
    )*};
}

engines! {
    fn nvmlDeviceGetEncoderUtilization();
    fn nvmlDeviceGetDecoderUtilization();
    fn nvmlDeviceGetJpgUtilization();
    fn nvmlDeviceGetOfaUtilization();
}

/// The count of a kind (corrected 0, uncorrected 1) since reset (0) or ever (1).
fn errors(record: &EccErrors, kind: c_uint, counter: c_uint) -> Answer<c_ulonglong> {
    match (kind, counter) {
        (0, 0) => Ok(record.corrected),
        (1, 0) => Ok(record.uncorrected),
        (0, 1) => Ok(record.corrected_ever),
        (1, 1) => Ok(record.uncorrected_ever),
        _ => Err(Code::INVALID_ARGUMENT),
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTotalEccErrors(
    device: Handle,
    kind: c_uint,
    counter: c_uint,
    count: Out<'_, c_ulonglong>,
) -> nvmlReturn_t {
    on(device, |gpu, session| {
        if gpu.board.ecc != Ecc::On {
            return Err(Code::NOT_SUPPORTED);
        }
        put(count, errors(&session.record(gpu).ecc, kind, counter)?)
    })
}

/// A double-bit error has its row remapped at the next reset, which is pending until then.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetRemappedRows(
    device: Handle,
    corrected: Out<'_, c_uint>,
    uncorrected: Out<'_, c_uint>,
    pending: Out<'_, c_uint>,
    failed: Out<'_, c_uint>,
) -> nvmlReturn_t {
    on(device, |gpu, session| {
        if gpu.board.remappable_banks == 0 {
            return Err(Code::NOT_SUPPORTED);
        }
        let ecc = &session.record(gpu).ecc;
        let remapped = ecc.uncorrected_ever.saturating_sub(ecc.uncorrected);
        put(corrected, 0)?;
        put(uncorrected, u32::try_from(remapped).unwrap_or(c_uint::MAX))?;
        put(pending, (ecc.uncorrected > 0).into())?;
        put(failed, 0)
    })
}
