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

    /// Whether a board says what it can be partitioned into while MIG mode is off (measured with 580).
    pub(crate) fn tells_profiles_always(&self) -> bool {
        self.major() >= 550
    }

    /// How many `NVML_GPU_INSTANCE_PROFILE_…` the driver knows (580: measured).
    pub(crate) fn gpu_instance_profiles(&self) -> u32 {
        match self.major() {
            ..525 => 8,
            525..575 => 10,
            575..600 => 17,
            _ => 18,
        }
    }

    /// How many `NVML_COMPUTE_INSTANCE_PROFILE_…` the driver knows.
    pub(crate) fn compute_instance_profiles(&self) -> u32 {
        match self.major() {
            ..525 => 7,
            525..600 => 8,
            _ => 9,
        }
    }

    /// CUDA's version as one number: 12040 is 12.4.
    pub fn cuda_number(&self) -> i32 {
        self.cuda.0 * 1000 + self.cuda.1 * 10
    }
}

const DRIVERS: [Driver; 3] = [
    Driver {
        branch: "535",
        version: "535.274.02",
        cuda: (12, 2),
        build_branch: None,
    },
    // The version the vendor's programs were recorded with.
    Driver {
        branch: "550",
        version: "550.163.01",
        cuda: (12, 4),
        build_branch: None,
    },
    // Measured on an H200.
    Driver {
        branch: "580",
        version: "580.159.04",
        cuda: (13, 0),
        build_branch: Some("r582_49"),
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
                .collect(),
        })
}
