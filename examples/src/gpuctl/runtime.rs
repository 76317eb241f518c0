//! `gpuctl runtime`: in the place of `nvidia-ctk runtime`.

use clap::Subcommand;

use crate::program::remark;

mod configure;
mod node;
mod outcome;
mod revert;

#[derive(Debug, Subcommand)]
pub(super) enum Runtime {
    /// Adds the NVIDIA runtime to the engine's configuration
    Configure(configure::Configure),
    /// Shows what `configure` would change, as a unified diff; the exit code is 0 whether it would change anything or not
    Diff(configure::Diff),
    /// Takes back what `configure` did; what others have changed since stays
    Revert(revert::Revert),
}

impl Runtime {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let (result, node) = match self {
            Self::Configure(command) => (command.run(), &command.wanted.node),
            Self::Diff(command) => (command.run(), &command.wanted.node),
            Self::Revert(command) => (command.run(), &command.node),
        };
        if let (Err(_), Some(whereabouts)) = (&result, node.whereabouts()) {
            remark(format_args!("note: {whereabouts}"));
        }
        result
    }
}

#[cfg(test)]
mod tests;
