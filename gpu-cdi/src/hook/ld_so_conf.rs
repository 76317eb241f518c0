mod reading;

use std::{io, path::Path};

use rustix::fs::{FileType, Mode};

pub(super) use self::reading::listed;
use super::{Container, Error, Result};

/// The loader's configuration.
pub(super) const FILE: &str = "/etc/ld.so.conf";
const DIR: &str = "/etc/ld.so.conf.d";
/// Before every other folder but those of CUDA's compatibility libraries.
const DRIVER: &str = "/etc/ld.so.conf.d/00-nvcr-driver.conf";
/// After every other folder.
const SYSTEM: &str = "/etc/ld.so.conf.d/zz-nvcr-system.conf";

/// Most bytes of one file of the configuration.
const LIMIT: u64 = 1 << 20;

#[cfg(target_arch = "x86_64")]
mod machine {
    pub(super) const MULTIARCH: [&str; 2] = ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu"];
    pub(super) const OTHERS: &[&str] = &["/lib64", "/usr/lib64", "/libx32", "/usr/libx32"];
    pub(super) const MUSL: &str = "/etc/ld-musl-x86_64.path";
}
#[cfg(target_arch = "aarch64")]
mod machine {
    pub(super) const MULTIARCH: [&str; 2] = ["/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu"];
    pub(super) const OTHERS: &[&str] = &["/lib64", "/usr/lib64"];
    pub(super) const MUSL: &str = "/etc/ld-musl-aarch64.path";
}

/// Adds folders to the configuration of the container that this process is in.
///
/// The host's `ldconfig` may have other folders built in than the container's distribution uses, so these are written
/// down as well, to be searched last. Musl does not read the configuration and has a file of its own.
pub(super) fn add(container: &Container, folders: &[String]) -> Result<()> {
    let system = system_folders(container);
    ensure(container)?;
    let known = listed(container);
    let mut new: Vec<&str> = Vec::new();
    for folder in folders {
        if folder.contains('\n') {
            return Err(Error::usage(format!("`--folder`: {folder:?} holds a line break")));
        }
        let folder = folder.as_str();
        if !known.contains(folder) && !system.contains(&folder) && !new.contains(&folder) {
            new.push(folder);
        }
    }
    if !new.is_empty() {
        write(container, DRIVER, &new)?;
    }
    write(container, SYSTEM, &system)?;
    if is_file(container, "/etc/alpine-release") {
        new.extend(system);
        add_for_musl(container, &new)?;
    }
    Ok(())
}

/// The folders that the container's own loader searches without being told.
fn system_folders(container: &Container) -> Vec<&'static str> {
    if is_file(container, "/etc/debian_version") {
        machine::MULTIARCH.into_iter().chain(["/lib", "/usr/lib"]).collect()
    } else {
        ["/lib", "/usr/lib"]
            .into_iter()
            .chain(machine::OTHERS.iter().copied())
            .collect()
    }
}

/// Makes a configuration where an image has none.
fn ensure(container: &Container) -> Result<()> {
    match container.root.lstat(Path::new(FILE)) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            put(container, FILE, &format!("include {DIR}/*.conf\n"))
        }
        Err(error) => Err(Error::io(format!("look at `{FILE}` in the container"))(error)),
    }
}

fn add_for_musl(container: &Container, folders: &[&str]) -> Result<()> {
    // It is read and replaced, not written into: an image could have put a link there.
    let path = Path::new(machine::MUSL);
    let regular = container.root.lstat(path).is_ok_and(|stat| is_regular(stat.st_mode));
    let present = if regular {
        container.root.read(path, LIMIT).unwrap_or_default()
    } else {
        Vec::new()
    };
    let mut content = String::from_utf8_lossy(&present).into_owned();
    if !content.is_empty() && !content.ends_with('\n') {
        content.push('\n');
    }
    for folder in folders {
        if !content.split(['\n', ':']).any(|known| known == *folder) {
            content.push_str(folder);
            content.push('\n');
        }
    }
    put(container, machine::MUSL, &content)
}

