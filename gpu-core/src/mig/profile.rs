use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The name of a MIG profile: `1g.10gb`, `1g.10gb+me`, `1g.24gb-me`, `1c.3g.40gb`.
///
/// ```
/// let profile: gpu_core::MigProfile = "1c.3g.40gb+me".parse()?;
/// assert_eq!((profile.compute_slices(), profile.gpu_slices(), profile.memory_gb()), (1, 3, 40));
/// assert_eq!(profile.attributes(), ["me"]);
/// assert!("1g.40".parse::<gpu_core::MigProfile>().is_err());
/// # Ok::<(), gpu_core::ParseMigProfileError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub struct MigProfile {
    gpu_slices: u32,
    compute_slices: u32,
    memory_gb: u64,
    suffix: Option<Suffix>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Suffix {
    without: bool,
    /// Sorted, unique, not empty.
    attributes: Vec<String>,
}

impl MigProfile {
    /// The name of a profile as NVIDIA's tools compute it (go-nvlib, `pkg/nvlib/device/mig_profile.go`).
    ///
    /// `constant` is NVML's `NVML_GPU_INSTANCE_PROFILE_*` of the GPU instance, `memory_mib` its memory, and `total_bytes` the
    /// framebuffer of the whole GPU. The memory in the name is a number of eighths of it, whatever the number of slots. A GPU
    /// without memory of its own has `total_bytes` 0, and its names end in `0gb`.
    pub fn derive(constant: u32, gpu_slices: u32, compute_slices: u32, memory_mib: u64, total_bytes: u64) -> Self {
        let attribute = match constant {
            7 | 8 => Some((false, "me")),
            15 | 16 => Some((false, "me.all")),
            10..=12 | 17 => Some((false, "gfx")),
            13 | 14 => Some((true, "me")),
            _ => None,
        };
        Self {
            gpu_slices,
            compute_slices,
            memory_gb: rounded_gb(memory_mib, total_bytes),
            suffix: attribute.map(|(without, name)| Suffix {
                without,
                attributes: vec![name.to_owned()],
            }),
        }
    }

    /// Compute slices of the GPU instance: 3 in `1c.3g.40gb`.
    pub fn gpu_slices(&self) -> u32 {
        self.gpu_slices
    }

    /// Compute slices of the compute instance: 1 in `1c.3g.40gb`, as many as the GPU instance's where it is not said.
    pub fn compute_slices(&self) -> u32 {
        self.compute_slices
    }

    /// Memory in GB, rounded as names are: 40 in `1c.3g.40gb`.
    pub fn memory_gb(&self) -> u64 {
        self.memory_gb
    }

    /// The attributes that it has (`+me`), sorted.
    pub fn attributes(&self) -> &[String] {
        self.suffix(false)
    }

    /// The attributes that it lacks (`-me`), sorted.
    pub fn missing_attributes(&self) -> &[String] {
        self.suffix(true)
    }

    /// The profile of the whole GPU instance: `3g.40gb` for `1c.3g.40gb`.
    #[must_use]
    pub fn whole(&self) -> Self {
        Self {
            compute_slices: self.gpu_slices,
            ..self.clone()
        }
    }

    /// The same with that many compute slices for the compute instance.
    #[must_use]
    pub fn with_compute_slices(&self, compute_slices: u32) -> Self {
        Self {
            compute_slices,
            ..self.clone()
        }
    }

    fn suffix(&self, without: bool) -> &[String] {
        match &self.suffix {
            Some(suffix) if suffix.without == without => &suffix.attributes,
            _ => &[],
        }
    }
}

/// Eighths of the total, rounded up, times the total in GiB, rounded up; then to the nearest whole number.
fn rounded_gb(memory_mib: u64, total_bytes: u64) -> u64 {
    if total_bytes == 0 {
        return 0;
    }
    let memory = u128::from(memory_mib) << 20;
    let eighths = (memory * 8).div_ceil(u128::from(total_bytes));
    let total_gib = u128::from(total_bytes.div_ceil(1 << 30));
    u64::try_from((eighths * total_gib + 4) / 8).unwrap_or(u64::MAX)
}

impl fmt::Display for MigProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let compute = match self.compute_slices {
            slices if slices == self.gpu_slices => String::new(),
            slices => format!("{slices}c."),
        };
        let suffix = self.suffix.as_ref().map_or_else(String::new, |suffix| {
            let sign = if suffix.without { '-' } else { '+' };
            format!("{sign}{}", suffix.attributes.join(","))
        });
        f.pad(&format!("{compute}{}g.{}gb{suffix}", self.gpu_slices, self.memory_gb))
    }
}

impl FromStr for MigProfile {
    type Err = ParseMigProfileError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).map_err(|expected| ParseMigProfileError {
            text: text.to_owned(),
            expected,
        })
    }
}

fn parse(text: &str) -> Result<MigProfile, &'static str> {
    const FORM: &str = "e.g. `1g.10gb`, `1c.3g.40gb` or `1g.10gb+me`";
    let (sizes, suffix) = match text.find(['+', '-']) {
        Some(at) => (&text[..at], Some(parse_suffix(&text[at..])?)),
        None => (text, None),
    };
    let number = |part: &str, unit: &str| {
        let digits = part.strip_suffix(unit)?;
        let valid = digits.bytes().all(|b| b.is_ascii_digit());
        valid.then(|| digits.parse::<u64>().ok()).flatten()
    };
    let slices = |part: &str, unit: &str| {
        number(part, unit)
            .and_then(|number| u32::try_from(number).ok())
            .filter(|number| *number > 0)
            .ok_or(FORM)
    };
    let parts: Vec<_> = sizes.split('.').collect();
    let (compute, gpu, memory) = match *parts.as_slice() {
        [gpu, memory] => (None, gpu, memory),
        [compute, gpu, memory] => (Some(compute), gpu, memory),
        _ => return Err(FORM),
    };
    let gpu_slices = slices(gpu, "g")?;
    Ok(MigProfile {
        gpu_slices,
        compute_slices: compute.map_or(Ok(gpu_slices), |compute| slices(compute, "c"))?,
        memory_gb: number(memory, "gb").ok_or(FORM)?,
        suffix,
    })
}

