//! Changes of a GPU: its modes by `-mig`, `-c` and `-pm`, its time slice by `compute-policy`, and a reset, `-r`. The words are those
//! of the real one as NVIDIA's guides show them, but for time slices and why something failed, which we worded.

use std::fmt::Write as _;

use nvml_wrapper::Device;

use super::{failure::Failure, raw};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Mig(bool),
    Compute(u32),
    Persistence(bool),
    /// By the length of a time slice: see [`TIME_SLICES`].
    TimeSlice(u32),
    Reset,
}

/// By `nvmlComputeMode_t`.
const COMPUTE_MODES: [&str; 4] = ["DEFAULT", "EXCLUSIVE_THREAD", "PROHIBITED", "EXCLUSIVE_PROCESS"];

/// By the number that `--set-timeslice` takes.
pub(super) const TIME_SLICES: [&str; 4] = ["Default", "Short", "Medium", "Long"];

impl Change {
    /// The change that an option with its value asks for.
    pub(super) fn parse(option: &str, value: &str) -> Result<Self, Failure> {
        let on = match value {
            "1" | "ENABLED" => Some(true),
            "0" | "DISABLED" => Some(false),
            _ => None,
        };
        let mode = || {
            let number = COMPUTE_MODES.iter().position(|name| *name == value);
            number
                .and_then(|at| u32::try_from(at).ok())
                .or_else(|| value.parse().ok())
        };
        let change = match option {
            "-mig" | "--multi-instance-gpu" => on.map(Self::Mig),
            "-pm" | "--persistence-mode" => on.map(Self::Persistence),
            "--set-timeslice" => {
                let length = value.parse().ok();
                length
                    .filter(|length: &u32| TIME_SLICES.len() > *length as usize)
                    .map(Self::TimeSlice)
            }
            _ => mode().filter(|mode| *mode < 4).map(Self::Compute),
        };
        change.ok_or_else(|| Failure::usage(format!("ERROR: `{value}` is not a value of option {option}.")))
    }

    pub(super) fn answer(self, gpus: &[Device<'_>]) -> Result<String, Failure> {
        let mut text = String::new();
        for gpu in gpus {
            let bus = gpu.pci_info()?.bus_id;
            let line = self.apply(gpu, &bus).map_err(|failure| Failure {
                message: format!("{text}Unable to change GPU {bus}: {}", failure.message),
                exit_code: failure.exit_code,
            })?;
            let _ = writeln!(text, "{line}");
        }
        Ok(text + "All done.\n")
    }

    fn apply(self, gpu: &Device<'_>, bus: &str) -> Result<String, Failure> {
        let raw = raw::Gpu::of(gpu);
        let able = |on| if on { "Enabled" } else { "Disabled" };
        match self {
            Self::Mig(on) => Ok(match raw.set_mig_mode(on)? {
                0 => format!("{} MIG Mode for GPU {bus}", able(on)),
                code => {
                    let state = if on { "enable" } else { "disable" };
                    let reason = Failure::of_code(code).message;
                    format!("Warning: MIG mode is in pending {state} state for GPU {bus}:{reason}")
                }
            }),
            Self::Compute(mode) => {
                raw.set_compute_mode(mode)?;
                let name = COMPUTE_MODES.get(mode as usize).unwrap_or(&"");
                Ok(format!("Set compute mode to {name} for GPU {bus}."))
            }
            Self::Persistence(on) => {
                if gpu.is_in_persistent_mode()? == on {
                    return Ok(format!("Persistence mode is already {} for GPU {bus}.", able(on)));
                }
                raw.set_persistence(on)?;
                Ok(format!("{} persistence mode for GPU {bus}.", able(on)))
            }
            Self::TimeSlice(length) => {
                raw.set_time_slice(length)?;
                let name = TIME_SLICES.get(length as usize).unwrap_or(&"");
                Ok(format!("Set timeslice to {name} for GPU {bus}."))
            }
            Self::Reset => {
                raw.reset()?;
                Ok(format!("GPU {bus} was successfully reset."))
            }
        }
    }
}
