use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use anyhow::{bail, ensure};
use clap::Args;
use gpu_cdi::{Cache, Spec};

use super::spec_dirs::SpecDirs;
use crate::{
    gpuctl::count::count,
    program::{print, remark},
};

#[derive(Debug, Args)]
pub(in crate::gpuctl) struct Validate {
    /// The files [default: those of the spec folders, which are also checked for devices that two files describe]
    files: Vec<PathBuf>,

    #[command(flatten)]
    dirs: SpecDirs,
}

/// What came of looking at CDI files.
#[derive(Debug, Default)]
struct Findings {
    /// How many files were looked at.
    files: usize,
    good: Vec<(PathBuf, Spec)>,
    faults: Vec<String>,
}

impl Validate {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let findings = if self.files.is_empty() {
            if let Some(folder) = self.dirs.missing().next() {
                bail!("there is no folder `{}`", folder.display());
            }
            Findings::of_folders(&self.dirs.paths())
        } else {
            Findings::of_files(&self.files)
        };
        for (path, spec) in &findings.good {
            print(format_args!(
                "{}: {} of {}, CDI {}\n",
                path.display(),
                count(spec.devices.len(), "device"),
                spec.kind,
                spec.cdi_version
            ))?;
        }
        for fault in &findings.faults {
            remark(format_args!("error: {fault}"));
        }
        let files = count(findings.files, "file");
        ensure!(
            findings.faults.is_empty(),
            "{} in {files}",
            count(findings.faults.len(), "fault")
        );
        remark(if findings.files == 0 {
            format!("no CDI files in {}", names(&self.dirs.paths()))
        } else {
            format!("{files} with {} checked", count(findings.devices(), "device"))
        });
        Ok(())
    }
}

impl Findings {
    fn of_folders(folders: &[PathBuf]) -> Self {
        let cache = Cache::read(folders);
        let read = cache.specs().map(|(path, _)| path);
        let unread = cache.problems().iter().map(|problem| problem.path.as_path());
        let files: BTreeSet<&Path> = read.chain(unread).collect();
        let mut findings = Self {
            files: files
                .into_iter()
                .filter(|path| folders.iter().all(|folder| folder != path))
                .count(),
            good: Vec::new(),
            faults: cache.problems().iter().map(ToString::to_string).collect(),
        };
        for (path, spec) in cache.specs() {
            findings.check(path, spec.clone());
        }
        findings
    }

    fn of_files(files: &[PathBuf]) -> Self {
        let mut findings = Self {
            files: files.len(),
            ..Self::default()
        };
        for path in files {
            match Spec::read(path) {
                Ok(spec) => findings.check(path, spec),
                Err(error) => {
                    let fault = format!("`{}`: {:#}", path.display(), anyhow::Error::new(error));
                    findings.faults.push(fault);
                }
            }
        }
        findings
    }

    /// Holds a spec to the rules that its readers are lax about.
    fn check(&mut self, path: &Path, spec: Spec) {
        match spec.validate() {
            Ok(()) => self.good.push((path.to_owned(), spec)),
            Err(error) => self.faults.push(format!("`{}`: {error}", path.display())),
        }
    }

    fn devices(&self) -> usize {
        self.good.iter().map(|(_, spec)| spec.devices.len()).sum()
    }
}

fn names(folders: &[PathBuf]) -> String {
    let names: Vec<_> = folders.iter().map(|folder| format!("`{}`", folder.display())).collect();
    names.join(", ")
}
