use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use gpu_cdi::{Cache, Spec};

use super::list::SpecDirs;
use crate::program::{print, remark};

#[derive(Debug, Args)]
pub(in crate::gpuctl) struct Validate {
    /// The files [default: those of the spec folders, which are also checked for devices that two files describe]
    files: Vec<PathBuf>,

    #[command(flatten)]
    dirs: SpecDirs,
}

impl Validate {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let mut bad = 0;
        let mut complain = |text: String| {
            bad += 1;
            remark(format_args!("error: {text}"));
        };
        let mut good = Vec::new();
        if self.files.is_empty() {
            let cache = Cache::read(&self.dirs.spec_dirs);
            cache
                .problems()
                .iter()
                .for_each(|problem| complain(problem.to_string()));
            good.extend(cache.specs().map(|(path, spec)| (path.to_owned(), spec.clone())));
        } else {
            for path in &self.files {
                match Spec::read(path) {
                    Ok(spec) => good.push((path.clone(), spec)),
                    Err(error) => complain(format!("`{}`: {:#}", path.display(), anyhow::Error::new(error))),
                }
            }
        }
        for (path, spec) in good {
            match spec.validate() {
                Ok(()) => print(format_args!(
                    "{}: {} devices of {}, CDI {}\n",
                    path.display(),
                    spec.devices.len(),
                    spec.kind,
                    spec.cdi_version
                ))?,
                Err(error) => complain(format!("`{}`: {error}", path.display())),
            }
        }
        if bad > 0 {
            bail!("{bad} faults in CDI files");
        }
        Ok(())
    }
}
