//! Configuration files, read within bounds.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::Path,
};

/// More than any has; a `ConfigMap` holds 1 MiB.
const LONGEST: u64 = 1 << 20;

/// The text of the file that device plugin and feature discovery share. What is no file is refused, because a pipe would be waited for;
/// but for `/dev/null`, by which the vendor's config manager says that there is nothing to configure.
#[cfg(any(
    test,
    feature = "device-plugin",
    feature = "feature-discovery",
    feature = "gpuctl",
    feature = "mps-daemon"
))]
pub(crate) fn read(path: &Path) -> anyhow::Result<String> {
    let what = || format!("cannot read the configuration file `{}`", path.display());
    anyhow::Context::with_context(read_file(path), what)
}

/// The text of any configuration file.
pub(crate) fn read_file(path: &Path) -> io::Result<String> {
    if path.canonicalize()? == Path::new("/dev/null") {
        return Ok(String::new());
    }
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    let mut text = String::new();
    File::open(path)?.take(LONGEST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LONGEST {
        return Err(io::Error::other("it is longer than 1 MiB"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::program;

    #[test]
    fn what_cannot_be_read_is_named_and_nothing_is_waited_for() {
        #[track_caller]
        fn check(path: &Path, expected: &str) {
            let error = program::chain(&read(path).unwrap_err());
            let expected = format!("cannot read the configuration file `{}`: {expected}", path.display());
            assert!(error.starts_with(&expected), "{error}");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("long"), vec![b'#'; (1 << 20) + 1]).unwrap();
        fs::write(path("binary"), [0xff, 0xfe, 0]).unwrap();
        assert!(Command::new("mkfifo").arg(path("pipe")).status().unwrap().success());
        check("/nowhere".as_ref(), "No such file or directory");
        check(folder.path(), "it is no file");
        check("/dev/zero".as_ref(), "it is no file");
        check(&path("pipe"), "it is no file");
        check(&path("long"), "it is longer than 1 MiB");
        check(&path("binary"), "stream did not contain valid UTF-8");
        assert_eq!(read("/dev/null".as_ref()).unwrap(), "");
    }
}
