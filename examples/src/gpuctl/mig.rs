//! `gpuctl mig`: in the place of `nvidia-mig-parted`, and more.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process,
};

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};
use gpu_core::{Inventory, nvml::Library};
use gpu_sharing::mig::parted::{Configs, Form, Selection};

use super::input;
use crate::{hardware::Hardware, program::remark, vendor};

mod apply;
mod assert;
mod checkpoint;
mod draw;
mod hooks;
mod list;
mod write;

#[derive(Debug, Args)]
pub(super) struct Mig {
    /// Says more on standard error, what hooks print too
    #[arg(short, long, global = true, env = "MIG_PARTED_DEBUG", value_parser = vendor::parse_bool, num_args = 0..=1,
          require_equals = true, default_value = "false", default_missing_value = "true")]
    debug: bool,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists what each GPU can be divided into, and how many of each still fit
    Profiles(list::Profiles),
    /// Says what `apply` would do, and why it would not
    Plan(apply::Plan),
    /// Makes GPUs what a configuration asks: keeps what fits, takes back what fails
    Apply(apply::Apply),
    /// Tells by its exit code whether a configuration is applied
    Assert(assert::Assert),
    /// Prints the GPUs as they are as a file of configurations
    Export(write::Export),
    /// Prints the file of configurations that fits this node's GPUs
    GenerateConfig(write::GenerateConfig),
    /// Saves modes and instances with their places
    Checkpoint(checkpoint::Save),
    /// Makes GPUs what a checkpoint says
    Restore(checkpoint::Restore),
    /// Draws the instances of GPUs to scale
    Draw(draw::Draw),
}

impl Mig {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        match &self.command {
            Command::Profiles(command) => command.run(),
            Command::Plan(command) => command.run(),
            Command::Apply(command) => command.run(self.debug),
            Command::Assert(command) => command.run(),
            Command::Export(command) => command.run(),
            Command::GenerateConfig(command) => command.run(),
            Command::Checkpoint(command) => command.run(),
            Command::Restore(command) => command.run(self.debug),
            Command::Draw(command) => command.run(),
        }
    }
}

/// Which configuration of which file.
#[derive(Debug, Args)]
struct Source {
    /// The file of configurations; `-` for standard input
    #[arg(short = 'f', long, env = "MIG_PARTED_CONFIG_FILE", value_name = "PATH")]
    config_file: PathBuf,

    /// The configuration in it; may be left out if there is one
    #[arg(short = 'c', long, env = "MIG_PARTED_SELECTED_CONFIG", value_name = "NAME")]
    selected_config: Option<String>,
}

impl Source {
    fn configs(&self) -> anyhow::Result<Configs> {
        let text = input::read(&self.config_file)?;
        Configs::parse(&text).with_context(|| format!("cannot use `{}`", self.config_file.display()))
    }

    /// What the configuration asks of these GPUs.
    fn select(&self, configs: &Configs, inventory: &Inventory) -> anyhow::Result<Selection> {
        let file = || format!("cannot use `{}`", self.config_file.display());
        let config = configs.named(self.selected_config.as_deref()).with_context(file)?;
        config.select(inventory).with_context(file)
    }
}

/// A file that is whole or as before; a link stays one, and other folders than the file's are left alone.
fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let what = || format!("cannot write `{}`", path.display());
    if path.exists() && !path.is_file() {
        return fs::write(path, text).with_context(what); // /dev/stdout and the like
    }
    let file = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{}.new", process::id()));
    let new = PathBuf::from(name);
    let filled = File::create_new(&new).and_then(|mut new| new.write_all(text.as_bytes()));
    let written = filled.and_then(|()| fs::rename(&new, &file));
    if written.is_err() {
        // Best effort: the first error is the one to report.
        let _ = fs::remove_file(&new);
    }
    written.with_context(what)
}

fn open(hardware: &Hardware) -> anyhow::Result<Library> {
    Ok(Library::open(&hardware.library_search())?)
}

/// The GPUs of this node; what could not be read is named.
fn inventory(library: &Library, hardware: &Hardware) -> anyhow::Result<Inventory> {
    let inventory = library.inventory(&hardware.host_root)?;
    tell_problems(&inventory);
    Ok(inventory)
}

fn tell_problems(inventory: &Inventory) {
    for problem in &inventory.problems {
        remark(format_args!("warning: {problem}"));
    }
}

fn tell_notes(selection: &Selection) {
    for note in &selection.notes {
        remark(format_args!("note: {note}"));
    }
}

/// The forms of a file of configurations.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    Yaml,
    Json,
}

impl Format {
    fn write(self, configs: &Configs, form: Form) -> String {
        match self {
            Self::Yaml => configs.to_yaml(form),
            Self::Json => configs.to_json(form),
        }
    }
}
