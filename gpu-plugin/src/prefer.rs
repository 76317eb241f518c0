//! Which GPUs to give together.

use crate::affinity::{Affinity, bits};

/// The GPUs to take, by their places in the order of [`Affinity`]: `size` of `available` with all of `required`.
///
/// As the vendor's plugin chooses (go-gpuallocator v0.6.0, `besteffort_policy.go`): of all ways to divide the available GPUs
/// into sets of `size`, and one smaller set of what is left over, the one with the highest sum of scores in which a full set
/// has all the required ones; of its sets the best that has them. So what is left serves the next container well. Among equals
/// the lowest places win, where the vendor leaves it to chance; and it stays exact where the vendor's loses the best division
/// (14 to 16 GPUs).
///
/// `None` where there is no such set.
pub fn choose(affinity: &Affinity, available: &[usize], required: &[usize], size: usize) -> Option<Vec<usize>> {
    let all = mask(available)?;
    let required = mask(required)?;
    let count = all.count_ones() as usize;
    if size == 0 || size > count || required.count_ones() as usize > size || required & !all != 0 {
        return None;
    }
    if size == count {
        return Some(bits(all).collect());
    }
    if size == required.count_ones() as usize {
        return Some(bits(required).collect());
    }
    if size == 1 {
        return bits(all).next().map(|first| vec![first]);
    }
    let chosen = match affinity.set(0) {
        Some(_) => Division::new(affinity, all, required, size).best(all)?,
        None => greedy(affinity, all, required, size),
    };
    Some(bits(chosen).collect())
}

/// The set with these places; `None` where one is too high.
fn mask(places: &[usize]) -> Option<usize> {
    places.iter().try_fold(0, |mask, place| {
        let bit = 1_usize.checked_shl(u32::try_from(*place).ok()?)?;
        Some(mask | bit)
    })
}

/// The search for the best division, over what is left to divide.
struct Division<'a> {
    affinity: &'a Affinity,
    required: usize,
    size: usize,
    /// The highest score of a full set, and of a set of what is left over.
    highest: (i32, i32),
    /// By what is left: the best division, once it is known.
    known: Vec<Known>,
}

/// The best division of what is left.
#[derive(Clone, Copy)]
struct Known {
    /// The sum of its scores; [`IMPOSSIBLE`] where there is none, [`UNKNOWN`] before the search.
    sum: i32,
    /// Its set with the lowest member.
    first: u16,
}

const UNKNOWN: i32 = -2;
const IMPOSSIBLE: i32 = -1;

impl<'a> Division<'a> {
    fn new(affinity: &'a Affinity, all: usize, required: usize, size: usize) -> Self {
        let mut division = Self {
            affinity,
            required,
            size,
            highest: (0, 0),
            known: vec![Known { sum: UNKNOWN, first: 0 }; all + 1],
        };
        let count = all.count_ones() as usize;
        let highest = |size| {
            let mut highest = 0;
            subsets(0, all, count, size, &mut |set| {
                highest = highest.max(division.score(set));
            });
            highest
        };
        division.highest = (highest(size), highest(count % size));
        division
    }

    fn score(&self, set: usize) -> i32 {
        let most = i32::MAX / 16; // the sum of 16 sets' scores is a number too
        self.affinity
            .set(set)
            .map_or(0, |score| i32::try_from(score).map_or(most, |score| score.min(most)))
    }

    /// The best set of the best division that has what is required.
    fn best(mut self, all: usize) -> Option<usize> {
        self.divide(all, all.count_ones() as usize)?;
        let (mut left, mut best) = (all, None);
        while left != 0 {
            let set = if left.count_ones() as usize <= self.size {
                left
            } else {
                usize::from(self.known[left].first)
            };
            let serves = set.count_ones() as usize == self.size && set & self.required == self.required;
            let better = |best: usize| self.score(set) > self.score(best);
            if serves && best.is_none_or(better) {
                best = Some(set);
            }
            left &= !set;
        }
        best
    }

