//! One file as containerd reads it.

use std::path::{Path, PathBuf};

use super::Version;
use crate::{
    error::{Error, Position, Result},
    splice::BOM,
    toml_text::TomlText,
    value::Value,
};

/// The newest version of file that is known.
const NEWEST: u32 = 4;

#[derive(Debug, Clone)]
pub(super) struct ConfigFile {
    pub(super) path: PathBuf,
    /// 1 if the file names none.
    pub(super) version: u32,
    pub(super) value: Value,
}

impl ConfigFile {
    /// Reads a file and refuses one that this crate, the daemon or the CRI plugin cannot use.
    pub(super) fn read(path: &Path, text: &str, daemon: Option<Version>) -> Result<ConfigFile> {
        ConfigFile::of(&TomlText::parse(path, text)?, daemon)
    }

    /// The same of a text that was parsed before.
    pub(super) fn of(toml: &TomlText<'_>, daemon: Option<Version>) -> Result<ConfigFile> {
        let path = toml.path();
        // Seen with 2.3.7, which ends with an error; 1.6.20 reads it.
        if toml.text().starts_with(BOM) && daemon.is_some_and(Version::merges_deeply) {
            return Err(Error::Syntax {
                path: path.to_owned(),
                position: Position { line: 1, column: 1 },
                format: "TOML",
                message: "containerd 2 does not read a byte order mark".to_owned(),
            });
        }
        let value = Value::Table(toml.to_table());
        let version = version(path, toml, &value)?;
        if let Some(daemon) = daemon.filter(|daemon| version > daemon.file_version()) {
            return Err(Error::DaemonTooOld {
                path: path.to_owned(),
                version,
                daemon: daemon.to_string(),
            });
        }
        let disabled = value
            .get(&["disabled_plugins"])
            .and_then(Value::as_array)
            .unwrap_or_default();
        for (index, plugin) in disabled.iter().enumerate() {
            if let Some(plugin) = plugin.as_str().filter(|plugin| CRI_NAMES.contains(plugin)) {
                let position = toml.element_position(&["disabled_plugins"], index);
                return Err(Error::CriDisabled {
                    path: path.to_owned(),
                    position,
                    plugin: plugin.to_owned(),
                });
            }
        }
        Ok(ConfigFile {
            path: path.to_owned(),
            version,
            value,
        })
    }

    /// The same file with other contents of the same version.
    pub(super) fn with(&self, value: Value) -> ConfigFile {
        ConfigFile {
            path: self.path.clone(),
            version: self.version,
            value,
        }
    }

    /// What the CRI plugin's table is called in a file of this version.
    pub(super) fn cri_name(&self) -> &'static str {
        CRI_NAMES[self.version.clamp(1, 3) as usize - 1]
    }

    pub(super) fn cri(&self) -> Option<&Value> {
        self.value.get(&["plugins", self.cri_name()])
    }
}

/// The name of the CRI plugin's table in files of version 1, 2, and 3 or 4.
pub(super) const CRI_NAMES: [&str; 3] = ["cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"];

fn version(path: &Path, toml: &TomlText<'_>, value: &Value) -> Result<u32> {
    let position = || toml.position(&["version"]);
    match value.get(&["version"]) {
        None => Ok(1),
        Some(Value::Number(text)) => match text.parse::<u32>() {
            Ok(0) => Ok(1), // what Go reads where there is none
            Ok(version) if version <= NEWEST => Ok(version),
            _ if text.starts_with('-') || text.contains('.') => Err(wrong_version(path, position(), "another number")),
            _ => Err(Error::UnknownVersion {
                path: path.to_owned(),
                position: position(),
                found: text.clone(),
                newest: NEWEST,
            }),
        },
        Some(other) => Err(wrong_version(path, position(), other.kind())),
    }
}

fn wrong_version(path: &Path, position: Position, found: &'static str) -> Error {
    Error::WrongType {
        path: path.to_owned(),
        position,
        key: "version".to_owned(),
        expected: "a version number",
        found,
    }
}
