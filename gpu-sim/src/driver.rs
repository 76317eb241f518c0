use std::{collections::HashMap, sync::LazyLock};

use crate::{Error, Result};

/// A driver version that can be simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Driver {
    /// First number of the version; what `--driver` takes for short.
    pub branch: &'static str,
    /// The full version.
    pub version: &'static str,
    /// The newest CUDA version it supports, major and minor.
    pub cuda: (i32, i32),
    /// What `nvmlSystemGetDriverBranch` answers, where it was measured.
    pub build_branch: Option<&'static str>,
}

impl Driver {
    /// NVML's own version: CUDA's major version before the driver's (measured: `13.580.159.04`).
    pub fn nvml_version(&self) -> String {
        format!("{}.{}", self.cuda.0, self.version)
    }

    fn major(&self) -> u32 {
        self.branch.parse().unwrap_or(0)
    }

    /// Whether its library lacks a function that a later one has.
    pub(crate) fn lacks(&self, function: &str) -> bool {
        SINCE.get(function).is_some_and(|since| !self.is_at_least(*since))
    }

    /// Whether it is of this branch or a later one.
    pub(crate) fn is_at_least(&self, branch: u32) -> bool {
        self.major() >= branch
    }

    /// Whether a board says what it can be partitioned into while MIG mode is off (measured with 580).
    pub(crate) fn tells_profiles_always(&self) -> bool {
        self.is_at_least(550)
    }

    /// How many `NVML_GPU_INSTANCE_PROFILE_…` the driver knows (580: measured).
    pub(crate) fn gpu_instance_profiles(&self) -> u32 {
        match self.major() {
            ..535 => 8,
            535..575 => 10,
            575..610 => 17,
            _ => 18,
        }
    }

    /// How many `NVML_COMPUTE_INSTANCE_PROFILE_…` the driver knows.
    pub(crate) fn compute_instance_profiles(&self) -> u32 {
        match self.major() {
            ..535 => 7,
            535..610 => 8,
            _ => 9,
        }
    }

    /// CUDA's version as one number: 12040 is 12.4.
    pub fn cuda_number(&self) -> i32 {
        self.cuda.0 * 1000 + self.cuda.1 * 10
    }
}

/// Functions that came after branch 470, each with the first branch whose `nvml.h` has it.
static SINCE: LazyLock<HashMap<&str, u32>> = LazyLock::new(|| {
    include_str!("../nvml.since")
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(name, branch)| Some((name, branch.parse().ok()?)))
        .collect()
});

/// Of a branch the first one stands for it.
const DRIVERS: [Driver; 8] = [
    Driver {
        branch: "470",
        version: "470.256.02",
        cuda: (11, 4),
        build_branch: None,
    },
    Driver {
        branch: "535",
        version: "535.274.02",
        cuda: (12, 2),
        build_branch: None,
    },
    // The version that the vendor's programs were mostly recorded with.
    Driver {
        branch: "550",
        version: "550.163.01",
        cuda: (12, 4),
        build_branch: None,
    },
    // Recorded with B200.
    Driver {
        branch: "560",
        version: "560.35.03",
        cuda: (12, 6),
        build_branch: None,
    },
    // Recorded with GB300.
    Driver {
        branch: "570",
        version: "570.124.06",
        cuda: (12, 8),
        build_branch: None,
    },
    // Measured on an H200.
    Driver {
        branch: "580",
        version: "580.159.04",
        cuda: (13, 0),
        build_branch: Some("r582_49"),
    },
    // Recorded with GB200.
    Driver {
        branch: "580",
        version: "580.65.06",
        cuda: (13, 0),
        build_branch: None,
    },
    Driver {
        branch: "610",
        version: "610.43.02",
        cuda: (13, 3),
        build_branch: None,
    },
];

/// The driver of that branch or full version.
pub(crate) fn find(version: &str) -> Result<&'static Driver> {
    DRIVERS
        .iter()
        .find(|driver| driver.branch == version || driver.version == version)
        .ok_or_else(|| Error::UnknownDriver {
            version: version.to_owned(),
            known: DRIVERS
                .iter()
                .flat_map(|driver| [driver.branch.to_owned(), driver.version.to_owned()])
                .fold(Vec::new(), |mut names, name| {
                    if !names.contains(&name) {
                        names.push(name);
                    }
                    names
                }),
        })
}
