use std::fmt::Write as _;

use clap::{Args, ValueEnum};
use comfy_table::{Table, presets::NOTHING};
use gpu_core::{Gpu, GpuInstanceProfile};
use serde::Serialize;

use super::{inventory, open};
use crate::{hardware::Hardware, program::print};

#[derive(Debug, Args)]
pub(in crate::gpuctl) struct Profiles {
    /// How to print it
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,

    #[command(flatten)]
    hardware: Hardware,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Output {
    Json,
    Yaml,
    Table,
}

/// What one GPU offers.
#[derive(Debug, Serialize)]
struct Offer<'a> {
    gpu: u32,
    uuid: &'a str,
    name: &'a str,
    mig_enabled: bool,
    profiles: Vec<Row<'a>>,
}

#[derive(Debug, Serialize)]
struct Row<'a> {
    /// How many more fit now.
    free: usize,
    #[serde(flatten)]
    profile: &'a GpuInstanceProfile,
}

impl Profiles {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let inventory = inventory(&open(&self.hardware)?, &self.hardware)?;
        let offers: Vec<_> = inventory.gpus.iter().filter_map(offer).collect();
        print(match self.output {
            Output::Json => serde_json::to_string_pretty(&offers)? + "\n",
            Output::Yaml => serde_saphyr::to_string(&offers)?,
            Output::Table if offers.is_empty() => "No GPU of this node can do MIG\n".to_owned(),
            Output::Table => offers.iter().map(Offer::table).collect(),
        })
    }
}

fn offer(gpu: &Gpu) -> Option<Offer<'_>> {
    let mig = gpu.mig.as_ref()?;
    let row = |profile| Row {
        free: free(gpu, profile),
        profile,
    };
    Some(Offer {
        gpu: gpu.index,
        uuid: gpu.uuid.as_str(),
        name: &gpu.name,
        mig_enabled: mig.enabled,
        profiles: mig.profiles.iter().map(row).collect(),
    })
}

/// The places of one profile do not overlap each other, so each that is free counts, up to how many there can be.
fn free(gpu: &Gpu, profile: &GpuInstanceProfile) -> usize {
    let instances = || gpu.mig.iter().flat_map(|mig| &mig.gpu_instances);
    let taken = |at: &&gpu_core::Placement| instances().any(|instance| instance.placement.overlaps(**at));
    let places = profile.placements.iter().filter(|at| !taken(at)).count();
    let same = instances().filter(|instance| instance.profile_id == profile.id).count();
    places.min((profile.max_instances as usize).saturating_sub(same))
}

impl Offer<'_> {
    fn table(&self) -> String {
        let mode = if self.mig_enabled { "on" } else { "off" };
        let mut text = format!("GPU {} {} (MIG {mode})\n", self.gpu, self.name);
        if self.profiles.is_empty() {
            text.push_str("the driver tells no profile while MIG mode is off\n");
            return text;
        }
        let mut table = Table::new();
        table.load_style(NOTHING);
        table.set_header([
            "Profile",
            "ID",
            "Free/Most",
            "Memory",
            "SM",
            "CE",
            "DEC",
            "ENC",
            "JPEG",
            "OFA",
            "Places",
        ]);
        table.add_rows(self.profiles.iter().map(Row::cells));
        let _ = writeln!(text, "{table}");
        text
    }
}

impl Row<'_> {
    fn cells(&self) -> [String; 11] {
        let GpuInstanceProfile {
            name,
            id,
            max_instances,
            memory_mib,
            multiprocessors,
            engines,
            placements,
            ..
        } = self.profile;
        let starts: Vec<_> = placements.iter().map(|at| at.start.to_string()).collect();
        let size = placements.first().map_or(0, |at| at.size);
        [
            name.to_string(),
            id.to_string(),
            format!("{}/{max_instances}", self.free),
            format!("{memory_mib} MiB"),
            multiprocessors.to_string(),
            engines.copy_engines.to_string(),
            engines.decoders.to_string(),
            engines.encoders.to_string(),
            engines.jpeg_engines.to_string(),
            engines.ofa_engines.to_string(),
            format!("{{{}}}:{size}", starts.join(",")),
        ]
    }
}
