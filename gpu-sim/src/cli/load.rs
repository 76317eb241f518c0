//! `gpu-sim load`: lets something run on a GPU.

use clap::Args;

use super::{OfGpu, print};
use crate::Result;

#[derive(Debug, Args)]
pub(super) struct Load {
    #[command(flatten)]
    gpu: OfGpu,
    /// How busy it keeps the GPU, in percent.
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u32).range(..=100))]
    util: u32,
    /// The GPU memory it uses, in MiB.
    #[arg(long, value_name = "M")]
    memory_mib: u64,
    /// Its number. Default: one that no process of this machine can have.
    #[arg(long, value_name = "P")]
    pid: Option<u32>,
    /// GPU instance that it runs on.
    #[arg(long, value_name = "N", requires = "ci")]
    gi: Option<u32>,
    /// Compute instance that it runs on.
    #[arg(long, value_name = "N", requires = "gi")]
    ci: Option<u32>,
}

impl Load {
    /// Prints the number of the process.
    pub(super) fn run(self) -> Result<()> {
        let load = crate::Load {
            utilization: self.util,
            memory_mib: self.memory_mib,
            pid: self.pid,
            instance: self.gi.zip(self.ci),
        };
        let pid = self.gpu.node()?.load(self.gpu.gpu, load)?;
        print(&format!("{pid}\n"))
    }
}
