use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The name of a MIG profile: `1g.10gb`, `1c.3g.40gb`, `1g.24gb+me.all`, `1g.24gb-me`.
///
/// The grammar is `[Cc.]Gg.Mgb[+a,b | -a,b]`: compute slices, GPU slices, memory in GB, and attributes that the profile has
/// (`+`) or lacks (`-`). `Cc.` is left out where it equals `Gg.`, and attributes are kept in alphabetical order, so that
/// two names of one profile are equal.
///
/// A name is no promise that a GPU offers the profile; [`Board::spec`](crate::mig::Board::spec) answers that.
///
/// ```
/// use gpu_sharing::mig::Profile;
///
/// let profile: Profile = "1c.3g.40gb".parse()?;
/// assert_eq!((profile.compute_slices(), profile.slices(), profile.memory_gb()), (1, 3, 40));
/// assert_eq!(profile.gpu_instance().as_str(), "3g.40gb");
/// assert_eq!("1c.1g.5gb+me".parse::<Profile>()?.as_str(), "1g.5gb+me");
/// # Ok::<(), gpu_sharing::mig::ParseProfileError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Profile {
    // The order of the fields is the order of profiles: by size.
    slices: u32,
    memory_gb: u32,
    compute_slices: u32,
    name: String,
}

impl Profile {
    /// The name, e.g. `1g.10gb+me`.
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// Slices of the compute instance: the `1` of `1c.3g.40gb`, or as many as the GPU instance has.
    pub fn compute_slices(&self) -> u32 {
        self.compute_slices
    }

    /// Slices of the GPU instance: the `3` of `3g.40gb`.
    pub fn slices(&self) -> u32 {
        self.slices
    }

    /// The rounded memory in the name, in GB; 0 where the GPU shares the machine's memory.
    pub fn memory_gb(&self) -> u32 {
        self.memory_gb
    }

    /// What the instance has beyond a plain one, e.g. `me`, in alphabetical order.
    pub fn attributes(&self) -> impl Iterator<Item = &str> {
        self.attributes_after('+')
    }

    /// What the instance lacks, e.g. `me`, in alphabetical order.
    pub fn without(&self) -> impl Iterator<Item = &str> {
        self.attributes_after('-')
    }

    /// The profile of the GPU instance in which this compute instance lies; itself for a whole GPU instance.
    #[must_use]
    pub fn gpu_instance(&self) -> Self {
        let name = match self.name.split_once("c.") {
            Some((_, gpu_instance)) if self.compute_slices != self.slices => gpu_instance.to_owned(),
            _ => self.name.clone(),
        };
        Self {
            compute_slices: self.slices,
            name,
            ..*self
        }
    }

    /// The name in labels and Kubernetes resource names, where `+` is not allowed: `1g.10gb.me`.
    ///
    /// ```
    /// # use gpu_sharing::mig::Profile;
    /// assert_eq!("1g.10gb+me".parse::<Profile>()?.label(), "1g.10gb.me");
    /// assert_eq!("1g.24gb-me".parse::<Profile>()?.label(), "1g.24gb-me");
    /// # Ok::<(), gpu_sharing::mig::ParseProfileError>(())
    /// ```
    pub fn label(&self) -> String {
        self.name.replace(['+', ','], ".")
    }

