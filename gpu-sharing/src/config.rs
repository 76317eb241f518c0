//! The vendor's configuration file, version 1, which device plugin, feature discovery and MPS daemon share.
//!
//! [`ConfigFile`] is what somebody wrote; [`Config`] is what it means together with flags and environment, every default
//! filled in. Text and values come in, values go out: reading the file and the environment is the caller's.
//!
//! # Example
//!
//! ```
//! use gpu_sharing::config::{Config, ConfigFile, Flags, Options, Reading, Sharing};
//!
//! let text = "
//! version: v1
//! flags: { migStrategy: mixed }
//! sharing:
//!   timeSlicing:
//!     renameByDefault: true
//!     resources: [{ name: nvidia.com/gpu, replicas: 4 }]
//! ";
//! let (file, _) = ConfigFile::parse(text, Reading::Strict)?;
//! let (config, warnings) = Config::resolve(file, Flags::default(), Options::default());
//! let Sharing::TimeSlicing(shared) = &config.sharing else { unreachable!() };
//! assert_eq!(shared.resources[0].rename.as_ref().unwrap().as_str(), "nvidia.com/gpu.shared");
//! assert!(warnings.is_empty());
//!
//! // What the vendor's programs pass over in silence is an error that says what was meant.
//! let error = ConfigFile::parse("flags:\n  migStrategie: mixed", Reading::Strict).unwrap_err();
//! assert_eq!(error.to_string(), "`flags.migStrategie` in line 2 is not a known key; did you mean `migStrategy`?");
//! # Ok::<(), gpu_sharing::config::Error>(())
//! ```
//!
//! # Where things are
//! - [`ConfigFile`], [`Flags`]: as written; [`Flags::from_environment`]
//! - [`Config`]: as resolved, with [`Config::check`] for what only some programs accept
//! - [`Sharing`], [`SharedResource`], [`DeviceSelector`]: one device handed out several times
//! - [`ResourceRule`], [`ResourceName`]: how devices are called
//! - [`Error`], [`Warning`]: in the vendor's words where a user of its programs knows them

mod devices;
pub(crate) mod document;
mod error;
mod file;
mod flags;
mod imex;
mod interval;
mod key;
mod resolve;
mod resource_name;
mod rule;
mod sharing;
mod strategy;

pub use self::{
    devices::{DeviceRef, DeviceSelector, NotThere, ParseDeviceRefError},
    error::{Error, Result, UnknownKey, Warning},
    file::{ConfigFile, Reading},
    flags::{Flags, GfdFlags, PluginFlags, Program},
    imex::Imex,
    interval::{Interval, ParseIntervalError},
    resolve::{Config, Gfd, Options, Plugin},
    resource_name::{ParseResourceNameError, ResourceName},
    rule::{ResourceRule, Resources},
    sharing::{Replicas, Shared, SharedResource, Sharing, WrittenSharing},
    strategy::{AllocationPolicy, DeviceIdStrategy, DeviceListStrategy, DiscoveryStrategy, MigStrategy, UnknownWord},
};

#[cfg(test)]
mod tests;
