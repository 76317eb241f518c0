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
        Some(_) => Division::new(affinity, required, size).best(all)?,
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
    /// By what is left: the set with its lowest member in the best division, once it is known.
    sets: Vec<u16>,
    /// And the division's sum.
    sums: Vec<i32>,
}

/// No division at all, and little enough that adding to it stays below everything.
const IMPOSSIBLE: i32 = i32::MIN / 2;

impl<'a> Division<'a> {
    fn new(affinity: &'a Affinity, required: usize, size: usize) -> Self {
        Self {
            affinity,
            required,
            size,
            sets: vec![0; 1 << affinity.len()],
            sums: vec![0; 1 << affinity.len()],
        }
    }

    fn score(&self, set: usize) -> i32 {
        self.affinity
            .set(set)
            .map_or(0, |score| i32::try_from(score).unwrap_or(i32::MAX / 4))
    }

    /// The best set of the best division that has what is required.
    fn best(mut self, all: usize) -> Option<usize> {
        if self.divide(all).0 <= IMPOSSIBLE {
            return None;
        }
        let (mut left, mut best) = (all, None);
        while left != 0 {
            let (_, set) = self.divide(left);
            if set == 0 {
                return best;
            }
            let serves = set.count_ones() as usize == self.size && set & self.required == self.required;
            let better = |best: usize| self.score(set) > self.score(best);
            if serves && best.is_none_or(better) {
                best = Some(set);
            }
            left &= !set;
        }
        best
    }

    /// The best sum of scores of what is left, and the set that its lowest member is in.
    fn divide(&mut self, left: usize) -> (i32, usize) {
        if left == 0 || self.sets[left] != 0 {
            return (self.sums[left], usize::from(self.sets[left]));
        }
        let lowest = left & left.wrapping_neg();
        let over = left.count_ones() as usize % self.size;
        let mut best = (IMPOSSIBLE, 0);
        for size in [Some(self.size), Some(over).filter(|over| *over > 0)]
            .into_iter()
            .flatten()
        {
            if left.count_ones() as usize >= size {
                self.extend(left, lowest, left & !lowest, size - 1, &mut best);
            }
        }
        self.sums[left] = best.0;
        self.sets[left] = u16::try_from(best.1).unwrap_or(0); // a table is for 16 GPUs at most
        best
    }

    /// Tries every set that has `set` and `more` of `from`, lowest first.
    fn extend(&mut self, left: usize, set: usize, from: usize, more: usize, best: &mut (i32, usize)) {
        if more == 0 {
            // What is required stays together, in a full set.
            let has = set & self.required;
            let full = set.count_ones() as usize == self.size;
            if has != 0 && (has != self.required || !full) {
                return;
            }
            let sum = self.score(set) + self.divide(left & !set).0;
            if sum > best.0 {
                *best = (sum, set);
            }
            return;
        }
        let mut from = from;
        while from.count_ones() as usize >= more {
            let next = from & from.wrapping_neg();
            from &= !next;
            self.extend(left, set | next, from, more - 1, best);
        }
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
