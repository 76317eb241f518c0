//! Where a CDI spec goes.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use clap::ValueEnum;
use gpu_cdi::{Format, Spec};

use crate::program::{BadUsage, print};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Notation {
    Json,
    Yaml,
}

impl From<Notation> for Format {
    fn from(notation: Notation) -> Self {
        match notation {
            Notation::Json => Self::Json,
            Notation::Yaml => Self::Yaml,
        }
    }
}

/// Writes a spec to a file, whose path is returned, or to standard output if there is none.
pub(super) fn write(spec: &Spec, output: Option<&Path>, notation: Option<Notation>) -> anyhow::Result<Option<PathBuf>> {
    let Some(path) = output else {
        let mut text = spec.to_text(notation.map_or(Format::Yaml, Format::from))?;
        if !text.ends_with('\n') {
            text.push('\n');
        }
        print(text)?;
        return Ok(None);
    };
    let path = named(path, notation)?;
    spec.write(&path)?;
    Ok(Some(path))
}

/// The path with a word before its extension: `nvidia.coherent.yaml`.
pub(super) fn with_infix(path: &Path, infix: &str) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let name = match path.extension() {
        Some(extension) => format!("{stem}.{infix}.{}", extension.to_string_lossy()),
        // The extension is still to come, and must not be taken for this word.
        None => format!("{stem}.{infix}.yaml"),
    };
    path.with_file_name(name)
}

/// The path with the extension that tells readers the notation; a name without one gets it.
fn named(path: &Path, notation: Option<Notation>) -> anyhow::Result<PathBuf> {
    let is_folder = path.is_dir() || path.as_os_str().as_encoded_bytes().ends_with(b"/");
    let bad = || BadUsage::new(format_args!("`{}` is a folder: name the file in it", path.display()));
    ensure!(!is_folder, bad());
    if path.extension().is_none() {
        return Ok(path.with_extension(match notation {
            Some(Notation::Json) => "json",
            _ => "yaml",
        }));
    }
    if let (Some(asked), Some(format)) = (notation.map(Format::from), Format::of(path)) {
        let bad = || {
            let path = path.display();
            BadUsage::new(format_args!(
                "`--format`: readers would take `{path}` for the other notation, by its name"
            ))
        };
        ensure!(asked == format, bad());
    }
    Ok(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_and_the_notation_agree() {
        let name = |path: &str, notation| named(Path::new(path), notation).map(|path| path.display().to_string());
        assert_eq!(name("/d/a", None).unwrap(), "/d/a.yaml");
        assert_eq!(name("/d/a", Some(Notation::Json)).unwrap(), "/d/a.json");
        assert_eq!(name("/d/a.json", Some(Notation::Json)).unwrap(), "/d/a.json");
        let error = name("/d/a.json", Some(Notation::Yaml)).unwrap_err();
        assert!(error.is::<BadUsage>(), "{error}");
        for folder in ["/etc", "/d/"] {
            let error = name(folder, None).unwrap_err();
            assert!(error.is::<BadUsage>());
            assert_eq!(
                error.to_string(),
                format!("`{folder}` is a folder: name the file in it")
            );
        }
    }
}
