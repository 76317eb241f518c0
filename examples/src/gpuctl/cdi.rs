//! `gpuctl cdi`: in the place of `nvidia-ctk cdi`.

use clap::Subcommand;

mod generate;
mod list;
mod output;
mod spec_dirs;
mod transform;
mod validate;

#[derive(Debug, Subcommand)]
pub(super) enum Cdi {
    /// Describes this node's GPUs, or devices that go with them
    Generate(Box<generate::Generate>),
    /// Prints the devices that a container can ask for
    List(list::List),
    /// Checks CDI files as a container runtime would, and more strictly where runtimes are lax
    Validate(validate::Validate),
    /// Changes a CDI file
    #[command(subcommand)]
    Transform(transform::Transform),
}

impl Cdi {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        match self {
            Self::Generate(command) => command.run(),
            Self::List(command) => command.run(),
            Self::Validate(command) => command.run(),
            Self::Transform(command) => command.run(),
        }
    }
}
