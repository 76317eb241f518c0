//! `nvidia-smi mig …`: profiles, and instances listed, made and removed. `-lgip` and `-lgipp` are laid out as measured with
//! driver 580.159.04, the rest as NVIDIA's MIG guide shows it.

mod change;

use std::fmt::Write as _;

use nvml_wrapper::Device;
use nvml_wrapper_sys::bindings::nvmlGpuInstanceProfileInfo_t;

use self::change::Change;
use super::{arguments::ids_of, failure::Failure, raw};

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command {
    Profiles,
    Placements,
    ComputeProfiles,
    Instances,
    ComputeInstances,
    Change(Change),
}

/// Options that only narrow down what is meant.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    gpu_instances: Vec<u32>,
    compute_instances: Vec<u32>,
    with_compute: bool,
}

/// The arguments behind `mig`: the command and the GPUs.
pub(super) fn parse(arguments: &[String]) -> Result<(Command, Vec<String>), Failure> {
    let (mut command, mut options, mut ids) = (None, Options::default(), Vec::new());
    let mut arguments = arguments.iter().peekable();
    while let Some(argument) = arguments.next() {
        let mut value = || {
            let missing = || Failure::no_value(argument);
            arguments.next().cloned().ok_or_else(missing)
        };
        let found = match argument.as_str() {
            "-lgip" | "--list-gpu-instance-profiles" => Command::Profiles,
            "-lgipp" | "--list-gpu-instance-possible-placements" => Command::Placements,
            "-lcip" | "--list-compute-instance-profiles" => Command::ComputeProfiles,
            "-lgi" | "--list-gpu-instances" => Command::Instances,
            "-lci" | "--list-compute-instances" => Command::ComputeInstances,
            "-cgi" | "--create-gpu-instance" => Command::Change(Change::create(&value()?)),
            "-cci" | "--create-compute-instance" => {
                let sizes = arguments.next_if(|next| !next.starts_with('-'));
                Command::Change(Change::create_compute(sizes.map(String::as_str)))
            }
            "-dgi" | "--destroy-gpu-instance" => Command::Change(Change::Destroy(Vec::new())),
            "-dci" | "--destroy-compute-instance" => Command::Change(Change::DestroyCompute(Vec::new(), Vec::new())),
            "-i" | "--id" => {
                ids = ids_of(&value()?);
                continue;
            }
            "-gi" | "--gpu-instance-id" => {
                options.gpu_instances = numbers(&value()?)?;
                continue;
            }
            "-ci" | "--compute-instance-id" => {
                options.compute_instances = numbers(&value()?)?;
                continue;
            }
            "-C" | "--default-compute-instance" => {
                options.with_compute = true;
                continue;
            }
            _ => return Err(Failure::unknown_option(argument)),
        };
        if command.replace(found).is_some() {
            return Err(Failure::usage("ERROR: More than one command was given."));
        }
    }
    let command =
        command.ok_or_else(|| Failure::usage("ERROR: No command was given. Please run 'nvidia-smi mig -h'."))?;
    Ok((options.narrow(command), ids))
}

impl Options {
    fn narrow(self, command: Command) -> Command {
        match command {
            Command::Change(change) => {
                Command::Change(change.narrow(self.gpu_instances, self.compute_instances, self.with_compute))
            }
            other => other,
        }
    }
}

fn numbers(list: &str) -> Result<Vec<u32>, Failure> {
    list.split(',')
        .map(|number| {
            let broken = |_| Failure::usage(format!("ERROR: `{number}` is no id of an instance."));
            number.trim().parse().map_err(broken)
        })
        .collect()
}