    /// The name that the vendor's tools derive from what NVML reports of a GPU instance profile.
    ///
    /// `nvml_constant` is the argument of `nvmlDeviceGetGpuInstanceProfileInfo` (`NVML_GPU_INSTANCE_PROFILE_*`), which says
    /// the attributes; `total_bytes` is `nvmlMemory_t.total`. The memory is rounded up to eighths of the whole GPU, and is 0
    /// where the total is (GPUs that share the machine's memory). `compute_slices` of `None` means the whole instance.
    ///
    /// ```
    /// # use gpu_sharing::mig::Profile;
    /// let total = 150_754_820_096; // an H200
    /// assert_eq!(Profile::from_nvml(0, 1, None, 16_384, total).as_str(), "1g.18gb");
    /// assert_eq!(Profile::from_nvml(7, 1, None, 16_384, total).as_str(), "1g.18gb+me");
    /// assert_eq!(Profile::from_nvml(2, 3, Some(1), 71_424, total).as_str(), "1c.3g.71gb");
    /// ```
    pub fn from_nvml(
        nvml_constant: u32,
        slices: u32,
        compute_slices: Option<u32>,
        memory_mib: u64,
        total_bytes: u64,
    ) -> Self {
        let (plus, minus) = match nvml_constant {
            7 | 8 => ("me", ""),                   // *_REV1
            0xA | 0xB | 0xC | 0x11 => ("gfx", ""), // *_GFX, Thor's 3_SLICE_GFX included
            0xD | 0xE => ("", "me"),               // *_NO_ME
            0xF | 0x10 => ("me.all", ""),          // *_ALL_ME
            _ => ("", ""),
        };
        let attributes = |names: &'static str| {
            if names.is_empty() {
                Vec::new()
            } else {
                vec![names.to_owned()]
            }
        };
        Self::from_parts(
            compute_slices.unwrap_or(slices),
            slices,
            memory_in_name(memory_mib, total_bytes),
            &attributes(plus),
            &attributes(minus),
        )
    }

    fn from_parts(compute_slices: u32, slices: u32, memory_gb: u32, plus: &[String], minus: &[String]) -> Self {
        let mut name = String::new();
        if compute_slices != slices {
            name = format!("{compute_slices}c.");
        }
        name = format!("{name}{slices}g.{memory_gb}gb");
        for (sign, attributes) in [('+', plus), ('-', minus)] {
            if !attributes.is_empty() {
                name.push(sign);
                name += &attributes.join(",");
            }
        }
        Self {
            slices,
            memory_gb,
            compute_slices,
            name,
        }
    }

    fn attributes_after(&self, sign: char) -> impl Iterator<Item = &str> {
        let list = self.name.split_once(sign).map(|(_, list)| list);
        list.into_iter().flat_map(|list| list.split(','))
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

impl AsRef<str> for Profile {
    fn as_ref(&self) -> &str {
        &self.name
    }
}

impl FromStr for Profile {
    type Err = ParseProfileError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fail = |reason| ParseProfileError {
            text: text.to_owned(),
            reason,
        };
        let (numbers, plus, minus) = match (text.split_once('+'), text.split_once('-')) {
            (Some(_), Some(_)) => return Err(fail(Reason::BothSigns)),
            (Some((numbers, list)), None) => (numbers, attributes(list).map_err(fail)?, Vec::new()),
            (None, Some((numbers, list))) => (numbers, Vec::new(), attributes(list).map_err(fail)?),
            (None, None) => (text, Vec::new(), Vec::new()),
        };
        let fields: Vec<_> = numbers.split('.').collect();
        let (compute, slices, memory) = match fields[..] {
            [slices, memory] => (None, slices, memory),
            [compute, slices, memory] => (Some(compute), slices, memory),
            _ => return Err(fail(Reason::Fields)),
        };
        let slices = number(slices, "g").ok_or_else(|| fail(Reason::Slices))?;
        let memory_gb = number(memory, "gb").ok_or_else(|| fail(Reason::Memory))?;
        let compute_slices = match compute {
            Some(compute) => number(compute, "c").ok_or_else(|| fail(Reason::Compute))?,
            None => slices,
        };
        Ok(Self::from_parts(compute_slices, slices, memory_gb, &plus, &minus))
    }
}

impl TryFrom<String> for Profile {
    type Error = ParseProfileError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Profile> for String {
    fn from(profile: Profile) -> Self {
        profile.name
    }
}

/// Decimal digits and then the unit.
fn number(field: &str, unit: &str) -> Option<u32> {
    let digits = field.strip_suffix(unit)?;
    let decimal = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    decimal.then(|| digits.parse().ok()).flatten()
}

fn attributes(list: &str) -> Result<Vec<String>, Reason> {
    let mut names: Vec<_> = list.split(',').map(str::to_owned).collect();
    let well_formed = |name: &String| {
        name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.')
            && name.starts_with(|c: char| c.is_ascii_alphabetic())
            && !name.ends_with('.')
    };
    if !names.iter().all(well_formed) {
        return Err(Reason::Attribute);
    }
    names.sort();
    if names.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(Reason::Duplicate);
    }
    Ok(names)
}

/// The number before `gb`: the memory rounded up to eighths of the GPU, times the GPU's whole GiB, half away from zero.
///
/// The denominator is 8 on every GPU, whatever its number of slots (go-nvlib v0.12.0, `mig_profile.go`).
fn memory_in_name(memory_mib: u64, total_bytes: u64) -> u32 {
    if total_bytes == 0 {
        return 0;
    }
    let memory_bytes = u128::from(memory_mib) << 20;
    let eighths = (memory_bytes * 8).div_ceil(total_bytes.into());
    let total_gib = u128::from(total_bytes).div_ceil(1 << 30);
    u32::try_from((2 * eighths * total_gib + 8) / 16).unwrap_or(u32::MAX)
}

