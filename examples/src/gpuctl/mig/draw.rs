use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use gpu_sharing::mig::{draw_svg, draw_text, fleet};

use super::{inventory, open};
use crate::{hardware::Hardware, program::print};

#[derive(Debug, Args)]
pub(in crate::gpuctl) struct Draw {
    /// The form
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,

    /// Only the GPU of this index
    #[arg(long, value_name = "INDEX")]
    gpu: Option<u32>,

    #[command(flatten)]
    hardware: Hardware,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Svg,
}

impl Draw {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let library = open(&self.hardware)?;
        let inventory = inventory(&library, &self.hardware)?;
        let fleet = fleet(&inventory, &library.usage(&self.hardware.host_root)?)?;
        let mut states = Vec::new();
        for gpu in &inventory.gpus {
            if self.gpu.is_some_and(|index| index != gpu.index) {
                continue;
            }
            if let Some(state) = fleet.gpu(gpu.uuid.as_str()) {
                let mut state = state.clone();
                state.name = format!("GPU {}", gpu.index);
                states.push(state);
            }
        }
        match (self.output, &states[..], self.gpu) {
            (_, [], Some(index)) => bail!("there is no GPU {index} that can do MIG"),
            (_, [], None) => bail!("this node has no GPU that can do MIG"),
            (Output::Text, states, _) => print(states.iter().map(draw_text).collect::<String>()),
            (Output::Svg, [state], _) => print(draw_svg(state)),
            (Output::Svg, ..) => {
                Err(anyhow::anyhow!("say which GPU to draw: `--gpu`")).context("an image shows one GPU")
            }
        }
    }
}
