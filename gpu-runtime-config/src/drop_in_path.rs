//! Paths that a drop-in can have.

use std::path::{Component, Path, PathBuf};

use crate::error::{Error, Result};

/// Refuses a drop-in that would take the place of the main file, and one whose path would be read as a pattern.
pub(crate) fn check(drop_in: &Path, main: &Path) -> Result<()> {
    if clean(drop_in) == clean(main) {
        return Err(Error::main_as_drop_in(drop_in));
    }
    let reason = if drop_in.file_name().is_none() {
        "it names no file"
    } else if drop_in.to_string_lossy().contains(['*', '?', '[', '\\']) {
        "engines take it for a pattern"
    } else {
        return Ok(());
    };
    Err(Error::NoDropIn {
        path: drop_in.to_owned(),
        reason,
    })
}

/// A path without `.` and `..`, by its text alone as Go does it.
pub(crate) fn clean(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(clean.pop()),
            Component::CurDir => {}
            other => clean.push(other),
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_main_file_and_patterns_are_no_drop_ins() {
        #[track_caller]
        fn refused(drop_in: &str, expected: &str) {
            let error = check(Path::new(drop_in), Path::new("/etc/c/config.toml")).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("`{drop_in}` cannot be a drop-in: {expected}")
            );
        }
        refused("/etc/c/config.toml", "it is the main file");
        refused("/etc/c/conf.d/../config.toml", "it is the main file");
        refused("/", "it names no file");
        for pattern in ["/etc/c/*.toml", "/etc/[c]/x.toml", "/etc/c/?.toml", "/etc/c/\\x.toml"] {
            refused(pattern, "engines take it for a pattern");
        }
        assert!(check("/etc/c/x.toml".as_ref(), "/etc/c/config.toml".as_ref()).is_ok());
    }
}