fn write(container: &Container, file: &str, folders: &[&str]) -> Result<()> {
    put(container, file, &(folders.join("\n") + "\n"))
}

fn put(container: &Container, file: &str, content: &str) -> Result<()> {
    container
        .put_file(
            Path::new(file),
            content.as_bytes(),
            Mode::from(0o644),
            Mode::from(0o755),
        )
        .map_err(Error::io(format!("write `{file}` in the container")))
}

fn is_file(container: &Container, path: &str) -> bool {
    container
        .root
        .stat(Path::new(path))
        .is_ok_and(|stat| is_regular(stat.st_mode))
}

fn is_regular(mode: u32) -> bool {
    FileType::from_raw_mode(mode) == FileType::RegularFile
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A container with these files, the folders added to it, and a file of it afterwards.
    #[track_caller]
    fn check(files: &[(&str, &str)], folders: &[&str], file: &str, expected: Option<&str>) {
        let dir = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let container = Container::open(dir.path()).unwrap();
        let folders: Vec<_> = folders.iter().map(ToString::to_string).collect();
        add(&container, &folders).unwrap();
        let content = fs::read_to_string(dir.path().join(file)).ok();
        assert_eq!(content.as_deref(), expected, "{file}");
    }

    #[cfg(target_arch = "x86_64")]
    const RED_HAT: &str = "/lib\n/usr/lib\n/lib64\n/usr/lib64\n/libx32\n/usr/libx32\n";

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn an_image_without_configuration_gets_one() {
        let folders = ["/opt/driver", "/opt/driver", "/usr/lib64"];
        check(
            &[],
            &folders,
            "etc/ld.so.conf",
            Some("include /etc/ld.so.conf.d/*.conf\n"),
        );
        check(
            &[],
            &folders,
            "etc/ld.so.conf.d/00-nvcr-driver.conf",
            Some("/opt/driver\n"),
        );
        check(&[], &folders, "etc/ld.so.conf.d/zz-nvcr-system.conf", Some(RED_HAT));
        check(&[], &folders, "etc/ld-musl-x86_64.path", None);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn what_the_loader_knows_already_is_not_added() {
        let debian = ("etc/debian_version", "13.1\n");
        let conf = ("etc/ld.so.conf", "# a comment\ninclude ld.so.conf.d/*.conf\n");
        let cuda = ("etc/ld.so.conf.d/cuda.conf", "/usr/local/cuda/lib64\n");
        let not_included = ("etc/ld.so.conf.d/other.txt", "/opt/driver\n");
        let files = [debian, conf, cuda, not_included];
        let system = "/lib/x86_64-linux-gnu\n/usr/lib/x86_64-linux-gnu\n/lib\n/usr/lib\n";
        check(
            &files,
            &["/usr/local/cuda/lib64"],
            "etc/ld.so.conf.d/00-nvcr-driver.conf",
            None,
        );
        check(
            &files,
            &["/usr/lib/x86_64-linux-gnu"],
            "etc/ld.so.conf.d/00-nvcr-driver.conf",
            None,
        );
        check(
            &files,
            &["/opt/driver"],
            "etc/ld.so.conf.d/00-nvcr-driver.conf",
            Some("/opt/driver\n"),
        );
        check(&files, &[], "etc/ld.so.conf.d/zz-nvcr-system.conf", Some(system));
        check(&files, &[], "etc/ld.so.conf", Some(conf.1));
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn musl_gets_its_own_file_with_what_was_in_it() {
        let alpine = ("etc/alpine-release", "3.22\n");
        let path = ("etc/ld-musl-x86_64.path", "/lib:/opt/lib");
        let expected = "/lib:/opt/lib\n/opt/driver\n/usr/lib\n/lib64\n/usr/lib64\n/libx32\n/usr/libx32\n";
        check(
            &[alpine, path],
            &["/opt/driver"],
            "etc/ld-musl-x86_64.path",
            Some(expected),
        );
    }
}
