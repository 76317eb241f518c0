use std::path::Path;

use clap::Args;
use gpu_cdi::{Cache, QualifiedName};
use serde::Serialize;

use super::spec_dirs::SpecDirs;
use crate::{gpuctl::output::Output, program::remark};

#[derive(Debug, Args)]
pub(in crate::gpuctl) struct List {
    #[command(flatten)]
    dirs: SpecDirs,

    /// How to print them; a table is one name a line
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

/// A device as it is listed.
#[derive(Debug, Serialize)]
struct Entry<'c> {
    device: &'c QualifiedName,
    file: Option<&'c Path>,
}

impl List {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        for folder in self.dirs.missing() {
            remark(format_args!("warning: there is no folder `{}`", folder.display()));
        }
        let cache = Cache::read(&self.dirs.paths());
        for problem in cache.problems() {
            remark(format_args!("warning: {problem}"));
        }
        remark(format_args!("Found {} CDI devices", cache.devices().count()));
        let entry = |device| Entry {
            device,
            file: cache.file_of(device),
        };
        let entries: Vec<_> = cache.devices().map(entry).collect();
        self.output.print(&entries, |entries| lines(entries))
    }
}

fn lines(entries: &[Entry<'_>]) -> String {
    let lines = entries.iter().map(|entry| format!("{}\n", entry.device));
    lines.collect()
}
