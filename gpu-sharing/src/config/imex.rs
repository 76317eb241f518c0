use serde::Serialize;

/// Channels for memory shared between nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Imex {
    /// The channels that every container gets: none, or channel 0.
    #[serde(rename = "channelIDs", skip_serializing_if = "Vec::is_empty")]
    pub channel_ids: Vec<u32>,
    /// Whether a channel that is missing is an error, and not passed over.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
}

impl Imex {
    /// The channels, if there can be such a list: `[]` or `[0]`.
    pub(super) fn channels(ids: &[i128]) -> Result<Vec<u32>, String> {
        match ids {
            [] => Ok(Vec::new()),
            [0] => Ok(vec![0]),
            ids => {
                let found: Vec<_> = ids.iter().map(ToString::to_string).collect();
                let found = found.join(" ");
                Err(format!(
                    "invalid IMEX config: channelIDs must be [] or [0]; found [{found}]"
                ))
            }
        }
    }
}
