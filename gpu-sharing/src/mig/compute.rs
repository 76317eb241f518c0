use std::{
    cmp::{Reverse, min_by_key},
    collections::BTreeMap,
    ops::BitOr,
};

use serde::{Deserialize, Serialize};

use crate::mig::{Held, Profile};

/// The compute instances of a GPU instance.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compute {
    /// One that has all of it: the usual case.
    #[default]
    Whole,
    /// These, by start. None at all is an instance that nobody can use.
    Parts(Vec<Part>),
}

/// One compute instance: a run of the compute slices of its GPU instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// The first compute slice.
    pub start: u32,
    /// How many compute slices.
    pub slices: u32,
    /// In use.
    #[serde(default)]
    pub pinned: bool,
}

impl Part {
    /// The one that has all of a GPU instance.
    pub(crate) fn whole(profile: &Profile) -> Self {
        Self {
            start: 0,
            slices: profile.slices(),
            pinned: false,
        }
    }

    fn mask(self) -> u32 {
        let run = 1_u64.checked_shl(self.slices).unwrap_or(0).wrapping_sub(1);
        u32::try_from((run << (self.start & 31)) & u64::from(u32::MAX)).unwrap_or(u32::MAX)
    }
}

impl Compute {
    /// Those parts, or the usual case if there is one that has all.
    pub(crate) fn of(profile: &Profile, parts: Vec<Part>) -> Self {
        match parts[..] {
            [Part { start: 0, slices, .. }] if slices == profile.slices() => Self::Whole,
            _ => Self::Parts(parts),
        }
    }

    pub(crate) fn is_whole(&self) -> bool {
        *self == Self::Whole
    }
}

impl Held {
    /// The compute instances, each with whether it is in use.
    pub fn parts(&self) -> Vec<Part> {
        let mut parts = match &self.compute {
            Compute::Whole => vec![Part::whole(&self.instance.profile)],
            Compute::Parts(parts) => parts.clone(),
        };
        // In use, and nobody can say by which: then all are.
        if self.pinned && !parts.iter().any(|part| part.pinned) {
            for part in &mut parts {
                part.pinned = true;
            }
        }
        parts
    }

    /// What [`Cost::destroyed`](crate::mig::Cost::destroyed) counts if it goes: its compute instances, or itself without any.
    pub(crate) fn weight(&self) -> u32 {
        u32::try_from(self.parts().len().max(1)).unwrap_or(u32::MAX)
    }
}

/// Where a compute instance of that many slices can start in a GPU instance: at multiples of its size, three slices at
/// multiples of four.
fn starts(whole: u32, slices: u32) -> impl Iterator<Item = u32> {
    let step = if slices == 3 { 4 } else { slices.max(1) };
    (0..(whole + 1).saturating_sub(slices)).step_by(step as usize)
}

/// The sizes that compute instances can have in a GPU instance, as the vendor's tools guess them: NVML tells only of
/// instances that are there (go-nvlib v0.12.0, `device.go`).
pub(crate) fn sizes(whole: u32) -> impl Iterator<Item = u32> {
    (1..=whole).filter(move |&slices| slices == whole || 2 * slices <= whole + 1)
}

/// How the GPU instances of one profile get exactly the wanted compute instances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Division {
    /// For each GPU instance, in the order given: the compute instances that go and come.
    pub(crate) changes: Vec<(Vec<Part>, Vec<Part>)>,
    /// How many go.
    pub(crate) destroyed: u32,
}

/// One way to divide one GPU instance.
#[derive(Debug, Clone)]
pub(crate) struct Choice {
    /// How many of each wanted size.
    pub(crate) counts: Vec<u32>,
    pub(crate) destroyed: Vec<Part>,
    pub(crate) created: Vec<Part>,
}

impl Choice {
    /// Whether it leaves the GPU instance as it is.
    pub(crate) fn is_nothing(&self) -> bool {
        self.destroyed.is_empty() && self.created.is_empty()
    }

