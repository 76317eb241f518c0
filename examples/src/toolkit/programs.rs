//! The programs that containers refer to.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};

use super::{
    arguments::Arguments,
    installed_file::{Content, InstalledFile},
};

/// What is installed under which name, the vendor's and our own.
const PROGRAMS: [(&str, &str); 6] = [
    ("nvidia-container-runtime", "gpu-container-runtime"),
    ("nvidia-container-runtime.cdi", "gpu-container-runtime"),
    ("nvidia-container-runtime.legacy", "gpu-container-runtime"),
    ("nvidia-cdi-hook", "gpu-cdi-hook"),
    ("nvidia-ctk", "gpuctl"),
    ("gpuctl", "gpuctl"),
];

pub(super) const HOOK: &str = "nvidia-cdi-hook";

/// What is to be installed of programs.
///
/// # Errors
/// If one of them is missing, so that all of them are installed or none: a runtime without its hooks would be worse than no
/// runtime.
pub(super) fn find(arguments: &Arguments) -> anyhow::Result<Vec<InstalledFile>> {
    let source = match &arguments.toolkit_source_root {
        Some(folder) if !folder.as_os_str().is_empty() => folder.clone(),
        _ => beside()?,
    };
    let folder = arguments.folder();
    let program = |(name, program): (&str, &str)| {
        let from = source.join(program);
        let what = || format!("`{}`, which is to be installed", from.display());
        let status = fs::metadata(&from).with_context(|| format!("cannot find {}", what()))?;
        ensure!(status.is_file(), "{} is no file", what());
        Ok(InstalledFile {
            path: folder.join(name),
            content: Content::OfFile(from),
            mode: 0o755,
        })
    };
    PROGRAMS.into_iter().map(program).collect()
}

fn beside() -> anyhow::Result<PathBuf> {
    let own = env::current_exe().context("cannot tell where this program is")?;
    Ok(own.parent().unwrap_or(Path::new("/")).to_owned())
}
