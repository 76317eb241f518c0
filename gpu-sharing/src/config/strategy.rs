//! The words that settings choose among.

use std::{fmt, str::FromStr};

use serde::Serialize;

/// A word that a setting does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{complaint}: {word} (expected {})", expected.join(", "))]
pub struct UnknownWord {
    complaint: &'static str,
    word: String,
    expected: Vec<&'static str>,
}

impl UnknownWord {
    pub(super) fn new(complaint: &'static str, word: &str, expected: &[&'static str]) -> Self {
        Self {
            complaint,
            word: word.to_owned(),
            expected: expected.to_vec(),
        }
    }
}

/// Defines an enumeration of words: its names, and the vendor's complaint about any other.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $complaint:literal, { $($(#[$word_doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        pub enum $name {
            $($(#[$word_doc])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// The words, in the order of the variants.
            pub const WORDS: &[&str] = &[$($word),+];

            /// The word.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = UnknownWord;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(UnknownWord::new($complaint, text, Self::WORDS)),
                }
            }
        }
    };
}

words! {
    /// What MIG devices are offered as.
    MigStrategy, "unknown MIG strategy", {
        /// Not at all: GPUs are whole.
        None = "none",
        /// As GPUs, all of one size on a node.
        Single = "single",
        /// As a resource for each profile.
        Mixed = "mixed",
    }
}

words! {
    /// How a container is told its devices.
    DeviceListStrategy, "invalid --device-list-strategy option: invalid strategy", {
        /// By the variable `NVIDIA_VISIBLE_DEVICES`, for the vendor's container runtime.
        EnvVar = "envvar",
        /// By mounts, for the vendor's container runtime.
        VolumeMounts = "volume-mounts",
        /// By annotations with CDI names.
        CdiAnnotations = "cdi-annotations",
        /// By CDI names in the kubelet's own field.
        CdiCri = "cdi-cri",
    }
}

words! {
    /// By which name a container is told its devices.
    DeviceIdStrategy, "invalid --device-id-strategy option", {
        /// The UUID.
        Uuid = "uuid",
        /// The number.
        Index = "index",
    }
}

words! {
    /// How replicas lie on GPUs.
    AllocationPolicy, "invalid --shared-devices-allocation-policy option", {
        /// On as many GPUs as there are.
        Distributed = "distributed",
        /// On as few as possible.
        Packed = "packed",
    }
}

words! {
    /// Where GPUs are looked for.
    DiscoveryStrategy, "invalid --device-discovery-strategy option", {
        /// Wherever they are found.
        Auto = "auto",
        /// In NVML.
        Nvml = "nvml",
        /// On an integrated GPU.
        Tegra = "tegra",
        /// On the PCI bus, bound to `vfio-pci` (feature discovery alone).
        Vfio = "vfio",
    }
}

/// A boolean as Go's `strconv.ParseBool` reads it.
pub(super) fn go_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "True" | "TRUE" => Ok(true),
        "0" | "f" | "F" | "false" | "False" | "FALSE" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}
