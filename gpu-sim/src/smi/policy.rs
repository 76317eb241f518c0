//! `nvidia-smi compute-policy`: how the processes of a GPU take turns. The table is laid out as NVIDIA's guides show it.

use std::{fmt::Write as _, iter::Peekable};

use nvml_wrapper::Device;

use super::{
    arguments::{Arguments, Command, ids_of, option, value_of},
    failure::Failure,
    modes::{Change, TIME_SLICES},
    raw,
};

/// The arguments behind `compute-policy`.
pub(super) fn parse(arguments: &mut Peekable<impl Iterator<Item = String>>) -> Result<Arguments, Failure> {
    let (mut command, mut ids) = (None, Vec::new());
    while let Some(argument) = arguments.next() {
        let (option, given) = option(&argument);
        let mut value = || value_of(option, given, arguments);
        match option {
            "-l" | "--list" => command = Some(Command::Policies),
            "-i" | "--id" => ids = ids_of(&value()?),
            "--set-timeslice" => command = Some(Command::Change(Change::parse(option, &value()?)?)),
            _ => return Err(Failure::unknown_option(&argument)),
        }
    }
    let command = command.ok_or_else(Failure::no_command)?;
    Ok(Arguments { command, ids })
}

/// The policy of each GPU.
pub(super) fn list(gpus: &[Device<'_>]) -> Result<String, Failure> {
    const LINE: &str = "+-------------------------------------+\n";
    let mut text = format!(
        "{LINE}| GPU compute policies:               |\n\
         | GPU     Name               Value    |\n\
         |=====================================|\n"
    );
    for gpu in gpus {
        let (index, length) = (gpu.index()?, raw::Gpu::of(gpu).time_slice()?);
        let name = TIME_SLICES.get(length as usize).unwrap_or(&"Unknown");
        let _ = write!(text, "|{index:>4}     {:<19}{name:<9}|\n{LINE}", "Timeslice");
    }
    Ok(text)
}