    /// Whether it serves as much as another and destroys no more, and does nothing where the other does.
    fn is_as_good_as(&self, other: &Self) -> bool {
        self.counts.iter().zip(&other.counts).all(|(own, other)| own >= other)
            && self.destroyed.len() <= other.destroyed.len()
            && (self.is_nothing() || !other.is_nothing())
    }
}

/// Shares out the wanted compute instances (size and count) among GPU instances of `whole` slices, of which each gets one at
/// least; those in use stay, and as many others as can. `None` if it cannot be.
pub(crate) fn divide(whole: u32, instances: &[Vec<Part>], wanted: &[(u32, u32)]) -> Option<Division> {
    let (sizes, open): (Vec<_>, Vec<_>) = wanted.iter().copied().unzip();
    let choices: Vec<_> = instances.iter().map(|parts| exact(whole, parts, &sizes)).collect();
    let (destroyed, picked) = share(&choices, open)?;
    let change = |choice: &Choice| (choice.destroyed.clone(), choice.created.clone());
    Some(Division {
        changes: picked.into_iter().map(change).collect(),
        destroyed,
    })
}

/// The parts in an empty GPU instance as the driver puts them by itself: largest first, each at the first free start.
pub(crate) fn packed(whole: u32, parts: &[Part]) -> Option<Vec<Part>> {
    let mut sizes: Vec<_> = parts.iter().map(|part| part.slices).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let mut packed: Vec<Part> = Vec::new();
    for slices in sizes {
        let at = |start| Part {
            start,
            slices,
            pinned: false,
        };
        let taken = occupied(&packed);
        packed.push(starts(whole, slices).map(at).find(|part| part.mask() & taken == 0)?);
    }
    Some(packed)
}

/// The fewest GPU instances of `whole` slices that hold the wanted compute instances, or, where those are more than any GPU has, a
/// number that is too; `None` for sizes that do not exist.
pub(crate) fn fewest(whole: u32, wanted: &[(u32, u32)]) -> Option<u32> {
    if wanted
        .iter()
        .any(|&(size, n)| n > 0 && !sizes(whole).any(|known| known == size))
    {
        return None;
    }
    let parts: u32 = wanted.iter().map(|&(_, n)| n).fold(0, u32::saturating_add);
    let slices: u64 = wanted.iter().map(|&(size, n)| u64::from(size) * u64::from(n)).sum();
    let least = u32::try_from(slices.div_ceil(u64::from(whole.max(1)))).unwrap_or(u32::MAX);
    (least..=parts)
        .find(|&n| n > MOST || divide(whole, &vec![Vec::new(); n as usize], wanted).is_some())
        .or(Some(parts))
}

/// As many GPU instances as a GPU can have. More are refused anyway, so that nobody needs to know whether these are enough.
const MOST: u32 = 7;

/// A choice for each GPU instance, so that together they have exactly what is `open` of each size and the fewest are destroyed.
///
/// The instances are taken one after the other, and of the ways to the same rest only the best is followed.
fn share(choices: &[Vec<Choice>], open: Vec<u32>) -> Option<(u32, Vec<&Choice>)> {
    let sizes = open.len();
    // For each instance: the rests after it, with the fewest destroyed and the choice that led there.
    let mut layers: Vec<BTreeMap<Vec<u32>, (u32, &Choice)>> = Vec::new();
    let mut rests = BTreeMap::from([(open, 0_u32)]);
    for own in choices {
        let mut layer: BTreeMap<Vec<u32>, (u32, &Choice)> = BTreeMap::new();
        for (open, destroyed) in &rests {
            for choice in own {
                let left = open.iter().zip(&choice.counts).map(|(open, n)| open.checked_sub(*n));
                let Some(left) = left.collect::<Option<Vec<_>>>() else {
                    continue;
                };
                let gone = destroyed.saturating_add(u32::try_from(choice.destroyed.len()).unwrap_or(u32::MAX));
                let known = layer.entry(left).or_insert((gone, choice));
                *known = min_by_key(*known, (gone, choice), |way| way.0);
            }
        }
        rests = layer.iter().map(|(open, &(gone, _))| (open.clone(), gone)).collect();
        layers.push(layer);
    }
    let mut open = vec![0; sizes];
    let destroyed = *rests.get(&open)?;
    let mut picked = Vec::new();
    for layer in layers.iter().rev() {
        let (_, choice) = layer.get(&open)?;
        open.iter_mut().zip(&choice.counts).for_each(|(open, n)| *open += n);
        picked.push(*choice);
    }
    picked.reverse();
    Some((destroyed, picked))
}

