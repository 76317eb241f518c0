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
    /// Reads a list of channels, in brackets or without: `0`, `[0]`, or nothing.
    ///
    /// # Errors
    /// For any other list, in the vendor's words.
    pub fn parse_channels(text: &str) -> Result<Vec<u32>, String> {
        let inner = text.trim().trim_start_matches('[').trim_end_matches(']');
        let numbers: Result<Vec<i128>, _> = inner
            .split(',')
            .map(str::trim)
            .filter(|number| !number.is_empty())
            .map(str::parse)
            .collect();
        Self::channels(&numbers.map_err(|_| "expected numbers joined by commas".to_owned())?)
    }

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
