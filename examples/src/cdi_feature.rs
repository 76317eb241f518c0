use std::{fmt, str::FromStr};

/// What CDI files have or have not, by the vendor's names of it (`--feature-flag`, `--cdi-feature-flags`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CdiFeature {
    NoAdditionalGids,
    NoIpcSockets,
    ExplicitLibraries,
    CoherentAnnotations,
    /// What is so in any case: a library that is not used here is not used, mode csv has one device, and groups are added.
    SoAnyway,
}

/// All names, as the vendor has them.
const NAMES: [(&str, CdiFeature); 7] = [
    ("enable-explicit-driver-libraries", CdiFeature::ExplicitLibraries),
    ("enable-coherent-annotations", CdiFeature::CoherentAnnotations),
    ("no-additional-gids-for-device-nodes", CdiFeature::NoAdditionalGids),
    ("disable-ipc-discoverer", CdiFeature::NoIpcSockets),
    ("disable-nvsandboxutils", CdiFeature::SoAnyway),
    ("disable-multiple-csv-devices", CdiFeature::SoAnyway),
    ("allow-additional-gids-for-device-nodes", CdiFeature::SoAnyway),
];

impl FromStr for CdiFeature {
    type Err = UnknownFeature;

    /// An empty name asks for nothing: manifests leave variables empty.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match NAMES.iter().find(|(name, _)| *name == text) {
            Some((_, feature)) => Ok(*feature),
            None if text.is_empty() => Ok(Self::SoAnyway),
            None => Err(UnknownFeature),
        }
    }
}

/// A name that is none of a feature.
#[derive(Debug)]
pub(crate) struct UnknownFeature;

impl std::error::Error for UnknownFeature {}

impl fmt::Display for UnknownFeature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected ")?;
        for (index, (name, _)) in NAMES.iter().enumerate() {
            let before = match index {
                0 => "",
                _ if index + 1 == NAMES.len() => " or ",
                _ => ", ",
            };
            write!(f, "{before}{name}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_known_and_another_is_told_them_all() {
        for (name, feature) in NAMES {
            assert_eq!(name.parse::<CdiFeature>().unwrap(), feature);
        }
        assert_eq!("".parse::<CdiFeature>().unwrap(), CdiFeature::SoAnyway);
        let error = "enable-everything".parse::<CdiFeature>().unwrap_err().to_string();
        assert!(NAMES.iter().all(|(name, _)| error.contains(name)), "{error}");
    }
}
