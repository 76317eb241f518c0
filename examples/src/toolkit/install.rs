//! The programs that containers refer to, and the configuration beside them.

use std::{
    env, fs,
    fs::File,
    io::{self, BufRead as _, BufReader, Read},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use gpu_cdi::Cache;
use gpu_runtime_config::toolkit::{self, Assignment};

use super::arguments::Arguments;
use crate::{engine::Target, toolkit_config, whole_file::New};

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

/// The names in the folder that programs are installed in.
pub(super) fn names() -> impl Iterator<Item = String> {
    let config = Path::new(toolkit_config::BESIDE).join(toolkit_config::PATH);
    let programs = PROGRAMS.iter().map(|(name, _)| (*name).to_owned());
    programs.chain([config.to_string_lossy().into_owned()])
}

/// Installs the programs. What is as it should be is not touched: containers run by it.
pub(super) fn programs(arguments: &Arguments) -> anyhow::Result<()> {
    let folder = arguments.folder();
    let source = match &arguments.toolkit_source_root {
        Some(folder) if !folder.as_os_str().is_empty() => folder.clone(),
        _ => beside()?,
    };
    let from = |program: &str| source.join(program);
    // All of them or none: a runtime without its hooks would be worse than no runtime.
    for (_, program) in PROGRAMS {
        fs::metadata(from(program))
            .with_context(|| format!("cannot find `{}`, which is to be installed", from(program).display()))?;
    }
    for (name, program) in PROGRAMS {
        put(&folder.join(name), Content::OfFile(&from(program)), 0o755)?;
    }
    Ok(())
}

/// Writes the programs' configuration.
pub(super) fn configuration(arguments: &Arguments, target: &Target) -> anyhow::Result<()> {
    let folder = arguments.folder();
    let path = folder.join(toolkit_config::BESIDE).join(toolkit_config::PATH);
    let text = configuration_text(arguments, target, &folder)?;
    put(&path, Content::Text(&text), 0o644)
}

fn beside() -> anyhow::Result<PathBuf> {
    let own = env::current_exe().context("cannot tell where this program is")?;
    Ok(own.parent().unwrap_or(Path::new("/")).to_owned())
}

/// The toolkit's configuration: the vendor's defaults with what was asked for.
fn configuration_text(arguments: &Arguments, target: &Target, folder: &Path) -> anyhow::Result<String> {
    let runtimes = match arguments.nvidia_container_runtime_runtimes.as_slice() {
        [] => target.low_level_runtimes(&arguments.settings())?,
        given => given.to_vec(),
    };
    let mut settings = vec![
        format!("nvidia-container-cli.root={}", arguments.driver_root),
        format!("nvidia-ctk.path={}", folder.join("nvidia-ctk").display()),
        "nvidia-container-runtime-hook.skip-mode-detection=true".to_owned(),
        format!(
            "accept-nvidia-visible-devices-envvar-when-unprivileged={}",
            arguments.accept_nvidia_visible_devices_envvar_when_unprivileged
        ),
        format!(
            "accept-nvidia-visible-devices-as-volume-mounts={}",
            arguments.accept_nvidia_visible_devices_as_volume_mounts
        ),
        format!("nvidia-container-runtime.runtimes={}", runtimes.join(",")),
    ];
    let optional = [
        (
            "nvidia-container-runtime.debug",
            &arguments.nvidia_container_runtime_debug,
        ),
        (
            "nvidia-container-runtime.mode",
            &arguments.nvidia_container_runtime_mode,
        ),
        (
            "nvidia-container-runtime.modes.cdi.default-kind",
            &arguments.default_kind,
        ),
    ];
    for (key, value) in optional {
        let value = value.as_ref().filter(|value| !value.is_empty());
        settings.extend(value.map(|value| format!("{key}={value}")));
    }
    let specs = arguments.specs();
    if !Cache::DIRS.iter().any(|folder| Path::new(folder) == specs) {
        // The last one counts most: these specs are those that are kept up to date.
        let folders = format!("{},{}", Cache::DIRS.join(","), specs.display());
        settings.push(format!("nvidia-container-runtime.modes.cdi.spec-dirs={folders}"));
    }
    if !arguments.annotation_prefixes.is_empty() {
        let prefixes = arguments.annotation_prefixes.join(",");
        settings.push(format!(
            "nvidia-container-runtime.modes.cdi.annotation-prefixes={prefixes}"
        ));
    }
    let assignments = settings
        .iter()
        .map(|setting| Assignment::parse(setting, ","))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(toolkit::set(
        "config.toml".as_ref(),
        &toolkit::defaults(),
        &assignments,
    )?)
}

/// What a file is to hold. Programs are copied piece by piece: the daemon would keep the memory that a whole one takes.
#[derive(Debug, Clone, Copy)]
enum Content<'c> {
    Text(&'c str),
    OfFile(&'c Path),
}

impl<'c> Content<'c> {
    fn open(self) -> io::Result<Box<dyn Read + 'c>> {
        Ok(match self {
            Self::Text(text) => Box::new(text.as_bytes()),
            Self::OfFile(path) => Box::new(File::open(path)?),
        })
    }

    fn is_in(self, path: &Path) -> io::Result<bool> {
        let (mut wanted, mut found) = (BufReader::new(self.open()?), BufReader::new(File::open(path)?));
        loop {
            let (left, right) = (wanted.fill_buf()?, found.fill_buf()?);
            let length = left.len().min(right.len());
            if length == 0 || left[..length] != right[..length] {
                return Ok(left.is_empty() && right.is_empty());
            }
            wanted.consume(length);
            found.consume(length);
        }
    }
}

/// Puts a file in place, whole or not at all, if it is not there already.
fn put(path: &Path, content: Content<'_>, mode: u32) -> anyhow::Result<()> {
    let has_mode = fs::metadata(path).is_ok_and(|status| status.permissions().mode() & 0o7777 == mode);
    if has_mode && content.is_in(path).is_ok_and(|is_there| is_there) {
        return Ok(());
    }
    let Some(folder) = path.parent() else {
        bail!("`{}` is no file", path.display())
    };
    let write = || -> io::Result<()> {
        fs::create_dir_all(folder)?;
        let new = New {
            mode,
            owner: None,
            lasting: true,
        };
        new.put(path, &mut *content.open()?)
    };
    write().with_context(|| format!("cannot install `{}`", path.display()))?;
    tracing::info!("installed `{}`", path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn a_file_that_is_as_it_should_be_stays_the_same_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/program");
        let inode = || fs::metadata(&path).unwrap().ino();
        let long = "1".repeat(100_000);
        put(&path, Content::Text(&long), 0o755).unwrap();
        let first = inode();
        put(&path, Content::Text(&long), 0o755).unwrap();
        put(&path, Content::OfFile(&path), 0o755).unwrap();
        assert_eq!(inode(), first);
        for other in [&long[1..], "2"] {
            put(&path, Content::Text(other), 0o755).unwrap();
            assert_eq!(
                (
                    fs::read_to_string(&path).unwrap().as_str(),
                    fs::metadata(&path).unwrap().mode() & 0o777
                ),
                (other, 0o755)
            );
        }
        assert_eq!(fs::read_dir(folder.path().join("a")).unwrap().count(), 1);
    }
}
