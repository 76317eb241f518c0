//! `gpu-sim mig`: partitions a GPU.

use std::fmt::Write as _;

use clap::Subcommand;

use super::{OfGpu, print};
use crate::{Error, MigInstance, Result};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Turn MIG mode on. On a GPU in use it waits for a reset.
    On(OfGpu),
    /// Turn MIG mode off.
    Off(OfGpu),
    /// Make a GPU instance and one compute instance that takes all of it.
    Create {
        /// The profile, such as `1g.10gb`, and `@` with the first memory slot if the driver shall not choose.
        #[arg(value_name = "PROFILE[@START]")]
        profile: Profile,
        #[command(flatten)]
        gpu: OfGpu,
    },
    /// Remove a GPU instance and its compute instances.
    Destroy {
        /// Id of the GPU instance.
        #[arg(value_name = "GI")]
        instance: u32,
        #[command(flatten)]
        gpu: OfGpu,
    },
    /// List the mode and the instances.
    List(OfGpu),
}

/// `1g.10gb` or `1g.10gb@4`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Profile {
    name: String,
    start: Option<u32>,
}

impl std::str::FromStr for Profile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, start) = match text.split_once('@') {
            None => (text, None),
            Some((name, start)) => {
                let start = start.parse().map_err(|_| format!("`{start}` is no memory slot"))?;
                (name, Some(start))
            }
        };
        Ok(Self {
            name: name.to_owned(),
            start,
        })
    }
}

impl Command {
    pub(super) fn run(self) -> Result<()> {
        match self {
            Self::On(gpu) => mode(&gpu, true),
            Self::Off(gpu) => mode(&gpu, false),
            Self::Create { profile, gpu } => {
                let made = gpu.node()?.create_mig(gpu.gpu, &profile.name, profile.start)?;
                print(&lines(&made))
            }
            Self::Destroy { instance, gpu } => gpu.node()?.destroy_mig(gpu.gpu, instance),
            Self::List(gpu) => list(&gpu),
        }
    }
}

fn mode(gpu: &OfGpu, on: bool) -> Result<()> {
    if gpu.node()?.set_mig_mode(gpu.gpu, on)? {
        Ok(())
    } else {
        print("pending: it takes a reset once no process uses the GPU\n")
    }
}

fn list(gpu: &OfGpu) -> Result<(), Error> {
    let node = gpu.node()?;
    let word = |on| if on { "on" } else { "off" };
    let (current, pending) = node.mig_mode(gpu.gpu)?;
    let mut text = format!("mode {}", word(current));
    if current != pending {
        let _ = write!(text, ", pending {}", word(pending));
    }
    text.push('\n');
    for instance in node.mig(gpu.gpu)? {
        text += &lines(&instance);
    }
    print(&text)
}

fn lines(instance: &MigInstance) -> String {
    let MigInstance {
        id,
        profile,
        start,
        size,
        devices,
    } = instance;
    let mut text = format!("gi {id} {profile} {start}:{size}\n");
    for (compute, profile, uuid) in devices {
        let _ = writeln!(text, "  ci {compute} {profile} {uuid}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_may_say_where_it_starts() {
        #[track_caller]
        fn check(text: &str, name: &str, start: Option<u32>) {
            let name = name.to_owned();
            assert_eq!(text.parse(), Ok(Profile { name, start }));
        }
        check("1g.10gb", "1g.10gb", None);
        check("1g.10gb+me@4", "1g.10gb+me", Some(4));
        assert!("1g.10gb@x".parse::<Profile>().is_err());
    }
}
