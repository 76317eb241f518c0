//! The command `nvidia-smi`: the summary table, `-L`, `--query-gpu`, `-q -x`, changes of modes, a reset, `mig`, `compute-policy`, and
//! `topo -m`.
//!
//! It loads `libnvidia-ml.so.1` by the loader's search path and knows nothing else of a simulated node, so that in a
//! container it says what the library there says. Layout, texts and exit codes are those of the real one, measured with
//! driver 580.159.04. A lost GPU does not hide the others: it is named on stderr and the exit code is 15.

mod arguments;
mod date;
mod failure;
mod log;
mod mig;
mod modes;
mod policy;
mod query;
#[expect(unsafe_code, reason = "calls what the wrapper does not have")]
mod raw;
mod table;
mod topology;
mod xml;

use std::{
    ffi::OsString,
    fmt::Write as _,
    io::{self, Write as _},
    process::ExitCode,
};

use nvml_wrapper::{Device, Nvml, error::NvmlError};

pub(crate) use self::date::Date;
use self::{
    arguments::{Arguments, Command},
    failure::Failure,
};
use crate::PciAddress;

const LIBRARY: &str = "libnvidia-ml.so.1";

/// Runs the command with these arguments, the program's name first.
///
/// Exit codes: 0 done; 2 an option that does not fit; 6 no such GPU; 255 an unknown option; else NVML's own code, such as
/// 9 (no driver), 12 (no library), 15 (a GPU is lost) or 18 (driver and library differ).
pub(crate) fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    match answer(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let _ = writeln!(io::stderr(), "{}", failure.message);
            ExitCode::from(failure.exit_code)
        }
    }
}

fn answer(arguments: impl IntoIterator<Item = OsString>) -> Result<(), Failure> {
    let Arguments { command, ids } = arguments::parse(arguments.into_iter().skip(1))?;
    if matches!(command, Command::Help) {
        return print(arguments::HELP);
    }
    let nvml = Nvml::builder()
        .lib_path(LIBRARY.as_ref())
        .init()
        .map_err(|error| Failure::of_initialisation(&error))?;
    let (gpus, failure) = select(&nvml, &ids)?;
    let text = match command {
        Command::Help => String::new(),
        Command::Table => table::draw(&nvml, &gpus)?,
        Command::List => list(&gpus)?,
        Command::Query(query) => query.answer(&nvml, &gpus),
        Command::Log => log::write(&nvml, &gpus)?,
        Command::Policies => policy::list(&gpus)?,
        Command::Mig(command) => command.answer(&gpus)?,
        Command::Topology => topology::matrix(&gpus)?,
        Command::Change(change) => change.answer(&gpus)?,
    };
    print(&text)?;
    failure.map_or(Ok(()), Err)
}

/// The GPUs asked for, in the order of their indices, and the last of them that does not answer.
fn select<'nvml>(nvml: &'nvml Nvml, ids: &[String]) -> Result<(Vec<Device<'nvml>>, Option<Failure>), Failure> {
    let mut failure = None;
    let mut gpus = Vec::new();
    for index in 0..nvml.device_count()? {
        let found = nvml
            .device_by_index(index)
            .and_then(|gpu| is_one_of(&gpu, index, ids).map(|wanted| (gpu, wanted)));
        match found {
            Ok((gpu, true)) => gpus.push(gpu),
            // One that does not answer can be told only by its index.
            Err(error) if ids.is_empty() || ids.contains(&index.to_string()) => {
                failure = Some(Failure::of_gpu(index, &error));
            }
            Ok((_, false)) | Err(_) => {}
        }
    }
    if gpus.is_empty() {
        Err(failure.unwrap_or_else(Failure::no_devices))
    } else {
        Ok((gpus, failure))
    }
}

/// Whether a GPU is named by index, UUID, serial number or PCI address, or all are wanted.
fn is_one_of(gpu: &Device<'_>, index: u32, ids: &[String]) -> Result<bool, NvmlError> {
    if ids.is_empty() {
        return Ok(true);
    }
    let names = [index.to_string(), gpu.uuid()?, gpu.serial().unwrap_or_default()];
    let address: Option<PciAddress> = gpu.pci_info()?.bus_id.parse().ok();
    let is_this = |id: &String| names.contains(id) || id.parse().ok().is_some_and(|id: PciAddress| Some(id) == address);
    Ok(ids.iter().any(is_this))
}

fn list(gpus: &[Device<'_>]) -> Result<String, Failure> {
    let line = |gpu: &Device<'_>| {
        let whole = format!("GPU {}: {} (UUID: {})\n", gpu.index()?, gpu.name()?, gpu.uuid()?);
        Ok(whole + &mig_devices(gpu)?)
    };
    gpus.iter().map(line).collect()
}

/// A line for each MIG device, laid out as NVIDIA's MIG guide shows it.
fn mig_devices(gpu: &Device<'_>) -> Result<String, Failure> {
    let mut text = String::new();
    for index in 0..gpu.mig_device_count()? {
        let device = match gpu.mig_device_by_index(index) {
            Err(NvmlError::NotFound) => continue,
            device => device?,
        };
        let name = device.name()?;
        let profile = name.rsplit_once("MIG ").map_or(name.as_str(), |(_, profile)| profile);
        let uuid = device.uuid()?;
        let _ = writeln!(text, "  MIG {profile:<12}Device {index:>2}: (UUID: {uuid})");
    }
    Ok(text)
}

fn print(text: &str) -> Result<(), Failure> {
    io::stdout()
        .write_all(text.as_bytes())
        .map_err(|error| Failure::of_output(&error))
}
