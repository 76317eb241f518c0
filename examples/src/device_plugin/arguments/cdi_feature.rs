use std::str::FromStr;

/// The vendor's names of what CDI files have or have not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CdiFeature {
    NoAdditionalGids,
    NoIpcSockets,
    /// Of a library or a platform that is not used here in any case.
    OfNoUse,
}

impl FromStr for CdiFeature {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "no-additional-gids-for-device-nodes" => Ok(Self::NoAdditionalGids),
            "disable-ipc-discoverer" => Ok(Self::NoIpcSockets),
            "" | "disable-nvsandboxutils" | "disable-multiple-csv-devices" => Ok(Self::OfNoUse),
            _ => Err("it is not supported by this program"),
        }
    }
}
