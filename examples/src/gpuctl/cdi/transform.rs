use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};
use gpu_cdi::{Format, PathSide, Spec};

use super::output;
use crate::{
    gpuctl::input,
    program::{check_absolute, remark},
};

#[derive(Debug, Subcommand)]
pub(in crate::gpuctl) enum Transform {
    /// Moves the paths in one folder to another
    Root(Root),
}

#[derive(Debug, Args)]
pub(in crate::gpuctl) struct Root {
    /// The folder whose paths move
    #[arg(long, value_name = "PATH")]
    from: String,

    /// The folder that they move to
    #[arg(long, value_name = "PATH")]
    to: String,

    /// Whose paths move
    #[arg(long, value_enum, default_value_t = Side::Host)]
    relative_to: Side,

    /// The CDI file; `-` is standard input
    #[arg(long, default_value = "-", value_name = "PATH")]
    input: PathBuf,

    /// The file to write [default: standard output]
    #[arg(long, value_name = "PATH")]
    output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Side {
    Host,
    Container,
}

impl Transform {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let Self::Root(root) = self;
        root.run()
    }
}

impl Root {
    fn run(&self) -> anyhow::Result<()> {
        for (flag, path) in [("--from", &self.from), ("--to", &self.to)] {
            check_absolute(flag, Path::new(path))?;
        }
        let mut spec = read(&self.input)?;
        let side = match self.relative_to {
            Side::Host => PathSide::Host,
            Side::Container => PathSide::Container,
        };
        let before = spec.clone();
        spec.transform_root(&self.from, &self.to, side);
        if spec == before && self.from != self.to {
            remark(format_args!(
                "warning: no path of the {} lies in `{}`: nothing is changed",
                match self.relative_to {
                    Side::Host => "host",
                    Side::Container => "container",
                },
                self.from
            ));
        }
        spec.validate()?;
        let output = self.output.as_deref().filter(|path| !path.as_os_str().is_empty());
        output::write(&spec, output, None)?;
        Ok(())
    }
}

fn read(path: &Path) -> anyhow::Result<Spec> {
    if path != Path::new("-") {
        return Spec::read(path).with_context(|| format!("cannot use `{}`", path.display()));
    }
    // JSON is YAML too.
    Spec::from_text(&input::read(path)?, Format::Yaml).context("cannot use standard input")
}
