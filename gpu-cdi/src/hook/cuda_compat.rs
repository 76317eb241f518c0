use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use object::read::ReadCache;
use rustix::fs::{FileType, Mode, OFlags};
use serde::Deserialize;

use super::{Container, Error, Report, Result};
use crate::elf;

/// Sorts before every other file there, and before that of the driver's folders.
const CONF: &str = "/etc/ld.so.conf.d/00-compat-cuda.conf";

/// Most bytes that a compatibility library may have; real ones have some 100 MB. What is read of it is bounded in [`elf`].
const LIBRARY_LIMIT: u64 = 1 << 30;
/// The note in it, by section and owner.
pub(super) const NOTE: (&str, &str) = (".note.cuda.fwd_compatibility", "NVIDIA Corporation");
/// Most bytes of the note.
pub(super) const NOTE_LIMIT: u64 = 64 << 10;

/// What the host's driver can do, and where the container may have libraries that can do more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Compat {
    pub(super) host_driver_version: Option<String>,
    pub(super) host_cuda_version: Option<String>,
    pub(super) container_root: PathBuf,
}

impl Compat {
    pub(super) fn is_needed(&self) -> bool {
        self.host_driver_version.is_some() || self.host_cuda_version.is_some()
    }
}

/// Puts the image's CUDA compatibility libraries before the driver's, if they are made for newer CUDA than it runs.
pub(super) fn run(container: &Container, compat: &Compat, report: &mut Report) -> Result<()> {
    let dir = &compat.container_root;
    let Some(library) = library(container, dir, report)? else {
        return Ok(());
    };
    if !is_newer(container, &library, compat, report) {
        report.note(format!(
            "`{}` in the container is not for this driver",
            library.display()
        ));
        return Ok(());
    }
    let dir = container
        .root
        .resolve(dir)
        .map_err(Error::io(format!("follow `{}` in the container", dir.display())))?
        .path;
    let dir = dir
        .to_str()
        .filter(|dir| !dir.contains('\n'))
        .ok_or_else(|| Error::Malformed {
            what: format!("the container's `{}`", dir.display()),
            reason: "the loader's configuration cannot hold its name".to_owned(),
        })?;
    container
        .put_file(
            Path::new(CONF),
            format!("{dir}\n").as_bytes(),
            Mode::from(0o644),
            Mode::from(0o755),
        )
        .map_err(Error::io(format!("write `{CONF}` in the container")))?;
    report.note(format!("`{dir}` before the driver's libraries"));
    Ok(())
}

/// The one CUDA library in the folder.
fn library(container: &Container, dir: &Path, report: &mut Report) -> Result<Option<PathBuf>> {
    let names = match container.root.list(dir) {
        Ok(names) => names,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            report.note(format!("no `{}` in the container", dir.display()));
            return Ok(None);
        }
        Err(error) => return Err(Error::io(format!("list `{}` in the container", dir.display()))(error)),
    };
    let is_file = |path: &PathBuf| {
        let stat = container.root.lstat(path);
        stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
    };
    let libraries = names
        .iter()
        .filter(|name| version_of(Path::new(name)).is_some_and(|version| version.contains('.')));
    let mut libraries = libraries.map(|name| dir.join(name)).filter(is_file);
    match (libraries.next(), libraries.next()) {
        (Some(library), None) => Ok(Some(library)),
        (None, _) => {
            report.note(format!("no CUDA library in `{}`", dir.display()));
            Ok(None)
        }
        (Some(_), Some(_)) => {
            report.warn(format!(
                "more than one CUDA library in `{}` of the container: none is used",
                dir.display()
            ));
            Ok(None)
        }
    }
}

/// What follows `libcuda.so.`.
fn version_of(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()?.strip_prefix("libcuda.so.")
}