/// Every way to divide one GPU instance into the wanted sizes and no others, so that none stays empty.
fn exact(whole: u32, parts: &[Part], sizes: &[u32]) -> Vec<Choice> {
    let declared = |part: &Part| sizes.contains(&part.slices);
    let mut choices = choices(whole, parts, sizes, &|stay| stay.iter().all(declared), &|_| true);
    choices.retain(|choice| choice.counts.iter().any(|&n| n > 0));
    choices
}

/// The ways to divide one GPU instance that another does not beat; what is in use serves nothing, and what is of another
/// size may stay.
pub(crate) fn supplies(whole: u32, parts: &[Part], sizes: &[u32]) -> Vec<Choice> {
    let all = choices(whole, parts, sizes, &|_| true, &|part| !part.pinned);
    let mut best: Vec<Choice> = Vec::new();
    for choice in all {
        if !best.iter().any(|known| known.is_as_good_as(&choice)) {
            best.retain(|known| !choice.is_as_good_as(known));
            best.push(choice);
        }
    }
    best
}

/// Every way to divide one GPU instance whose rest `may_stay`; of equal results the one that destroys least. What stays and
/// `serves` is counted with what is made.
fn choices(
    whole: u32,
    parts: &[Part],
    sizes: &[u32],
    may_stay: &dyn Fn(&[Part]) -> bool,
    serves: &dyn Fn(&Part) -> bool,
) -> Vec<Choice> {
    let (pinned, idle): (Vec<Part>, Vec<Part>) = parts.iter().partition(|part| part.pinned);
    let place = |(at, &slices): (usize, &u32)| {
        starts(whole, slices).map(move |start| {
            let part = Part {
                start,
                slices,
                pinned: false,
            };
            (part, at)
        })
    };
    let mut places: Vec<_> = sizes.iter().enumerate().flat_map(place).collect();
    places.sort_unstable_by_key(|(part, _)| (Reverse(part.slices), part.start));
    // What keeps the most first.
    let mut keeps: Vec<u32> = (0..1 << idle.len().min(16)).rev().collect();
    keeps.sort_by_key(|keep| Reverse(keep.count_ones()));
    let mut found: Vec<Choice> = Vec::new();
    for keep in keeps {
        let (kept, destroyed): (Vec<_>, Vec<_>) = (0..idle.len()).partition(|at| keep & (1 << at) != 0);
        let stay: Vec<_> = pinned.iter().copied().chain(kept.iter().map(|&at| idle[at])).collect();
        if !may_stay(&stay) {
            continue;
        }
        let of = |size: &u32| {
            let same = stay.iter().filter(|part| part.slices == *size && serves(part));
            u32::try_from(same.count()).unwrap_or(u32::MAX)
        };
        let mut counts: Vec<_> = sizes.iter().map(of).collect();
        let destroyed: Vec<_> = destroyed.iter().map(|&at| idle[at]).collect();
        extend(
            &places,
            occupied(&stay),
            &mut counts,
            &mut Vec::new(),
            &mut |counts, created| {
                if found.iter().all(|choice| choice.counts != counts) {
                    found.push(Choice {
                        counts: counts.to_vec(),
                        destroyed: destroyed.clone(),
                        created: created.to_vec(),
                    });
                }
            },
        );
    }
    found
}