/// `+a,b` or `-a,b`.
fn parse_suffix(text: &str) -> Result<Suffix, &'static str> {
    let (sign, names) = text.split_at(1);
    if names.contains(['+', '-']) {
        return Err("attributes after one `+` or one `-`, not both");
    }
    let valid = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic())
            && !name.ends_with('.')
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.')
    };
    let mut attributes: Vec<_> = names.split(',').map(ToOwned::to_owned).collect();
    if !attributes.iter().all(|name| valid(name)) {
        return Err("attributes of letters, digits and dots that begin with a letter");
    }
    attributes.sort_unstable();
    if attributes.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err("each attribute once");
    }
    Ok(Suffix {
        without: sign == "-",
        attributes,
    })
}

impl TryFrom<String> for MigProfile {
    type Error = ParseMigProfileError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<MigProfile> for String {
    fn from(profile: MigProfile) -> Self {
        profile.to_string()
    }
}

/// A text that is no MIG profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a MIG profile: expected {expected}")]
pub struct ParseMigProfileError {
    text: String,
    expected: &'static str,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn names_follow_from_the_memory_of_the_whole_gpu() {
        #[track_caller]
        fn check(constant: u32, slices: u32, memory_mib: u64, total_bytes: u64, expected: &str) {
            let profile = MigProfile::derive(constant, slices, slices, memory_mib, total_bytes);
            assert_eq!(profile.to_string(), expected);
            assert_eq!(expected.parse::<MigProfile>().unwrap(), profile);
        }
        const H200: u64 = 150_754_820_096; // measured, as are its profiles' sizes
        check(0, 1, 16384, H200, "1g.18gb");
        check(7, 1, 16384, H200, "1g.18gb+me");
        check(9, 1, 33280, H200, "1g.35gb");
        check(1, 2, 33280, H200, "2g.35gb");
        check(2, 3, 71424, H200, "3g.71gb");
        check(3, 4, 71424, H200, "4g.71gb");
        check(4, 7, 143_360, H200, "7g.141gb");
        check(2, 3, 19968, 40 * GIB, "3g.20gb");
        check(0, 1, 4864, 40 * GIB, "1g.5gb");
        check(2, 3, 39936, 79 * GIB, "3g.40gb"); // more than 4 eighths of what this driver calls the total: 5 of them
        check(0, 1, 5000, 0, "1g.0gb"); // memory shared with the machine
        check(10, 1, 24192, 96 * GIB, "1g.24gb+gfx");
        check(13, 1, 24192, 96 * GIB, "1g.24gb-me");
        check(15, 1, 24192, 96 * GIB, "1g.24gb+me.all");
        check(17, 3, 0, 0, "3g.0gb+gfx"); // Thor: go-nvlib has no name for this constant
    }

    #[test]
    fn a_compute_instance_that_is_smaller_is_named_first() {
        let profile = MigProfile::derive(2, 3, 1, 71424, 141 * GIB);
        assert_eq!(profile.to_string(), "1c.3g.71gb");
        assert_eq!(profile.whole().to_string(), "3g.71gb");
        assert_eq!(profile.whole().with_compute_slices(2).to_string(), "2c.3g.71gb");
    }

    #[test]
    fn what_is_no_profile_is_refused_with_the_reason() {
        #[track_caller]
        fn check(text: &str, expected: &str) {
            let error = text.parse::<MigProfile>().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        for text in [
            "",
            "1g",
            "1g.10",
            "g.10gb",
            "1g.gb ",
            "1g.10gb.",
            "1c.1g.10gb.1",
            "+1g.10gb",
            "0g.10gb",
        ] {
            check(text, "is not a MIG profile");
        }
        check("1g.10gb+me-me", "not both");
        check("1g.10gb+", "begin with a letter");
        check("1g.10gb+me,", "begin with a letter");
        check("1g.10gb+1me", "begin with a letter");
        check("1g.10gb+me,me", "each attribute once");
        check("99999999999g.10gb", "is not a MIG profile");
    }

    #[test]
    fn attributes_are_a_set() {
        let profile: MigProfile = "1g.10gb+me,gfx".parse().unwrap();
        assert_eq!(profile.attributes(), ["gfx", "me"]);
        assert_eq!(profile.to_string(), "1g.10gb+gfx,me");
        assert!(profile.missing_attributes().is_empty());
        let profile: MigProfile = "1g.24gb-me".parse().unwrap();
        assert_eq!(profile.missing_attributes(), ["me"]);
        assert!(profile.attributes().is_empty());
    }

    proptest! {
        #[test]
        fn any_text_parses_or_is_refused(text in "[0-9cg.b+\\-a-z,]{0,24}|.*") {
            if let Ok(profile) = text.parse::<MigProfile>() {
                prop_assert_eq!(profile.to_string().parse::<MigProfile>().unwrap(), profile);
            }
        }

        #[test]
        fn any_sizes_have_a_name_that_parses(constant in 0u32..20, slices: u32, memory: u64, total: u64) {
            let profile = MigProfile::derive(constant, slices.max(1), slices.max(1), memory, total);
            prop_assert_eq!(profile.to_string().parse::<MigProfile>().unwrap(), profile);
        }
    }
}
