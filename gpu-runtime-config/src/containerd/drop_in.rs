//! The file that is wholly ours.

use super::file::{CRI_NAMES, ConfigFile};
use crate::{
    error::{Error, Result},
    toml_text::block,
    value::{Table, Value},
};

/// How a drop-in of ours begins.
const HEADER: &str = "# Written by gpu-runtime-config. Changes made here are lost when it is written again.\n";

pub(super) fn is_ours(text: &str) -> bool {
    text.starts_with(HEADER)
}

/// A drop-in that sets the CRI plugin's table.
pub(super) fn text(version: u32, cri_name: &str, cri: &Value) -> String {
    let empty = Table::new();
    let lines = block(&["plugins", cri_name], cri.as_table().unwrap_or(&empty));
    format!("{HEADER}version = {version}\n\n{}\n", lines.join("\n"))
}

/// Refuses to replace a file that configures more than the CRI plugin.
pub(super) fn check_replaceable(file: &ConfigFile) -> Result<()> {
    let foreign = |key: String| {
        Err(Error::ForeignDropIn {
            path: file.path.clone(),
            key,
        })
    };
    for (key, value) in file.value.as_table().into_iter().flatten() {
        match (key.as_str(), value) {
            ("version", _) => {}
            ("plugins", Value::Table(plugins)) => {
                if let Some(plugin) = plugins.keys().find(|plugin| !CRI_NAMES.contains(&plugin.as_str())) {
                    return foreign(format!("plugins.{plugin}"));
                }
            }
            _ => return foreign(key.clone()),
        }
    }
    Ok(())
}