fn is_newer(container: &Container, library: &Path, compat: &Compat, report: &mut Report) -> bool {
    let mut parse = |what: &str, text: Option<&str>| {
        let text = text?;
        let version = Version::parse(text);
        if version.is_none() {
            report.warn(format!("the {what} `{text}` is not a version"));
        }
        version
    };
    let library_driver = parse("version of the compatibility library", version_of(library));
    let host_driver = parse("driver version", compat.host_driver_version.as_deref());
    let host_cuda = parse("CUDA version", compat.host_cuda_version.as_deref());
    match note(container, library) {
        Ok(Some(note)) => note.fits(library_driver, host_driver, host_cuda),
        // Without a note nothing tells which CUDA the library is for.
        Ok(None) if compat.host_cuda_version.is_some() => false,
        Ok(None) => match (library_driver, host_driver) {
            (Some(library), Some(host)) => host.major() < library.major(),
            _ => false,
        },
        Err(reason) => {
            report.warn(format!(
                "cannot read `{}` of the container: {reason}",
                library.display()
            ));
            false
        }
    }
}

/// What a compatibility library says of itself.
#[derive(Debug, Deserialize)]
struct Note {
    #[serde(rename = "CUDA Version", default)]
    cuda: String,
    /// The driver generations that it works on.
    #[serde(rename = "Driver", default)]
    drivers: Vec<u32>,
}

impl Note {
    fn fits(&self, library: Option<Version>, host_driver: Option<Version>, host_cuda: Option<Version>) -> bool {
        match (library, host_driver) {
            (Some(library), Some(host)) => self.drivers.contains(&host.major()) && library > host,
            _ => match (Version::parse(&self.cuda), host_cuda) {
                (Some(library), Some(host)) => library > host,
                _ => false,
            },
        }
    }
}

fn note(container: &Container, library: &Path) -> Result<Option<Note>, String> {
    let file = container
        .root
        .open_at(
            library,
            OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW,
            Mode::empty(),
        )
        .map_err(|error| error.to_string())?;
    let stat = rustix::fs::fstat(&file).map_err(|error| error.to_string())?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile
        || u64::try_from(stat.st_size).is_ok_and(|size| size > LIBRARY_LIMIT)
    {
        return Err("not a library".to_owned());
    }
    let cache = ReadCache::new(File::from(file));
    match elf::note(&cache, NOTE.0, NOTE.1, NOTE_LIMIT)? {
        Some(text) => {
            let text = text.split(|&b| b == 0).next().unwrap_or_default();
            serde_json::from_slice(text)
                .map(Some)
                .map_err(|error| error.to_string())
        }
        None => Ok(None),
    }
}

/// One to three numbers; what is missing is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Version([u32; 3]);

impl Version {
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = [0; 3];
        for (i, part) in text.split('.').enumerate() {
            *numbers.get_mut(i)? = part.parse().ok()?;
        }
        Some(Self(numbers))
    }

    fn major(self) -> u32 {
        self.0[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_for_the_drivers_it_names_that_are_older() {
        #[track_caller]
        fn check(note: &str, library: &str, driver: Option<&str>, cuda: Option<&str>, expected: bool) {
            let note: Note = serde_json::from_str(note).unwrap();
            let parse = |text: Option<&str>| text.and_then(Version::parse);
            assert_eq!(note.fits(Version::parse(library), parse(driver), parse(cuda)), expected);
        }
        let note = r#"{"Format": 1, "CUDA Version": "13.0", "Driver": [535, 550, 570], "Device": [1, 2]}"#;
        check(note, "580.65.06", Some("550.163.01"), None, true);
        check(note, "580.65.06", Some("560.1"), None, false);
        check(note, "550.90.07", Some("550.163.01"), None, false);
        check(note, "580.65.06", None, Some("12.4"), true);
        check(note, "580.65.06", None, Some("13.0"), false);
        check(note, "580.65.06", None, None, false);
        check("{}", "580.65.06", Some("550.163.01"), None, false);
    }
}
