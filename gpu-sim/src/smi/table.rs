//! The summary without arguments. Widths are those of driver 580.159.04.

use std::fmt::Write as _;

use nvml_wrapper::{
    Device, Nvml,
    enum_wrappers::device::{EccCounter, MemoryError, TemperatureSensor},
    error::NvmlError,
};

use super::{
    date::Date,
    failure::Failure,
    query::{compute_mode, mebibytes, mig_mode, performance_state},
};

const LINE: &str = "+-----------------------------------------------------------------------------------------+";
const COLUMNS: &str = "+-----------------------------------------+------------------------+----------------------+";
const HEAD: &str = "\
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|";
const PROCESSES: &str = "\
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|";

pub(super) fn draw(nvml: &Nvml, gpus: &[Device<'_>]) -> Result<String, Failure> {
    let driver = nvml.sys_driver_version()?;
    let cuda = cuda_version(nvml).unwrap_or_else(|| "N/A".to_owned());
    let mut text = format!("{}       \n{LINE}\n", Date::now().long());
    // The tool is of the driver's version, as the two come in one package.
    let _ = writeln!(
        text,
        "| NVIDIA-SMI {driver:<22} Driver Version: {driver:<14} CUDA Version: {cuda:<8} |"
    );
    let _ = writeln!(text, "{COLUMNS}\n{HEAD}");
    for gpu in gpus {
        text += &rows(gpu);
        let _ = writeln!(text, "{COLUMNS}");
    }
    let _ = writeln!(text, "\n{LINE}\n{PROCESSES}");
    text += &processes(gpus);
    let _ = writeln!(text, "{LINE}");
    Ok(text)
}

/// Such as `13.0`.
pub(super) fn cuda_version(nvml: &Nvml) -> Option<String> {
    let version = nvml.sys_cuda_driver_version().ok()?;
    let (major, minor) = (
        nvml_wrapper::cuda_driver_version_major(version),
        nvml_wrapper::cuda_driver_version_minor(version),
    );
    Some(format!("{major}.{minor}"))
}

/// The executable of a process.
pub(super) fn program(pid: u32) -> String {
    let path = std::fs::read_link(format!("/proc/{pid}/exe"));
    path.map_or_else(|_| "[Not Found]".to_owned(), |path| path.display().to_string())
}

fn rows(gpu: &Device<'_>) -> String {
    let index = shown(gpu.index());
    let name = name(&shown(gpu.name()));
    let persistence = shown(gpu.is_in_persistent_mode().map(on));
    let bus = shown(gpu.pci_info().map(|pci| pci.bus_id));
    let display = shown(gpu.is_display_active().map(on));
    let errors = shown(gpu.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile));
    let fan = shown(gpu.fan_speed(0).map(|percent| format!("{percent}%")));
    let celsius = shown(
        gpu.temperature(TemperatureSensor::Gpu)
            .map(|celsius| format!("{celsius}C")),
    );
    let state = shown(gpu.performance_state().map(performance_state));
    let watts = |milliwatts: Result<u32, NvmlError>| shown(milliwatts.map(|value| format!("{}W", value / 1000)));
    let (draw, cap) = (watts(gpu.power_usage()), watts(gpu.enforced_power_limit()));
    let memory = gpu.memory_info();
    let size = |bytes: Result<u64, &NvmlError>| match bytes {
        Ok(bytes) => format!("{}MiB", mebibytes(bytes)),
        Err(error) => hidden(error),
    };
    let used = size(memory.as_ref().map(|memory| memory.used));
    let total = size(memory.as_ref().map(|memory| memory.total));
    let load = shown(gpu.utilization_rates().map(|rates| format!("{}%", rates.gpu)));
    let compute = shown(
        gpu.compute_mode()
            .map(|mode| compute_mode(mode).replace("Exclusive_", "E. ")),
    );
    let mig = shown(gpu.mig_mode().map(|mode| mig_mode(mode.current)));
    format!(
        "| {index:>3}  {name:<27}{persistence:>6}  |   {bus} {display:<3} | {errors:>20} |\n\
         |{fan:>4}{celsius:>6}{state:>6}{draw:>16} / {cap:>5} |{used:>11} / {total:>9} |{load:>8}{compute:>13} |\n\
         |{:41}|{:24}|{mig:>21} |\n",
        "", ""
    )
}

/// A name that is too long ends in dots.
fn name(name: &str) -> String {
    if name.chars().count() <= 27 {
        name.to_owned()
    } else {
        name.chars().take(24).chain("...".chars()).collect()
    }
}

fn on(on: bool) -> &'static str {
    if on { "On" } else { "Off" }
}

/// A value, or what stands in its place.
fn shown(value: Result<impl ToString, NvmlError>) -> String {
    value.map_or_else(|error| hidden(&error), |value| value.to_string())
}

fn hidden(error: &NvmlError) -> String {
    if matches!(error, NvmlError::NotSupported) {
        "N/A".to_owned()
    } else {
        "ERR!".to_owned()
    }
}

fn processes(gpus: &[Device<'_>]) -> String {
    let mut text = String::new();
    for gpu in gpus {
        let (Ok(index), Ok(processes)) = (gpu.index(), gpu.running_compute_processes()) else {
            continue;
        };
        for process in processes {
            let instance = |id: Option<u32>| id.map_or_else(|| "N/A".to_owned(), |id| id.to_string());
            let (gi, ci) = (instance(process.gpu_instance_id), instance(process.compute_instance_id));
            let memory = match process.used_gpu_memory {
                nvml_wrapper::enums::device::UsedGpuMemory::Used(bytes) => format!("{}MiB", mebibytes(bytes)),
                nvml_wrapper::enums::device::UsedGpuMemory::Unavailable => "N/A".to_owned(),
            };
            let (pid, program) = (process.pid, program(process.pid));
            let _ = writeln!(
                text,
                "| {index:>4}  {gi:>3}  {ci:>3} {pid:>16}      C   {program:<33.33}  {memory:>9} |"
            );
        }
    }
    if text.is_empty() {
        format!("|  {:<87}|\n", "No running processes found")
    } else {
        text
    }
}
