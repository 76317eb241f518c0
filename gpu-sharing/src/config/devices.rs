use std::{fmt, str::FromStr};

use serde::{Serialize, Serializer};

use super::{Result, document::Value, key::Field};

/// Which devices of a resource are shared.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DeviceSelector {
    /// Every one.
    #[default]
    All,
    /// This many, more than none: the first in the node's order.
    Count(u32),
    /// These.
    List(Vec<DeviceRef>),
}

impl DeviceSelector {
    /// The positions of the devices that are selected, each given by its index (`0`, `0:1`) and its UUID; and what is wanted and not
    /// there, which may come.
    ///
    /// Positions ascend, and none is there twice.
    pub fn select(&self, devices: &[(&str, &str)]) -> (Vec<usize>, Vec<NotThere>) {
        match self {
            Self::All => ((0..devices.len()).collect(), Vec::new()),
            Self::Count(count) => {
                let (wanted, available) = (usize::try_from(*count).unwrap_or(usize::MAX), devices.len());
                let too_few = (wanted > available).then_some(NotThere::TooFew { wanted, available });
                ((0..wanted.min(available)).collect(), too_few.into_iter().collect())
            }
            Self::List(list) => {
                let (mut positions, mut missing) = (Vec::new(), Vec::new());
                for device in list {
                    match device.find(devices) {
                        Ok(position) => positions.push(position),
                        Err(absent) => missing.push(absent),
                    }
                }
                positions.sort_unstable();
                positions.dedup();
                (positions, missing)
            }
        }
    }

    /// Whether it selects devices that an earlier one does, whichever there are. All after some is no repetition: it is the rest.
    pub(super) fn repeats(&self, earlier: &Self) -> bool {
        match (earlier, self) {
            (Self::All, _) | (Self::Count(_), Self::Count(_)) => true,
            (Self::List(earlier), Self::List(list)) => list.iter().any(|device| earlier.contains(device)),
            _ => false,
        }
    }

    pub(super) fn read(field: &Field<'_>) -> Result<Self> {
        match &field.node.value {
            Value::Text(text) if text == "all" => Ok(Self::All),
            Value::Text(text) => Err(field.error(format_args!(
                "devices set as '{text}' but the only valid string input is 'all'"
            ))),
            Value::Integer(count) => match u32::try_from(*count) {
                Ok(0) | Err(_) => Err(field.error(format_args!(
                    "devices set as '{count}' but a count of devices must be > 0"
                ))),
                Ok(count) => Ok(Self::Count(count)),
            },
            Value::List(_) => {
                let device = |item: &Field<'_>| DeviceRef::read(item);
                Ok(Self::List(field.list()?.iter().map(device).collect::<Result<_>>()?))
            }
            _ => Err(field.error("unrecognized type for devices spec")),
        }
    }
}

impl Serialize for DeviceSelector {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::All => serializer.serialize_str("all"),
            Self::Count(count) => serializer.serialize_u32(*count),
            Self::List(list) => list.serialize(serializer),
        }
    }
}

/// One device: by GPU index (`0`), by GPU and MIG index (`0:1`), or by UUID (`GPU-…`, `MIG-…`, `MIG-GPU-…/<gi>/<ci>`).
///
/// ```
/// use gpu_sharing::config::DeviceRef;
/// assert!("0:1".parse::<DeviceRef>()?.is_mig());
/// assert!("MIG-GPU-7a675969-0a3d-4f9c-8a6e-1b2c3d4e5f60".parse::<DeviceRef>().is_err()); // no instances
/// # Ok::<(), gpu_sharing::config::ParseDeviceRefError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceRef(Kind);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Kind {
    Index(String),
    Uuid(String),
}

impl DeviceRef {
    /// The reference as it is written.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Kind::Index(text) | Kind::Uuid(text) => text,
        }
    }

    /// Whether it is a MIG device.
    pub fn is_mig(&self) -> bool {
        match &self.0 {
            Kind::Index(index) => index.contains(':'),
            Kind::Uuid(uuid) => uuid.starts_with("MIG-"),
        }
    }

    fn find(&self, devices: &[(&str, &str)]) -> Result<usize, NotThere> {
        let position = devices.iter().position(|(index, uuid)| match &self.0 {
            Kind::Index(wanted) => wanted == index,
            Kind::Uuid(wanted) => wanted == uuid,
        });
        position.ok_or_else(|| match &self.0 {
            Kind::Index(index) => NotThere::NoIndex { index: index.clone() },
            Kind::Uuid(uuid) => NotThere::NoUuid { uuid: uuid.clone() },
        })
    }

    fn read(field: &Field<'_>) -> Result<Self> {
        let unsupported = || field.error("unsupported type for device in devices list");
        match &field.node.value {
            Value::Integer(number) => u32::try_from(*number)
                .map(|number| Self(Kind::Index(number.to_string())))
                .map_err(|_| unsupported()),
            Value::Text(text) => text.parse().map_err(|error: ParseDeviceRefError| {
                field.error(format_args!("unsupported type for device in devices list: {error}"))
            }),
            _ => Err(unsupported()),
        }
    }
}

