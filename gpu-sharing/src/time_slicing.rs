//! One device handed out several times: ids of the replicas, and which of them to take together.
//!
//! The words are those of the device plugin's configuration (`sharing.timeSlicing`); the same ids serve MPS. All functions
//! are deterministic, where the vendor's plugin leaves ties to the order of a map.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
};

use serde::{Deserialize, Serialize};

/// What separates a device and the number of its replica: `GPU-…::3`.
const SEPARATOR: &str = "::";

/// The id under which the kubelet knows a device: its UUID, or `uuid::n` for replica `n` of it.
///
/// ```
/// use gpu_sharing::time_slicing::SharedId;
///
/// let id: SharedId = "GPU-1::3".parse()?;
/// assert_eq!((id.device(), id.replica()), ("GPU-1", Some(3)));
/// assert_eq!("GPU-1".parse::<SharedId>()?.replica(), None);
/// # Ok::<(), gpu_sharing::time_slicing::ParseSharedIdError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SharedId {
    device: String,
    replica: Option<u32>,
}

impl SharedId {
    /// The device, without the replica: what a container gets to see.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// The number of the replica from 0; `None` for a device that is not shared.
    pub fn replica(&self) -> Option<u32> {
        self.replica
    }
}

impl fmt::Display for SharedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.replica {
            Some(replica) => f.pad(&format!("{}{SEPARATOR}{replica}", self.device)),
            None => f.pad(&self.device),
        }
    }
}

impl FromStr for SharedId {
    type Err = ParseSharedIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fail = || ParseSharedIdError { text: text.to_owned() };
        let (device, replica) = match text.split_once(SEPARATOR) {
            Some((device, number)) => {
                // As written by `Display` and nothing else: `+1` and `01` would be second names of one replica.
                let replica: u32 = number.parse().map_err(|_| fail())?;
                (
                    device,
                    (replica.to_string() == number)
                        .then_some(Some(replica))
                        .ok_or_else(fail)?,
                )
            }
            None => (text, None),
        };
        if device.is_empty() {
            return Err(fail());
        }
        Ok(Self {
            device: device.to_owned(),
            replica,
        })
    }
}

impl TryFrom<String> for SharedId {
    type Error = ParseSharedIdError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<SharedId> for String {
    fn from(id: SharedId) -> Self {
        id.to_string()
    }
}

/// A text that is no device or replica id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a device id: expected a UUID, or a UUID, `::` and the number of a replica")]
pub struct ParseSharedIdError {
    text: String,
}

/// The ids of a device: its own, or one for each time that it is shared, by number.
///
/// ```
/// let ids = |replicas| gpu_sharing::time_slicing::ids("GPU-1", replicas).map(|ids| ids.map(String::from).collect::<Vec<_>>());
/// assert_eq!(ids(Some(2))?, ["GPU-1::0", "GPU-1::1"]);
/// assert_eq!(ids(None)?, ["GPU-1"]);
/// # Ok::<(), gpu_sharing::time_slicing::ParseSharedIdError>(())
/// ```
///
/// # Errors
///
/// If the device's id is empty or itself the id of a replica.
pub fn ids(device: &str, replicas: Option<u32>) -> Result<impl Iterator<Item = SharedId> + use<>, ParseSharedIdError> {
    if device.is_empty() || device.contains(SEPARATOR) {
        return Err(ParseSharedIdError {
            text: device.to_owned(),
        });
    }
    let device = device.to_owned();
    let numbers = (0..replicas.unwrap_or(1)).map(move |number| replicas.map(|_| number));
    Ok(numbers.map(move |replica| SharedId {
        device: device.clone(),
        replica,
    }))
}

/// Which devices to fill first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// The device with the fewest replicas handed out.
    #[default]
    Distributed,
    /// The device with the most replicas handed out.
    Packed,
}

/// Which ids to hand out together: `size` of them, the required ones first, then one after the other by `spread`.
///
/// `all` is every id of the resource, `available` those that are free. `place` tells what a device lies on, which is what is to be
/// filled: the device itself, or the GPU whose MIG devices share it. A place counts as used by each of its ids that is not
/// available, and by the required ones. Among equals the place with the fewest picked in this call goes first, then the device
/// that is used least, then the order of `all`; the answer names the ids in the order in which they were picked.
///
/// ```
/// use gpu_sharing::time_slicing::{SharedId, Spread, ids, prefer};
///
/// let all: Vec<_> = ids("GPU-1", Some(2))?.chain(ids("GPU-2", Some(2))?).collect();
/// let pick = |spread| {
///     let ids = prefer(&all, &all, &[], 2, spread, SharedId::device);
///     ids.map(|ids| ids.iter().map(ToString::to_string).collect::<Vec<_>>())
/// };
/// assert_eq!(pick(Spread::Distributed)?, ["GPU-1::0", "GPU-2::0"]);
/// assert_eq!(pick(Spread::Packed)?, ["GPU-1::0", "GPU-1::1"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// [`PreferError`] if fewer are available than are needed, or more are required than asked for.
pub fn prefer<'a>(
    all: &'a [SharedId],
    available: &[SharedId],
    required: &[SharedId],
    size: usize,
    spread: Spread,
    place: impl Fn(&'a SharedId) -> &'a str,
) -> Result<Vec<SharedId>, PreferError> {
    let too_few = PreferError {
        size,
        available: available.len(),
    };
    let needed = size.checked_sub(required.len()).ok_or(too_few)?;
    let (available, required_ids): (BTreeSet<_>, BTreeSet<_>) = (available.iter().collect(), required.iter().collect());
    let mut free: Vec<&SharedId> = Vec::new();
    let (mut used, mut on_device) = (BTreeMap::<&str, usize>::new(), BTreeMap::<&str, usize>::new());
    for id in all {
        let is_free = available.contains(id) && !required_ids.contains(id);
        *used.entry(place(id)).or_default() += usize::from(!is_free);
        *on_device.entry(id.device()).or_default() += usize::from(!is_free);
        if is_free {
            free.push(id);
        }
    }
    if free.len() < needed {
        return Err(too_few);
    }
    let mut picked: BTreeMap<&str, usize> = BTreeMap::new();
    let mut ids = required.to_vec();
    for _ in 0..needed {
        let rank = |(_, id): &(usize, &&'a SharedId)| {
            let place = place(id);
            let (used, picked) = (used[place], picked.get(place).copied().unwrap_or(0));
            let load = match spread {
                Spread::Distributed => used,
                Spread::Packed => usize::MAX - used,
            };
            (load, picked, on_device[id.device()])
        };
        let Some((at, _)) = free.iter().enumerate().min_by_key(rank) else {
            break;
        };
        let id = free.remove(at);
        *used.entry(place(id)).or_default() += 1;
        *on_device.entry(id.device()).or_default() += 1;
        *picked.entry(place(id)).or_default() += 1;
        ids.push(id.clone());
    }
    Ok(ids)
}