impl Command {
    pub(super) fn answer(self, gpus: &[Device<'_>]) -> Result<String, Failure> {
        match self {
            Self::Profiles => profiles(gpus),
            Self::Placements => placements(gpus),
            Self::ComputeProfiles => compute_profiles(gpus),
            Self::Instances => instances(gpus),
            Self::ComputeInstances => compute_instances(gpus),
            Self::Change(change) => change.answer(gpus),
        }
    }
}

/// The name that the driver makes of a profile, from the memory of the board. NVML answers it in a version of the call
/// that older drivers lack.
fn name(gpu: &Device<'_>, profile: &nvmlGpuInstanceProfileInfo_t, compute_slices: u32) -> String {
    let total = gpu.memory_info().map_or(0, |memory| memory.total);
    let table = crate::boards()
        .filter_map(|board| crate::mig::find(board.mig.as_deref()?))
        .find_map(|table| {
            let same = |candidate: &&crate::MigProfile| {
                candidate.id == profile.id && candidate.memory_mib == profile.memorySizeMB
            };
            table.profiles.iter().find(same)
        });
    let name = table.map_or_else(|| "?".to_owned(), |profile| profile.name(compute_slices, total));
    format!("MIG {name}")
}

/// The GPUs whose MIG mode is on, with their numbers.
fn enabled<'a, 'nvml>(gpus: &'a [Device<'nvml>]) -> Result<Vec<(u32, &'a Device<'nvml>)>, Failure> {
    let on = |gpu: &&Device<'_>| gpu.mig_mode().is_ok_and(|mode| mode.current == 1);
    let found: Vec<_> = gpus
        .iter()
        .filter(on)
        .map(|gpu| Ok((gpu.index()?, gpu)))
        .collect::<Result<_, Failure>>()?;
    if found.is_empty() {
        return Err(Failure {
            message: "No MIG-enabled devices found.".to_owned(),
            exit_code: 6,
        });
    }
    Ok(found)
}

fn profiles(gpus: &[Device<'_>]) -> Result<String, Failure> {
    const LINE: &str = "+-------------------------------------------------------------------------------+\n";
    let mut text = String::from(LINE);
    text += "| GPU instance profiles:                                                        |\n\
             | GPU   Name               ID    Instances   Memory     P2P    SM    DEC   ENC  |\n\
             |                                Free/Total   GiB              CE    JPEG  OFA  |\n\
             |===============================================================================|\n";
    for gpu in gpus {
        let index = gpu.index()?;
        let raw = raw::Gpu::of(gpu);
        for profile in raw.profiles() {
            let free = raw.remaining(profile.id).unwrap_or(profile.instanceCount);
            #[expect(
                clippy::cast_precision_loss,
                reason = "memory sizes are far below what a float holds"
            )]
            let gib = format!("{:.2}", profile.memorySizeMB as f64 / 1024.0);
            let _ = writeln!(
                text,
                "|{index:>4}  {:<19}{:>3}     {free}/{}        {gib:<11}No     {:<7}{:<6}{:<4}|\n\
                 |{:63}{:<6}{:<6}{:<4}|",
                name(gpu, &profile, profile.sliceCount),
                profile.id,
                profile.instanceCount,
                profile.multiprocessorCount,
                profile.decoderCount,
                profile.encoderCount,
                "",
                profile.copyEngineCount,
                profile.jpegCount,
                profile.ofaCount,
            );
            text += LINE;
        }
    }
    Ok(text)
}

