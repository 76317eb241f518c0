//! Where instances go: which places are free, which the driver takes by itself, and what id follows from the place.

use super::{MediaEngines, MigProfile, MigTable};

/// Starts at which one more instance of a profile would fit beside those that are there (each with its start), in
/// ascending order. None if a cap or the media engines forbid one more.
pub(crate) fn free_starts(table: &MigTable, profile: &MigProfile, taken: &[(&MigProfile, u32)]) -> Vec<u32> {
    let same = taken.iter().filter(|(other, _)| other.id == profile.id).count();
    if u32::try_from(same).is_ok_and(|same| same >= profile.instances) || !engines_left(table, profile, taken) {
        return Vec::new();
    }
    let overlaps = |start: u32| {
        taken
            .iter()
            .any(|(other, at)| *at < start + profile.size && start < at + other.size)
    };
    profile
        .starts
        .iter()
        .copied()
        .filter(|start| !overlaps(*start))
        .collect()
}

fn engines_left(table: &MigTable, profile: &MigProfile, taken: &[(&MigProfile, u32)]) -> bool {
    let add = |a: MediaEngines, b: MediaEngines| MediaEngines {
        decoders: a.decoders + b.decoders,
        encoders: a.encoders + b.encoders,
        jpeg: a.jpeg + b.jpeg,
        ofa: a.ofa + b.ofa,
    };
    let sum = taken
        .iter()
        .map(|(other, _)| other.engines())
        .fold(profile.engines(), add);
    let all = table.engines;
    sum.decoders <= all.decoders && sum.encoders <= all.encoders && sum.jpeg <= all.jpeg && sum.ofa <= all.ofa
}

/// The place that the driver takes when it is given none: in the upper half of the board first, and there first where
/// the neighbouring place can never be used. Seen on an H100: seven of one slice start at 6, 4, 5, 0, 1, 2, 3, and three
/// slices start at 4 before 0.
pub(crate) fn preferred(table: &MigTable, profile: &MigProfile, free: &[u32]) -> Option<u32> {
    let has_neighbour = |start: u32| profile.starts.contains(&neighbour(start, profile.size));
    free.iter()
        .copied()
        .min_by_key(|&start| (start < table.slots / 2, has_neighbour(start), start))
}

/// The start of the place with which this one makes up the next larger one.
fn neighbour(start: u32, size: u32) -> u32 {
    ((start / size.max(1)) ^ 1) * size
}

/// The id of the instance in that place: places form a tree, numbered from the whole board down, in each level from the
/// upper half on.
pub(crate) fn instance_id(table: &MigTable, start: u32, size: u32) -> u32 {
    let places = table.slots / size.max(1);
    places.saturating_sub(1) + ((start / size.max(1)) ^ (places / 2))
}

/// Where a compute instance of that many slices may start in a GPU instance of `slices`.
pub(crate) fn compute_starts(slices: u32, compute_slices: u32) -> Vec<u32> {
    let step = match compute_slices {
        0 => return Vec::new(),
        3 => 4,
        other => other,
    };
    (0..slices)
        .step_by(step as usize)
        .filter(|start| start + compute_slices <= slices)
        .collect()
}
