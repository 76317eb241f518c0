use serde::Deserialize;

use super::SharedResource;

/// What the file [`Root::started`](super::Root::started) says: that a daemon serves, and what.
///
/// The device plugin offers a resource once the daemon serves what the plugin is about to hand out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Agreement {
    /// A daemon of ours, and what it serves.
    Serves(SharedResource),
    /// The vendor's daemon, whose file is empty.
    Unknown,
}

/// A file that is neither ours nor the vendor's.
#[derive(Debug, thiserror::Error)]
#[error("it does not say what an MPS daemon serves")]
pub struct ParseAgreementError(#[from] serde_json::Error);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(rename = "version")]
    _version: Version,
    serves: SharedResource,
}

#[derive(Deserialize)]
enum Version {
    #[serde(rename = "v1")]
    V1,
}

impl Agreement {
    /// Reads the file's text.
    ///
    /// # Errors
    /// Where it is of another make, or of a later version of this one.
    pub fn parse(text: &str) -> Result<Self, ParseAgreementError> {
        if text.trim().is_empty() {
            return Ok(Self::Unknown);
        }
        let Written { serves, .. } = serde_json::from_str(text)?;
        Ok(Self::Serves(serves))
    }

    /// The file's text.
    pub fn to_text(&self) -> String {
        match self {
            Self::Unknown => String::new(),
            Self::Serves(serves) => format!("{}\n", serde_json::json!({ "version": "v1", "serves": serves })),
        }
    }

    /// Whether the daemon serves these GPUs with these limits; it may serve others too. Of the vendor's it is taken for granted,
    /// as the vendor's plugin does.
    pub fn covers(&self, wanted: &SharedResource) -> bool {
        match self {
            Self::Serves(serves) => {
                serves.resource == wanted.resource && wanted.gpus.iter().all(|gpu| serves.gpus.contains(gpu))
            }
            Self::Unknown => true,
        }
    }
}
