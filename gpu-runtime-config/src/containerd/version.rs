//! Versions of the daemon and what follows from them.

use std::{fmt, str::FromStr};

/// A version of containerd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The first number.
    pub major: u32,
    /// The second number.
    pub minor: u32,
}

impl Version {
    /// The newest version of configuration file that this daemon reads (`version/version.go` of each release).
    pub fn file_version(self) -> u32 {
        match (self.major, self.minor) {
            (..=1, _) => 2,
            (2, ..=2) => 3,
            _ => 4,
        }
    }

    /// Whether imported files are merged key by key (2.0), not table by table (`mergeConfig` in `server/config/config.go`).
    pub fn merges_deeply(self) -> bool {
        self.major >= 2
    }

    /// Whether the CRI plugin knows CDI.
    pub fn has_cdi(self) -> bool {
        self >= Version { major: 1, minor: 7 }
    }

    /// Whether CDI is on unless a file says otherwise.
    pub(crate) fn cdi_by_default(self) -> bool {
        self.major >= 2
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A text that does not begin with a version such as `1.7` or `v2.0.3-rc.1`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a version of containerd, such as `1.7` or `2.1`")]
pub struct ParseVersionError(String);

impl FromStr for Version {
    type Err = ParseVersionError;

    /// Reads `2.1`, `v1.7.24`, `1.6.20~ds1` and the like; what follows the second number does not matter.
    fn from_str(text: &str) -> Result<Version, ParseVersionError> {
        let error = || ParseVersionError(text.to_owned());
        let (major, rest) = text.trim().trim_start_matches('v').split_once('.').ok_or_else(error)?;
        let minor = &rest[..rest.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(rest.len())];
        Ok(Version {
            major: major.parse().map_err(|_| error())?,
            minor: minor.parse().map_err(|_| error())?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_daemons_print_them() {
        for (text, major, minor) in [
            ("v2.3.4", 2, 3),
            ("1.6.20~ds1", 1, 6),
            ("2.4.0-beta.0", 2, 4),
            ("1.7", 1, 7),
        ] {
            assert_eq!(text.parse(), Ok(Version { major, minor }));
        }
        assert_eq!(
            "2".parse::<Version>().unwrap_err().to_string(),
            "`2` is not a version of containerd, such as `1.7` or `2.1`"
        );
    }

    #[test]
    fn each_daemon_gets_a_file_version_that_it_reads() {
        let file_version = |text: &str| text.parse::<Version>().unwrap().file_version();
        assert_eq!(
            ["1.6", "1.7", "2.0", "2.2", "2.3", "2.4"].map(file_version),
            [2, 2, 3, 3, 4, 4]
        );
    }
}
