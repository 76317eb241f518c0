use std::{io, path::PathBuf};

use crate::ParseNameError;

/// A [`Result`](std::result::Result) whose error is this module's [`Error`] unless said otherwise.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a container cannot be given what it asks for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The container asks for something that is no device name.
    #[error("the container's request in {place} is not one for devices")]
    Request {
        /// Where it was made.
        place: String,
        /// What is wrong with it.
        #[source]
        source: ParseNameError,
    },
    /// A part of the container's configuration has another type than OCI says.
    #[error("`{key}` of the container's configuration is not {expected}")]
    Malformed {
        /// The key, dotted.
        key: String,
        /// What it should be.
        expected: &'static str,
    },
    /// A device node of the host, which a spec names, cannot be looked at. The spec may be older than the driver.
    #[error("cannot find the device node `{}`", path.display())]
    Device {
        /// The node.
        path: PathBuf,
        /// What the operating system answered.
        #[source]
        source: io::Error,
    },
    /// A device node of the host is not what a spec says it is. The spec may be older than the driver.
    #[error("`{}` is not a device of type `{expected}`", path.display())]
    DeviceType {
        /// The node.
        path: PathBuf,
        /// What the spec says.
        expected: String,
    },
}