/// A request for more devices than there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cannot choose {size} devices from {available} that are available")]
pub struct PreferError {
    size: usize,
    available: usize,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> Vec<SharedId> {
        text.split_whitespace().map(|id| id.parse().unwrap()).collect()
    }

    #[test]
    fn only_one_text_names_a_replica() {
        for bad in [
            "",
            "::1",
            "GPU-1::",
            "GPU-1::x",
            "GPU-1::01",
            "GPU-1::+1",
            "GPU-1::1::2",
            "GPU-1::99999999999",
        ] {
            assert!(bad.parse::<SharedId>().is_err(), "{bad}");
        }
        for bad in ["", "GPU-1::0"] {
            assert!(ids(bad, Some(2)).is_err(), "{bad}");
        }
        let made: Vec<_> = ids("GPU-1", Some(2)).unwrap().collect();
        assert_eq!(made, parsed("GPU-1::0 GPU-1::1"));
    }

    #[test]
    fn devices_in_use_count_and_the_required_come_first() {
        #[track_caller]
        fn check(available: &str, required: &str, size: usize, spread: Spread, expected: &str) {
            let all = parsed("a::0 a::1 a::2 b::0 b::1 b::2");
            assert_eq!(
                prefer(
                    &all,
                    &parsed(available),
                    &parsed(required),
                    size,
                    spread,
                    SharedId::device
                )
                .unwrap(),
                parsed(expected)
            );
        }
        check("a::2 b::0 b::1 b::2", "", 2, Spread::Distributed, "b::0 b::1");
        check("a::2 b::0 b::1 b::2", "", 2, Spread::Packed, "a::2 b::0");
        check("a::1 a::2 b::0 b::1 b::2", "b::1", 2, Spread::Packed, "b::1 a::1");
        check("a::0", "", 0, Spread::Packed, "");
    }

    #[test]
    fn devices_of_one_place_are_filled_together() {
        let all = parsed("a::0 a::1 b::0 b::1 c::0 c::1");
        let place = |id: &SharedId| if id.device() == "c" { "second" } else { "first" };
        let check = |available: &str, size, spread, expected: &str| {
            let chosen = prefer(&all, &parsed(available), &[], size, spread, place).unwrap();
            assert_eq!(chosen, parsed(expected));
        };
        check("a::0 a::1 b::0 b::1 c::0 c::1", 2, Spread::Distributed, "a::0 c::0");
        check("a::0 a::1 b::0 b::1 c::0", 2, Spread::Packed, "c::0 a::0");
        check("a::1 b::0 b::1 c::0 c::1", 3, Spread::Packed, "b::0 a::1 b::1");
    }

    #[test]
    fn too_few_is_an_error() {
        let all = parsed("a::0 a::1");
        assert!(prefer(&all, &all, &[], 3, Spread::Packed, SharedId::device).is_err());
        assert!(prefer(&all, &all, &all, 1, Spread::Packed, SharedId::device).is_err());
        assert!(
            prefer(&all, &parsed("x::0 x::1"), &[], 1, Spread::Packed, SharedId::device).is_err(),
            "unknown ids are not available"
        );
    }

    proptest! {
        #[test]
        fn the_answer_has_no_id_twice_and_levels_the_devices(devices in 1_usize..5, replicas in 2_u32..5, size in 0_usize..12) {
            let all: Vec<_> = (0..devices).flat_map(|n| ids(&format!("GPU-{n}"), Some(replicas)).unwrap()).collect();
            match prefer(&all, &all, &[], size, Spread::Distributed, SharedId::device) {
                Ok(chosen) => {
                    prop_assert_eq!(chosen.iter().collect::<BTreeSet<_>>().len(), size);
                    let on = |n: usize| chosen.iter().filter(|id| id.device() == format!("GPU-{n}")).count();
                    let (least, most) = ((0..devices).map(on).min().unwrap(), (0..devices).map(on).max().unwrap());
                    prop_assert!(most - least <= 1);
                }
                Err(_) => prop_assert!(size > all.len()),
            }
        }
    }
}