/// Visits every set of places that are free.
fn extend(
    places: &[(Part, usize)],
    occupied: u32,
    counts: &mut Vec<u32>,
    created: &mut Vec<Part>,
    visit: &mut impl FnMut(&[u32], &[Part]),
) {
    let [(part, at), rest @ ..] = places else {
        return visit(counts, created);
    };
    if occupied & part.mask() == 0 {
        counts[*at] += 1;
        created.push(*part);
        extend(rest, occupied | part.mask(), counts, created, visit);
        created.pop();
        counts[*at] -= 1;
    }
    extend(rest, occupied, counts, created, visit);
}

fn occupied(parts: &[Part]) -> u32 {
    parts.iter().map(|part| part.mask()).fold(0, BitOr::bitor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mig::{Instance, Placement};

    fn part(start: u32, slices: u32, pinned: bool) -> Part {
        Part { start, slices, pinned }
    }

    #[test]
    fn sizes_and_starts_are_those_of_the_hardware() {
        #[track_caller]
        fn check(whole: u32, expected: &[(u32, &[u32])]) {
            let found: Vec<_> = sizes(whole)
                .map(|size| (size, starts(whole, size).collect::<Vec<_>>()))
                .collect();
            let expected: Vec<_> = expected.iter().map(|&(size, at)| (size, at.to_vec())).collect();
            assert_eq!(found, expected);
        }
        check(1, &[(1, &[0])]);
        check(2, &[(1, &[0, 1]), (2, &[0])]);
        check(3, &[(1, &[0, 1, 2]), (2, &[0]), (3, &[0])]);
        check(4, &[(1, &[0, 1, 2, 3]), (2, &[0, 2]), (4, &[0])]);
        let seven: &[(u32, &[u32])] = &[
            (1, &[0, 1, 2, 3, 4, 5, 6]),
            (2, &[0, 2, 4]),
            (3, &[0, 4]),
            (4, &[0]),
            (7, &[0]),
        ];
        check(7, seven);
    }

    #[test]
    fn one_that_has_all_is_the_usual_case_and_is_not_written() {
        let profile: Profile = "3g.40gb".parse().unwrap();
        assert_eq!(Compute::of(&profile, vec![Part::whole(&profile)]), Compute::Whole);
        let divided = vec![part(0, 2, false), part(2, 1, false)];
        assert_eq!(Compute::of(&profile, divided.clone()), Compute::Parts(divided));
        let less = vec![part(0, 2, false)];
        assert_eq!(Compute::of(&profile, less.clone()), Compute::Parts(less));

        let placement = Placement { start: 0, size: 4 };
        let mut held = Held::whole(Instance { placement, profile }, false);
        let written = |held: &Held| serde_json::to_value(held).unwrap();
        assert!(written(&held).get("compute").is_none());
        held.compute = Compute::Parts(vec![]);
        assert!(written(&held).get("compute").is_some());
    }

    #[test]
    fn as_few_instances_as_can_hold_them() {
        #[track_caller]
        fn check(whole: u32, wanted: &[(u32, u32)], expected: Option<u32>) {
            assert_eq!(fewest(whole, wanted), expected);
        }
        check(3, &[(1, 3)], Some(1));
        check(3, &[(1, 4)], Some(2));
        check(3, &[(2, 2)], Some(2));
        check(3, &[(2, 1), (1, 1)], Some(1));
        check(7, &[(3, 3)], Some(2));
        check(3, &[(3, 2)], Some(2));
        check(4, &[(3, 1)], None);
        check(1, &[(1, 1_000_000_000)], Some(1_000_000_000));
        check(3, &[(5, 0)], Some(0));
        // Up to the most that a GPU has it is known whether they are enough.
        check(3, &[(2, 7)], Some(7));
        check(3, &[(2, 8)], Some(8));
        check(2, &[(2, 3), (1, 9)], Some(8));
        // Sizes that do not fill the instances of which there would be many.
        check(3, &[(2, 20), (1, 30)], Some(24));
        check(7, &[(3, 20), (2, 20)], Some(15));
        check(7, &[(3, 8), (2, 5), (1, 5)], Some(6));
    }

    #[test]
    fn what_is_in_use_stays_and_as_much_of_the_rest_as_can() {
        let used = vec![part(0, 1, true), part(1, 1, false), part(2, 1, false)];
        let kept = divide(3, std::slice::from_ref(&used), &[(1, 2)]).unwrap();
        assert_eq!(kept.destroyed, 1);
        assert!(kept.changes[0].1.is_empty());
        assert_eq!(divide(3, std::slice::from_ref(&used), &[(3, 1)]), None);
        // Two slices start at 0 alone, which is in use.
        assert_eq!(divide(3, &[used], &[(1, 1), (2, 1)]), None);
        let free = divide(3, &[vec![part(0, 3, false)]], &[(1, 1), (2, 1)]).unwrap();
        assert_eq!(
            free.changes,
            [(vec![part(0, 3, false)], vec![part(0, 2, false), part(2, 1, false)])]
        );
    }

    #[test]
    fn two_that_are_idle_make_room_for_one_of_their_size() {
        let ones: Vec<_> = (0..7).map(|start| part(start, 1, start == 6)).collect();
        let division = divide(7, std::slice::from_ref(&ones), &[(2, 1), (1, 5)]).unwrap();
        assert_eq!(division.destroyed, 2);
        assert_eq!(division.changes, [(ones[..2].to_vec(), vec![part(0, 2, false)])]);
        // None stays empty, none gets more than it holds.
        assert_eq!(divide(3, &[vec![], vec![]], &[(3, 1)]), None);
        assert_eq!(divide(3, &[vec![]], &[(1, 4)]), None);
    }

    #[test]
    fn what_serves_least_is_not_offered() {
        #[track_caller]
        fn check(parts: &[Part], sizes: &[u32], expected: &[(&[u32], usize, usize)]) {
            let found = supplies(3, parts, sizes);
            let mut found: Vec<_> = found
                .iter()
                .map(|choice| (&choice.counts[..], choice.destroyed.len(), choice.created.len()))
                .collect();
            found.sort_unstable();
            assert_eq!(found, expected);
        }
        // Nothing done is a way of its own, as it touches nothing.
        check(&[], &[1], &[(&[0], 0, 0), (&[3], 0, 3)]);
        check(&[part(0, 3, false)], &[1], &[(&[0], 0, 0), (&[3], 1, 3)]);
        check(&[part(0, 1, true)], &[1], &[(&[0], 0, 0), (&[2], 0, 2)]);
        check(&[part(0, 1, false)], &[1], &[(&[1], 0, 0), (&[3], 0, 2)]);
        check(&[part(0, 3, true)], &[1, 3], &[(&[0, 0], 0, 0)]);
    }

    #[test]
    fn what_is_made_anew_lies_as_the_driver_would_put_it() {
        #[track_caller]
        fn check(whole: u32, sizes: &[u32], expected: Option<&[u32]>) {
            let parts: Vec<_> = sizes.iter().map(|&slices| part(9, slices, false)).collect();
            let starts = packed(whole, &parts).map(|parts| parts.iter().map(|part| part.start).collect::<Vec<_>>());
            assert_eq!(starts.as_deref(), expected);
        }
        check(7, &[1, 2, 4], Some(&[0, 4, 6]));
        check(7, &[3, 3], Some(&[0, 4]));
        check(7, &[1, 1, 2], Some(&[0, 2, 3]));
        check(3, &[2, 1], Some(&[0, 2]));
        check(3, &[2, 2], None);
        check(2, &[], Some(&[]));
    }

    #[test]
    fn instances_that_are_right_already_are_left_alone() {
        let whole = vec![part(0, 2, false)];
        let division = divide(2, &[whole.clone(), whole], &[(2, 2)]).unwrap();
        assert_eq!(division.destroyed, 0);
        assert!(
            division
                .changes
                .iter()
                .all(|(gone, made)| gone.is_empty() && made.is_empty())
        );
    }
}
