//! Which files a file imports, as containerd resolves it.

use std::path::{Path, PathBuf};

use super::file::ConfigFile;
use crate::{drop_in_path::clean, error::Result, toml_text, value::Value};

/// The absolute paths and patterns that a file imports, in order.
///
/// A path with `*` is a pattern whose matches are merged in alphabetical order, any other is one file. containerd goes
/// through the main file, then the files that it imports, then those that these import; a file counts once.
///
/// # Errors
/// [`Error::Syntax`](crate::Error::Syntax) and [`Error::Template`](crate::Error::Template).
pub fn imports(path: &Path, text: &str) -> Result<Vec<PathBuf>> {
    let value = Value::Table(toml_text::meaning(path, text)?);
    Ok(resolve(path, &value))
}

fn resolve(path: &Path, value: &Value) -> Vec<PathBuf> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let imports = value.get(&["imports"]).and_then(Value::as_array).unwrap_or_default();
    imports
        .iter()
        .filter_map(Value::as_str)
        .map(|import| clean(&directory.join(import)))
        .collect()
}

/// Which of the file's imports matches a path, the first counting.
pub(super) fn matching(file: &ConfigFile, path: &Path) -> Option<usize> {
    resolve(&file.path, &file.value)
        .iter()
        .position(|import| import_matches(import, path))
}

fn import_matches(import: &Path, path: &Path) -> bool {
    match (import.to_str(), path.to_str()) {
        (Some(import), Some(path)) if import.contains('*') => glob(import.as_bytes(), path.as_bytes()),
        _ => import == path,
    }
}

/// Whether one component of a path matches one of a pattern.
#[cfg(feature = "apply")]
pub(crate) fn name_matches(pattern: &std::ffi::OsStr, name: &std::ffi::OsStr) -> bool {
    glob(pattern.as_encoded_bytes(), name.as_encoded_bytes())
}

/// What to import so that a drop-in is.
pub(super) fn pattern(drop_in: &Path) -> String {
    let pattern = match (drop_in.parent(), drop_in.extension()) {
        (Some(directory), Some(extension)) if extension == "toml" => directory.join("*.toml"),
        _ => drop_in.to_owned(),
    };
    pattern.display().to_string()
}

/// Where among the imported files, given in merge order, a drop-in comes.
pub(super) fn place(main: &ConfigFile, drop_in: &Path, imported: &[&ConfigFile]) -> usize {
    let Some(own) = matching(main, drop_in) else {
        return imported.len();
    };
    // Files that only imported files import come last.
    let rank = |file: &&ConfigFile| matching(main, &file.path).unwrap_or(usize::MAX);
    imported
        .iter()
        .position(|file| (rank(file), file.path.as_path()) > (own, drop_in))
        .unwrap_or(imported.len())
}

/// Matches a pattern with `*`, `?`, `[…]` and `\`, none of which matches `/`, as Go's `filepath.Match`.
fn glob<'a>(mut pattern: &'a [u8], mut text: &'a [u8]) -> bool {
    // Where to go on if the last star stands for one byte more; those before it need not be tried again.
    let mut star = None;
    loop {
        if let [b'*', rest @ ..] = pattern {
            pattern = rest;
            star = Some((rest, text));
        } else if pattern.is_empty() && text.is_empty() {
            return true;
        } else if let Some(rest) = without_first(pattern, text) {
            (pattern, text) = rest;
        } else if let Some((after, [byte, rest @ ..])) = star
            && *byte != b'/'
        {
            (pattern, text) = (after, rest);
            star = Some((after, rest));
        } else {
            return false;
        }
    }
}

/// What is left of both if the first byte fits what the pattern begins with, which is no star.
fn without_first<'a>(pattern: &'a [u8], text: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let (byte, text) = text.split_first()?;
    let (fits, pattern) = match pattern {
        [b'?', rest @ ..] => (*byte != b'/', rest),
        [b'[', rest @ ..] => {
            let end = rest.iter().position(|byte| *byte == b']')?;
            let (negated, class) = match &rest[..end] {
                [b'^', class @ ..] => (true, class),
                class => (false, class),
            };
            (*byte != b'/' && in_class(class, *byte) != negated, &rest[end + 1..])
        }
        [] | [b'\\'] => return None,
        [b'\\', literal, rest @ ..] | [literal, rest @ ..] => (literal == byte, rest),
    };
    fits.then_some((pattern, text))
}

fn in_class(class: &[u8], byte: u8) -> bool {
    match class {
        [low, b'-', high, rest @ ..] => (*low..=*high).contains(&byte) || in_class(rest, byte),
        [one, rest @ ..] => *one == byte || in_class(rest, byte),
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_go_does() {
        for (pattern, text, expected) in [
            ("/etc/c/*.toml", "/etc/c/99-nvidia.toml", true),
            ("/etc/c/*.toml", "/etc/c/sub/x.toml", false),
            ("/etc/*/9?-*.toml", "/etc/c/99-n.toml", true),
            ("/e/[a-c]*", "/e/bx", true),
            ("/e/[^a-c]*", "/e/bx", false),
            ("/e/*", "/e/", true),
            ("/*/a*b/*c", "/xa/aab/bc", true),
            ("/*a*b", "/xa/b", false),
            ("/a\\*b", "/a*b", true),
            ("/a\\*b", "/acb", false),
            ("/a\\", "/a\\", false),
            ("/e/[a", "/e/a", false),
        ] {
            assert_eq!(glob(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_take_no_time() {
        let (pattern, text) = ("*a".repeat(30) + "b", "a".repeat(250));
        assert!(!glob(pattern.as_bytes(), text.as_bytes()));
    }

    #[test]
    fn imports_are_relative_to_the_file() {
        let found = imports(
            Path::new("/etc/containerd/config.toml"),
            "imports = ['conf.d/*.toml', '../x.toml', '/y']\n",
        );
        let expected = ["/etc/containerd/conf.d/*.toml", "/etc/x.toml", "/y"].map(PathBuf::from);
        assert_eq!(found.unwrap(), expected);
    }
}