/// A text that is no MIG profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a MIG profile: {reason}")]
pub struct ParseProfileError {
    text: String,
    reason: Reason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    Fields,
    Compute,
    Slices,
    Memory,
    BothSigns,
    Attribute,
    Duplicate,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Fields => "expected `[Cc.]Gg.Mgb`, e.g. `1g.10gb`",
            Self::Compute => "the compute slices must be a number and `c`",
            Self::Slices => "the GPU slices must be a number and `g`",
            Self::Memory => "the memory must be a number and `gb`",
            Self::BothSigns => "it has both `+` and `-` attributes",
            Self::Attribute => {
                "an attribute starts with a letter, has only letters, digits and dots, and ends in no dot"
            }
            Self::Duplicate => "an attribute is named twice",
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_grammar_is_that_of_the_vendors_tools() {
        #[track_caller]
        fn check(text: &str, canonical: Option<&str>) {
            let parsed = text.parse::<Profile>();
            assert_eq!(
                parsed.as_ref().ok().map(Profile::as_str),
                canonical,
                "{text}: {parsed:?}"
            );
        }
        check("1g.10gb", Some("1g.10gb"));
        check("1c.1g.10gb", Some("1g.10gb"));
        check("2c.3g.40gb", Some("2c.3g.40gb"));
        check("1g.0gb", Some("1g.0gb"));
        check("1g.24gb+me.all", Some("1g.24gb+me.all"));
        check("1g.24gb+me,gfx", Some("1g.24gb+gfx,me"));
        check("1g.24gb-me", Some("1g.24gb-me"));
        for bad in [
            "",
            "1g",
            "1g.10",
            "1.10gb",
            "g.10gb",
            "1g.gb",
            "1g.10GB",
            " 1g.10gb",
            "1g. 10gb",
            "1g.10gb ",
            "1x.1g.10gb",
            "1c.1c.1g.10gb",
            "1g.10gb+",
            "1g.10gb-",
            "1g.10gb+me-gfx",
            "1g.10gb+me,",
            "1g.10gb+me,me",
            "1g.10gb+.me",
            "1g.10gb+me.",
            "1g.10gb+1me",
            "1g.10gb+m e",
            "1g.10gb+me+gfx",
            "99999999999g.1gb",
            "1g.10gb.me",
            "٣g.10gb",
        ] {
            check(bad, None);
        }
    }

    #[test]
    fn the_error_says_which_part_is_wrong() {
        #[track_caller]
        fn check(text: &str, message: &str) {
            assert_eq!(text.parse::<Profile>().unwrap_err().to_string(), message);
        }
        check(
            "1g.10",
            "`1g.10` is not a MIG profile: the memory must be a number and `gb`",
        );
        check(
            "1g.5gb+me-me",
            "`1g.5gb+me-me` is not a MIG profile: it has both `+` and `-` attributes",
        );
    }

    #[test]
    fn names_follow_the_memory_that_the_driver_reports() {
        #[track_caller]
        fn check(constant: u32, slices: u32, mib: u64, total: u64, name: &str) {
            assert_eq!(Profile::from_nvml(constant, slices, None, mib, total).as_str(), name);
        }
        let h200 = 150_754_820_096;
        for (constant, slices, mib, name) in [
            (0, 1, 16_384, "1g.18gb"),
            (9, 1, 33_280, "1g.35gb"),
            (1, 2, 33_280, "2g.35gb"),
            (2, 3, 71_424, "3g.71gb"),
            (3, 4, 71_424, "4g.71gb"),
            (4, 7, 143_360, "7g.141gb"),
        ] {
            check(constant, slices, mib, h200, name);
        }
        check(0x11, 3, 0, 0, "3g.0gb+gfx"); // Thor: no memory of its own
        check(0xD, 1, 24_192, 96 << 30, "1g.24gb-me");
        check(0xF, 1, 24_192, 96 << 30, "1g.24gb+me.all");
    }

    proptest! {
        #[test]
        fn every_profile_round_trips(
            compute in 0_u32..9, slices in 0_u32..9, gb in any::<u32>(), sign in "[+-]",
            attributes in prop::collection::btree_set("[a-z]([a-z0-9.]{0,3}[a-z0-9])?", 0..3),
        ) {
            let list = attributes.iter().cloned().collect::<Vec<_>>().join(",");
            let suffix = if list.is_empty() { String::new() } else { sign + &list };
            let profile: Profile = format!("{compute}c.{slices}g.{gb}gb{suffix}").parse().unwrap();
            prop_assert_eq!(&profile.to_string().parse::<Profile>().unwrap(), &profile);
            prop_assert_eq!(serde_json::from_str::<Profile>(&serde_json::to_string(&profile).unwrap()).unwrap(), profile.clone());
            prop_assert_eq!((profile.compute_slices(), profile.slices(), profile.memory_gb()), (compute, slices, gb));
            prop_assert_eq!(profile.attributes().chain(profile.without()).collect::<Vec<_>>(), attributes.iter().map(String::as_str).collect::<Vec<_>>());
            prop_assert_eq!(profile.gpu_instance().compute_slices(), slices);
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "[0-9cgb.+,me-]{0,16}") {
            if let Ok(profile) = text.parse::<Profile>() {
                prop_assert_eq!(profile.as_str().parse::<Profile>().unwrap(), profile);
            }
        }
    }
}
