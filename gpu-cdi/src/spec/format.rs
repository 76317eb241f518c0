use std::path::Path;

use serde_saphyr::SerializerOptions;

use super::Spec;
use crate::{Error, Result};

/// The two notations of a CDI file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// `.json`
    Json,
    /// `.yaml`
    Yaml,
}

impl Format {
    /// The notation of a file by its extension; CDI readers look at `.json` and `.yaml` only, not at `.yml`.
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "json" => Some(Self::Json),
            "yaml" => Some(Self::Yaml),
            _ => None,
        }
    }
}

impl Spec {
    /// The text of this spec, keys in CDI's order.
    ///
    /// YAML starts with `---`; JSON is one line without a line break at its end, as the CDI library writes them.
    ///
    /// # Errors
    /// Never for YAML or JSON of a spec as such; the serialiser's word if it refuses one all the same.
    pub fn to_text(&self, format: Format) -> Result<String> {
        match format {
            Format::Json => serde_json::to_string(self).map_err(|error| Error::Encode {
                reason: error.to_string(),
            }),
            Format::Yaml => serde_saphyr::to_string_with_options(self, yaml_options())
                .map(|text| format!("---\n{text}"))
                .map_err(|error| Error::Encode {
                    reason: error.to_string(),
                }),
        }
    }

    /// Reads a spec; an unknown key is an error, as for every CDI reader.
    ///
    /// The rules of CDI are not checked: see [`validate`](Self::validate).
    ///
    /// # Errors
    /// [`Error::Parse`] with line and column.
    pub fn from_text(text: &str, format: Format) -> Result<Self> {
        match format {
            Format::Json => serde_json::from_str(text).map_err(|error| Error::Parse {
                reason: error.to_string(),
            }),
            Format::Yaml => serde_saphyr::from_str(text).map_err(|error| Error::Parse {
                reason: error.to_string(),
            }),
        }
    }
}

/// Block lists, and long arguments on one line each: people read and grep these files.
fn yaml_options() -> SerializerOptions {
    serde_saphyr::ser_options! {
        compact_list_indent: false,
        prefer_block_scalars: false,
    }
}
