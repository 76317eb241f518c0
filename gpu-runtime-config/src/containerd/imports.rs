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
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.first(), text.first()) {
        (None, None) => true,
        (Some(b'*'), _) => {
            glob(&pattern[1..], text)
                || text
                    .first()
                    .is_some_and(|byte| *byte != b'/' && glob(pattern, &text[1..]))
        }
        (Some(b'?'), Some(byte)) => *byte != b'/' && glob(&pattern[1..], &text[1..]),
        (Some(b'['), Some(byte)) => {
            let Some(end) = pattern.iter().position(|byte| *byte == b']') else {
                return false;
            };
            let (negated, class) = match &pattern[1..end] {
                [b'^', class @ ..] => (true, class),
                class => (false, class),
            };
            *byte != b'/' && in_class(class, *byte) != negated && glob(&pattern[end + 1..], &text[1..])
        }
        (Some(b'\\'), Some(byte)) => pattern.get(1) == Some(byte) && glob(&pattern[2..], &text[1..]),
        (Some(literal), Some(byte)) => literal == byte && glob(&pattern[1..], &text[1..]),
        _ => false,
    }
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
        ] {
            assert_eq!(glob(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
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