    /// The best sum of scores of what is left, which are `count`; `None` where it cannot be divided.
    fn divide(&mut self, left: usize, count: usize) -> Option<i32> {
        if count <= self.size {
            return self.value(left, count == self.size);
        }
        if self.known[left].sum == UNKNOWN {
            self.known[left] = self.search(left, count);
        }
        Some(self.known[left].sum).filter(|sum| *sum != IMPOSSIBLE)
    }

    fn search(&mut self, left: usize, count: usize) -> Known {
        let lowest = left & left.wrapping_neg();
        let bound = self.bound(count);
        let mut best = Known {
            sum: IMPOSSIBLE,
            first: 0,
        };
        for size in [self.size, count % self.size].into_iter().filter(|size| *size > 0) {
            let rest = self.bound(count - size);
            subsets(lowest, left & !lowest, count - 1, size - 1, &mut |set| {
                if best.sum == bound {
                    return;
                }
                let value = self.value(set, size == self.size);
                let Some(value) = value.filter(|value| value + rest > best.sum) else {
                    return;
                };
                let others = self.divide(left & !set, count - size);
                if let Some(sum) = others.map(|others| value + others).filter(|sum| *sum > best.sum) {
                    let first = u16::try_from(set).unwrap_or(0); // a table is for 16 GPUs at most
                    best = Known { sum, first };
                }
            });
        }
        best
    }

    /// No division of so many GPUs has a higher sum.
    fn bound(&self, count: usize) -> i32 {
        let full = i32::try_from(count / self.size).unwrap_or(i32::MAX);
        let over = if count.is_multiple_of(self.size) {
            0
        } else {
            self.highest.1
        };
        full * self.highest.0 + over
    }

    /// What a set adds to the sum; `None` where it parts what is required, which stays together in a full set.
    fn value(&self, set: usize, full: bool) -> Option<i32> {
        let has = set & self.required;
        (has == 0 || full && has == self.required).then(|| self.score(set))
    }
}

/// Every set that has `set` and `more` of the `count` in `from`, lowest first.
fn subsets(set: usize, mut from: usize, mut count: usize, more: usize, each: &mut impl FnMut(usize)) {
    if more == 0 {
        return each(set);
    }
    while count >= more {
        let next = from & from.wrapping_neg();
        from &= !next;
        count -= 1;
        subsets(set | next, from, count, more - 1, each);
    }
}

/// One after the other, each the one that adds most. For nodes with more GPUs than there are scores of sets for.
fn greedy(affinity: &Affinity, all: usize, required: usize, size: usize) -> usize {
    let gain = |set: usize, gpu: usize| bits(set).map(|other| affinity.pair(gpu, other)).sum::<u32>();
    let grow = |start: usize| {
        let mut set = start;
        let mut score = 0;
        while (set.count_ones() as usize) < size {
            let best = bits(all & !set).first_max_by(|gpu| gain(set, *gpu));
            let Some(best) = best else { break };
            score += gain(set, best);
            set |= 1 << best;
        }
        (score, set)
    };
    if required != 0 {
        return grow(required).1;
    }
    let starts = bits(all).map(|gpu| grow(1 << gpu));
    starts
        .fold(
            (0, 0),
            |best, next| if best.1 == 0 || next.0 > best.0 { next } else { best },
        )
        .1
}

/// The first among equals, where [`Iterator::max_by_key`] takes the last.
trait FirstMax: Iterator + Sized {
    fn first_max_by(self, key: impl Fn(&Self::Item) -> u32) -> Option<Self::Item> {
        let mut best: Option<(u32, Self::Item)> = None;
        for item in self {
            let value = key(&item);
            if best.as_ref().is_none_or(|(highest, _)| value > *highest) {
                best = Some((value, item));
            }
        }
        best.map(|(_, item)| item)
    }
}

impl<I: Iterator> FirstMax for I {}

#[cfg(test)]
mod tests;