fn placements(gpus: &[Device<'_>]) -> Result<String, Failure> {
    let mut text = String::new();
    for gpu in gpus {
        let index = gpu.index()?;
        let raw = raw::Gpu::of(gpu);
        for profile in raw.profiles() {
            let places = raw.placements(profile.id)?;
            let starts: Vec<String> = places.iter().map(|place| place.start.to_string()).collect();
            let word = if places.len() == 1 { "Placement " } else { "Placements" };
            let size = places.first().map_or(0, |place| place.size);
            let _ = writeln!(
                text,
                "GPU {index:>2} Profile ID {:>2} {word}: {{{}}}:{size}",
                profile.id,
                starts.join(",")
            );
        }
    }
    Ok(text)
}

fn instances(gpus: &[Device<'_>]) -> Result<String, Failure> {
    const LINE: &str = "+-------------------------------------------------------+\n";
    let mut rows = String::new();
    for (index, gpu) in enabled(gpus)? {
        let raw = raw::Gpu::of(gpu);
        let profiles = raw.profiles();
        for instance in raw.instances()? {
            let info = instance.info;
            let profile = profiles.iter().find(|profile| profile.id == info.profileId);
            let name = profile.map_or_else(String::new, |profile| name(gpu, profile, profile.sliceCount));
            let _ = writeln!(
                rows,
                "|{index:>4}  {name:<19}{:>3}{:>9}{:>11}:{:<6}|\n{}",
                info.profileId,
                info.id,
                info.placement.start,
                info.placement.size,
                LINE.trim_end()
            );
        }
    }
    if rows.is_empty() {
        return Err(Failure::not_found("No GPU instances found: Not Found"));
    }
    Ok(format!(
        "{LINE}\
         | GPU instances:                                        |\n\
         | GPU   Name             Profile  Instance   Placement  |\n\
         |                          ID       ID       Start:Size |\n\
         |=======================================================|\n{rows}"
    ))
}

/// The profile that takes all of its GPU instance has a star.
fn compute_profiles(gpus: &[Device<'_>]) -> Result<String, Failure> {
    const LINE: &str = "+--------------------------------------------------------------------------------------+\n";
    let mut rows = String::new();
    for (index, gpu) in enabled(gpus)? {
        let raw = raw::Gpu::of(gpu);
        let profiles = raw.profiles();
        for instance in raw.instances()? {
            let whole = profiles.iter().find(|profile| profile.id == instance.info.profileId);
            for (info, free) in instance.compute_profiles() {
                let name = whole.map_or_else(String::new, |profile| name(gpu, profile, info.sliceCount));
                let all = whole.is_some_and(|profile| profile.sliceCount == info.sliceCount);
                let _ = writeln!(
                    rows,
                    "|{index:>4}{:>7}       {name:<19}{:>3}{:<1}     {free}/{}{:>13}{:>9}{:>6}{:>6}   |\n\
                     |{:>71}{:>6}         |\n{}",
                    instance.info.id,
                    info.id,
                    if all { "*" } else { "" },
                    info.instanceCount,
                    info.multiprocessorCount,
                    info.sharedDecoderCount,
                    info.sharedEncoderCount,
                    info.sharedOfaCount,
                    info.sharedCopyEngineCount,
                    info.sharedJpegCount,
                    LINE.trim_end()
                );
            }
        }
    }
    if rows.is_empty() {
        return Err(Failure::not_found("No compute instance profiles found: Not Found"));
    }
    Ok(format!(
        "{LINE}\
         | Compute instance profiles:                                                           |\n\
         | GPU     GPU       Name             Profile  Instances   Exclusive       Shared       |\n\
         |       Instance                       ID     Free/Total     SM       DEC   ENC   OFA  |\n\
         |         ID                                                          CE    JPEG       |\n\
         |======================================================================================|\n{rows}"
    ))
}

fn compute_instances(gpus: &[Device<'_>]) -> Result<String, Failure> {
    const LINE: &str = "+--------------------------------------------------------------------+\n";
    let mut rows = String::new();
    for (index, gpu) in enabled(gpus)? {
        let raw = raw::Gpu::of(gpu);
        let profiles = raw.profiles();
        for instance in raw.instances()? {
            let profile = profiles.iter().find(|profile| profile.id == instance.info.profileId);
            for compute in instance.compute()? {
                let info = compute.info;
                let name = profile.map_or_else(String::new, |profile| name(gpu, profile, info.placement.size));
                let _ = writeln!(
                    rows,
                    "|{index:>4}{:>7}       {name:<19}{:>3}{:>10}{:>11}:{:<6}|\n{}",
                    instance.info.id,
                    info.profileId,
                    info.id,
                    info.placement.start,
                    info.placement.size,
                    LINE.trim_end()
                );
            }
        }
    }
    if rows.is_empty() {
        return Err(Failure::not_found("No compute instances found: Not Found"));
    }
    Ok(format!(
        "{LINE}\
         | Compute instances:                                                 |\n\
         | GPU     GPU       Name             Profile   Instance   Placement  |\n\
         |       Instance                       ID        ID       Start:Size |\n\
         |         ID                                                         |\n\
         |====================================================================|\n{rows}"
    ))
}
