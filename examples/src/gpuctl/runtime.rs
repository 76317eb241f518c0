//! `gpuctl runtime`: in the place of `nvidia-ctk runtime`.

use clap::Subcommand;

mod configure;
mod node;
mod outcome;
mod revert;

#[derive(Debug, Subcommand)]
pub(super) enum Runtime {
    /// Adds the NVIDIA runtime to the engine's configuration
    Configure(configure::Configure),
    /// Shows what `configure` would change, as a unified diff
    Diff(configure::Diff),
    /// Takes back what `configure` did; what others have changed since stays
    Revert(revert::Revert),
}

impl Runtime {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        match self {
            Self::Configure(command) => command.run(),
            Self::Diff(command) => command.run(),
            Self::Revert(command) => command.run(),
        }
    }
}

#[cfg(test)]
mod tests;
