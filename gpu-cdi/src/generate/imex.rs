use std::{fmt, str::FromStr};

use super::{GenerateOptions, Roots, common, finish};
use crate::{ContainerEdits, Device, DeviceName, DeviceNode, DriverFiles, Error, Result, Spec};

const FOLDER: &str = "/dev/nvidia-caps-imex-channels/channel";

/// The number of an IMEX channel, below 2²⁰; also read from `channel7`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImexChannel(u32);

impl ImexChannel {
    /// The most channels that there can be.
    pub const LIMIT: u32 = 1 << 20;

    /// The channel's number.
    pub fn number(self) -> u32 {
        self.0
    }

    fn name(self) -> DeviceName {
        self.to_string().parse().expect("a number is a device name")
    }

    /// Its node, in the container and beneath the device root.
    pub fn path(self) -> String {
        format!("{FOLDER}{}", self.0)
    }
}

impl fmt::Display for ImexChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for ImexChannel {
    type Err = ParseImexChannelError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = text.strip_prefix("channel").unwrap_or(text);
        match number.parse::<u32>() {
            // `+7` and `07` would be second names of one channel.
            Ok(channel) if channel < Self::LIMIT && channel.to_string() == number => Ok(Self(channel)),
            _ => Err(ParseImexChannelError { text: text.to_owned() }),
        }
    }
}

/// A text that is no channel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an IMEX channel: expected a number below {}", ImexChannel::LIMIT)]
pub struct ParseImexChannelError {
    text: String,
}

/// Describes IMEX channels, each a device named by its number; all that there are if `channels` is empty.
///
/// The nodes' numbers are left to the moment when a container is made, as the vendor's toolkit does: a channel's node
/// may be made anew in between.
///
/// # Errors
/// - [`Error::NothingFound`]: a channel that was asked for has no node, or there are no channels.
/// - [`Error::Invalid`] as for [`generate`](crate::generate).
pub fn generate_imex(files: &DriverFiles, channels: &[ImexChannel], options: &GenerateOptions) -> Result<Spec> {
    let missing = |what: String| Error::NothingFound {
        what,
        root: files.dev_root.clone(),
    };
    let mut found: Vec<ImexChannel> = channels.to_vec();
    if found.is_empty() {
        let nodes = files.device_nodes.iter();
        found.extend(nodes.filter_map(|node| node.path.strip_prefix(FOLDER)?.parse::<ImexChannel>().ok()));
    }
    found.sort_unstable();
    found.dedup();
    if found.is_empty() {
        return Err(missing(format!("{FOLDER}*")));
    }
    let roots = Roots::new(&files.driver_root, &files.dev_root, options)?;
    let mut devices = Vec::with_capacity(found.len());
    for channel in found {
        let path = channel.path();
        if files.device_node(&path).is_none() {
            return Err(missing(path));
        }
        let node = DeviceNode {
            host_path: roots.device_node(&path),
            path,
            ..DeviceNode::default()
        };
        let edits = ContainerEdits {
            device_nodes: vec![node],
            ..ContainerEdits::default()
        };
        devices.push(Device::new(channel.name(), edits));
    }
    finish(options, devices, common::void_edits())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_has_one_number() {
        #[track_caller]
        fn check(text: &str, expected: Option<u32>) {
            assert_eq!(
                text.parse::<ImexChannel>().ok().map(ImexChannel::number),
                expected,
                "{text}"
            );
        }
        check("0", Some(0));
        check("channel7", Some(7));
        check("1048575", Some(1_048_575));
        check("1048576", None);
        check("+7", None);
        check("07", None);
        check("all", None);
    }
}
