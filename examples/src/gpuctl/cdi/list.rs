use clap::{Args, ValueEnum};
use gpu_cdi::Cache;
use serde_json::json;

use super::spec_dirs::SpecDirs;
use crate::program::{print, remark};

#[derive(Debug, Args)]
pub(in crate::gpuctl) struct List {
    #[command(flatten)]
    dirs: SpecDirs,

    /// How to print them; a table is one name a line
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Output {
    Json,
    Yaml,
    Table,
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
        let entries = || {
            let entry = |name| json!({ "device": name, "file": cache.file_of(name) });
            cache.devices().map(entry).collect::<Vec<_>>()
        };
        print(match self.output {
            Output::Table => lines(&cache),
            Output::Json => serde_json::to_string_pretty(&entries())? + "\n",
            Output::Yaml => serde_saphyr::to_string(&entries())?,
        })
    }
}

fn lines(cache: &Cache) -> String {
    let mut text = String::new();
    for name in cache.devices() {
        text.push_str(&name.to_string());
        text.push('\n');
    }
    text
}
