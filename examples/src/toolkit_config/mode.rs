use std::{fmt, str::FromStr};

/// A mode of the runtime in which devices can be given here: all of them mean CDI files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mode;

impl FromStr for Mode {
    type Err = UnusableMode;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "auto" | "cdi" | "jit-cdi" | "legacy" => Ok(Self),
            _ => Err(UnusableMode(name.to_owned())),
        }
    }
}

/// A mode that the vendor's runtime alone has, or none at all.
#[derive(Debug)]
pub(crate) struct UnusableMode(String);

impl fmt::Display for UnusableMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_str() {
            "csv" => {
                f.write_str("mode `csv` is not supported: describe the machine by `gpuctl cdi generate --mode=csv`")
            }
            name => write!(f, "there is no mode `{name}`: it is auto, cdi, jit-cdi or legacy"),
        }
    }
}

impl std::error::Error for UnusableMode {}