impl fmt::Display for DeviceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for DeviceRef {
    type Err = ParseDeviceRefError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |text: &str| {
            // Anything but the usual form, `+1` or `01`, would be a second name of one device.
            text.parse::<u32>().is_ok_and(|number| number.to_string() == text)
        };
        let instances = |text: &str| text.split_once('/').is_some_and(|(gi, ci)| number(gi) && number(ci));
        let indices = text
            .split_once(':')
            .map_or_else(|| number(text), |(gpu, mig)| number(gpu) && number(mig));
        let uuid = if let Some(rest) = text.strip_prefix("MIG-GPU-") {
            rest.split_once('/')
                .is_some_and(|(uuid, rest)| is_uuid(uuid) && instances(rest))
        } else {
            text.strip_prefix("GPU-")
                .or_else(|| text.strip_prefix("MIG-"))
                .is_some_and(is_uuid)
        };
        match (indices, uuid) {
            (true, _) => Ok(Self(Kind::Index(text.to_owned()))),
            (_, true) => Ok(Self(Kind::Uuid(text.to_owned()))),
            _ => Err(ParseDeviceRefError { text: text.to_owned() }),
        }
    }
}

impl Serialize for DeviceRef {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// 8-4-4-4-12 hexadecimal digits.
fn is_uuid(text: &str) -> bool {
    let groups: Vec<_> = text.split('-').collect();
    let hex = |group: &&str| group.bytes().all(|b| b.is_ascii_hexdigit());
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12]) && groups.iter().all(hex)
}

/// A text that names no device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is neither an index (`0`, `0:1`) nor a UUID (`GPU-…`, `MIG-…`, `MIG-GPU-…/<gi>/<ci>`)")]
pub struct ParseDeviceRefError {
    text: String,
}

/// What a selection wants and the node does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotThere {
    /// A count above the number of devices.
    #[error("requested {wanted} devices to be replicated, but only {available} devices available")]
    TooFew {
        /// How many are wanted.
        wanted: usize,
        /// How many are there.
        available: usize,
    },
    /// An index that no device of the resource has.
    #[error("no matching device at index: {index}")]
    NoIndex {
        /// The index.
        index: String,
    },
    /// A UUID that no device of the resource has.
    #[error("no matching device with UUID: {uuid}")]
    NoUuid {
        /// The UUID.
        uuid: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "7a675969-0a3d-4f9c-8a6e-1b2c3d4e5f60";

    #[test]
    fn devices_are_named_by_index_or_uuid() {
        #[track_caller]
        fn check(text: &str, mig: Option<bool>) {
            assert_eq!(
                text.parse::<DeviceRef>().ok().map(|device| device.is_mig()),
                mig,
                "{text}"
            );
        }
        check("0", Some(false));
        check("0:1", Some(true));
        check(&format!("GPU-{UUID}"), Some(false));
        check(&format!("MIG-{UUID}"), Some(true));
        check(&format!("MIG-GPU-{UUID}/1/0"), Some(true));
        check(&format!("MIG-GPU-{UUID}"), None);
        check(&format!("MIG-GPU-{UUID}/1"), None);
        check(&format!("MIG-GPU-{UUID}/1/x"), None);
        check(&format!("GPU-{UUID}/1/0"), None);
        check(UUID, None);
        check("-1", None);
        check("+1", None);
        check("01", None);
        check("0:1:2", None);
        check("GPU-", None);
        check("", None);
    }

    #[test]
    fn selections_are_in_the_nodes_order_and_miss_nothing_silently() {
        let uuids = [format!("GPU-{UUID}"), "GPU-b".to_owned(), "GPU-c".to_owned()];
        let devices = [
            ("0", uuids[0].as_str()),
            ("1", uuids[1].as_str()),
            ("2", uuids[2].as_str()),
        ];
        let check = |selector: DeviceSelector, expected: &[usize], missing: &[&str]| {
            let (selected, absent) = selector.select(&devices);
            let absent: Vec<_> = absent.iter().map(ToString::to_string).collect();
            assert_eq!((&*selected, absent.len()), (expected, missing.len()));
            assert!(absent.iter().eq(missing), "{absent:?}");
        };
        let list = |names: &[&str]| DeviceSelector::List(names.iter().map(|name| name.parse().unwrap()).collect());
        check(DeviceSelector::All, &[0, 1, 2], &[]);
        check(DeviceSelector::Count(2), &[0, 1], &[]);
        check(
            DeviceSelector::Count(4),
            &[0, 1, 2],
            &["requested 4 devices to be replicated, but only 3 devices available"],
        );
        check(list(&["2", &uuids[0], "0"]), &[0, 2], &[]);
        check(list(&["3"]), &[], &["no matching device at index: 3"]);
        let other = "GPU-00000000-0000-0000-0000-000000000000";
        check(
            list(&[other, "1"]),
            &[1],
            &[&format!("no matching device with UUID: {other}")],
        );
    }

    #[test]
    fn what_an_earlier_selection_has_is_repeated() {
        #[track_caller]
        fn check(earlier: &DeviceSelector, later: &DeviceSelector, expected: bool) {
            assert_eq!(later.repeats(earlier), expected, "{earlier:?} {later:?}");
        }
        let list = |names: &[&str]| DeviceSelector::List(names.iter().map(|name| name.parse().unwrap()).collect());
        let (all, two) = (DeviceSelector::All, DeviceSelector::Count(2));
        check(&all, &all, true);
        check(&all, &list(&["0"]), true);
        check(&list(&["0"]), &all, false);
        check(&two, &two, true);
        check(&list(&["0", "1"]), &list(&["1", "2"]), true);
        check(&list(&["0"]), &list(&["1"]), false);
    }
}
