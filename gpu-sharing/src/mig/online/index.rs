use std::sync::Arc;

use crate::mig::{Board, Candidate, Instance, OnlineError, Policy, Profile, States};

/// A fleet that takes one request after the other.
///
/// GPUs are kept by their state, and for each profile the states by what the policy makes of them, so that a decision looks
/// at a few words and never scans the fleet.
///
/// ```
/// use gpu_sharing::mig::{Buddy, Catalogue, Online};
///
/// let board = Catalogue::builtin().board("H100-80GB").unwrap();
/// let mut online = Online::new(&Buddy, &[board.clone(), board.clone()], &board.base_profiles())?;
/// let small = "1g.10gb".parse()?;
/// let (gpu, instance) = online.place(&small).unwrap();
/// assert_eq!((gpu, instance.to_string().as_str()), (0, "1g.10gb@6"));
/// online.release(gpu, &instance)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Online {
    pools: Vec<Pool>,
    /// Pool and place in it of each GPU.
    gpus: Vec<(usize, usize)>,
}

/// GPUs of one board.
#[derive(Debug, Clone)]
struct Pool {
    states: States,
    /// The GPUs' numbers in the fleet.
    numbers: Vec<usize>,
    state: Vec<u16>,
    /// By state, the GPUs that are in it.
    members: Vec<Bits>,
    ranks: Vec<Ranks>,
}

/// What the policy makes of the states for one profile.
#[derive(Debug, Clone)]
struct Ranks {
    /// States that have room, best first: state, placement, score.
    order: Vec<(u16, usize, i64)>,
    /// The place of each state in `order`.
    place: Vec<Option<usize>>,
    /// Places whose state has GPUs.
    filled: Bits,
}

impl Online {
    /// An empty fleet of these boards, which takes requests of these profiles by a policy.
    ///
    /// # Errors
    ///
    /// As [`States::new`], for the first board that has none of the profiles.
    pub fn new(policy: &impl Policy, gpus: &[Arc<Board>], profiles: &[Profile]) -> Result<Self, OnlineError> {
        let mut online = Self {
            pools: Vec::new(),
            gpus: Vec::new(),
        };
        for (number, board) in gpus.iter().enumerate() {
            let known = online.pools.iter().position(|pool| pool.states.board() == board);
            let at = known.unwrap_or(online.pools.len());
            if at == online.pools.len() {
                online.pools.push(Pool::new(States::new(board, profiles)?, policy));
            }
            let pool = &mut online.pools[at];
            online.gpus.push((at, pool.numbers.len()));
            pool.numbers.push(number);
            pool.state.push(0);
        }
        for pool in &mut online.pools {
            pool.members = vec![Bits::new(pool.numbers.len()); pool.states.len()];
            (0..pool.numbers.len()).for_each(|gpu| pool.join(gpu, 0));
        }
        Ok(online)
    }

    /// Takes the best place for a request, or `None` if no GPU has room: its number in the fleet and the instance.
    ///
    /// Where boards differ, the least score of all decides.
    pub fn place(&mut self, profile: &Profile) -> Option<(usize, Instance)> {
        let best = |(at, pool): (usize, &Pool)| {
            let profile = pool.states.profiles().iter().position(|known| known == profile)?;
            let (score, gpu, placement) = pool.best(profile)?;
            Some((score, pool.numbers[gpu], at, gpu, profile, placement))
        };
        let (_, number, at, gpu, index, placement) = self.pools.iter().enumerate().filter_map(best).min()?;
        let pool = &mut self.pools[at];
        let after = pool.states.add(pool.state[gpu], index, placement)?;
        pool.go(gpu, after);
        let placement = pool.states.runs(index)[placement].0;
        Some((
            number,
            Instance {
                placement,
                profile: profile.clone(),
            },
        ))
    }

    /// Puts an instance on a GPU where it already is, or where somebody else has decided that it goes.
    ///
    /// # Errors
    ///
    /// [`OnlineError::NoGpu`]; [`OnlineError::NoRoom`] if it does not fit the GPU's state.
    pub fn occupy(&mut self, gpu: usize, instance: &Instance) -> Result<(), OnlineError> {
        let error = || OnlineError::NoRoom {
            gpu,
            instance: instance.clone(),
        };
        self.step(
            gpu,
            instance,
            |states, state, (profile, at)| states.add(state, profile, at),
            error,
        )
    }

    /// Gives the place of an instance back.
    ///
    /// # Errors
    ///
    /// [`OnlineError::NoGpu`]; [`OnlineError::NoInstance`] if the GPU cannot have such an instance now.
    pub fn release(&mut self, gpu: usize, instance: &Instance) -> Result<(), OnlineError> {
        let error = || OnlineError::NoInstance {
            gpu,
            instance: instance.clone(),
        };
        self.step(
            gpu,
            instance,
            |states, state, (profile, at)| states.remove(state, profile, at),
            error,
        )
    }

    /// The occupied memory slots of a GPU, one bit each.
    pub fn occupied(&self, gpu: usize) -> Option<u32> {
        let &(pool, gpu) = self.gpus.get(gpu)?;
        Some(self.pools[pool].states.occupied(self.pools[pool].state[gpu]))
    }

    fn step(
        &mut self,
        gpu: usize,
        instance: &Instance,
        next: impl Fn(&States, u16, (usize, usize)) -> Option<u16>,
        error: impl Fn() -> OnlineError,
    ) -> Result<(), OnlineError> {
        let &(pool, at) = self.gpus.get(gpu).ok_or(OnlineError::NoGpu { gpu })?;
        let pool = &mut self.pools[pool];
        let numbers = pool.states.find(instance).ok_or_else(&error)?;
        let after = next(&pool.states, pool.state[at], numbers).ok_or_else(error)?;
        pool.go(at, after);
        Ok(())
    }
}

impl Pool {
    fn new(states: States, policy: &impl Policy) -> Self {
        let ranks = (0..states.profiles().len())
            .map(|profile| Ranks::new(&states, policy, profile))
            .collect();
        Self {
            states,
            numbers: Vec::new(),
            state: Vec::new(),
            members: Vec::new(),
            ranks,
        }
    }

    /// Score, GPU and placement.
    fn best(&self, profile: usize) -> Option<(i64, usize, usize)> {
        let ranks = &self.ranks[profile];
        let first = ranks.filled.first_from(0)?;
        let (_, _, score) = ranks.order[first];
        let mut best: Option<(usize, usize)> = None;
        let mut next = Some(first);
        while let Some(place) = next {
            let (state, placement, tied) = ranks.order[place];
            if tied != score {
                break;
            }
            if let Some(gpu) = self.members[usize::from(state)].first_from(0) {
                best = Some(best.map_or((gpu, placement), |best| best.min((gpu, placement))));
            }
            next = ranks.filled.first_from(place + 1);
        }
        best.map(|(gpu, placement)| (score, gpu, placement))
    }

    fn go(&mut self, gpu: usize, after: u16) {
        let before = self.state[gpu];
        self.members[usize::from(before)].set(gpu, false);
        if self.members[usize::from(before)].count == 0 {
            self.mark(before, false);
        }
        self.join(gpu, after);
    }

    fn join(&mut self, gpu: usize, state: u16) {
        self.state[gpu] = state;
        self.members[usize::from(state)].set(gpu, true);
        if self.members[usize::from(state)].count == 1 {
            self.mark(state, true);
        }
    }

    fn mark(&mut self, state: u16, filled: bool) {
        for ranks in &mut self.ranks {
            if let Some(place) = ranks.place[usize::from(state)] {
                ranks.filled.set(place, filled);
            }
        }
    }
}

impl Ranks {
    fn new(states: &States, policy: &impl Policy, profile: usize) -> Self {
        let count = u16::try_from(states.len()).unwrap_or(u16::MAX);
        let best = |before: u16| {
            let candidates = (0..states.runs(profile).len()).filter_map(|placement| {
                let after = states.add(before, profile, placement)?;
                Some((
                    policy.score(
                        states,
                        Candidate {
                            before,
                            profile,
                            placement,
                            after,
                        },
                    ),
                    placement,
                ))
            });
            let (score, placement) = candidates.min()?;
            Some((score.gpu, before, placement))
        };
        let mut order: Vec<_> = (0..count).filter_map(best).collect();
        order.sort_unstable();
        let mut place = vec![None; states.len()];
        for (at, (_, state, _)) in order.iter().enumerate() {
            place[usize::from(*state)] = Some(at);
        }
        let filled = Bits::new(order.len());
        Self {
            order: order
                .into_iter()
                .map(|(score, state, placement)| (state, placement, score))
                .collect(),
            place,
            filled,
        }
    }
}

/// A set of small numbers, with a summary so that the first is found in a few steps.
#[derive(Debug, Clone)]
struct Bits {
    words: Vec<u64>,
    summary: Vec<u64>,
    count: usize,
}

impl Bits {
    fn new(len: usize) -> Self {
        let words = len.div_ceil(64).max(1);
        Self {
            words: vec![0; words],
            summary: vec![0; words.div_ceil(64)],
            count: 0,
        }
    }

    fn set(&mut self, at: usize, on: bool) {
        let (word, bit) = (at / 64, 1 << (at % 64));
        if (self.words[word] & bit != 0) == on {
            return;
        }
        self.words[word] ^= bit;
        self.count = if on { self.count + 1 } else { self.count - 1 };
        let bit = 1 << (word % 64);
        if self.words[word] == 0 {
            self.summary[word / 64] &= !bit;
        } else {
            self.summary[word / 64] |= bit;
        }
    }

    fn first_from(&self, at: usize) -> Option<usize> {
        let word = at / 64;
        let rest = self.words.get(word)? & (u64::MAX << (at % 64));
        if rest != 0 {
            return Some(word * 64 + rest.trailing_zeros() as usize);
        }
        let next = word + 1;
        let mut from = u64::MAX << (next % 64);
        for (at, &summary) in self.summary.iter().enumerate().skip(next / 64) {
            let words = summary & from;
            if words != 0 {
                let word = at * 64 + words.trailing_zeros() as usize;
                return Some(word * 64 + self.words[word].trailing_zeros() as usize);
            }
            from = u64::MAX;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::Bits;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Beyond 4,096 the summary has more than one word.
        #[test]
        fn bits_are_a_set(
            len in 1_usize..20_000,
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..60),
            asked in prop::collection::vec(any::<prop::sample::Index>(), 8),
        ) {
            let (mut bits, mut set) = (Bits::new(len), BTreeSet::new());
            for (at, on) in changes {
                let at = at.index(len);
                bits.set(at, on);
                if on {
                    set.insert(at);
                } else {
                    set.remove(&at);
                }
                prop_assert_eq!(bits.count, set.len());
            }
            for at in asked.iter().map(|at| at.index(len + 1)).chain([0, len]) {
                prop_assert_eq!(bits.first_from(at), set.range(at..).next().copied(), "from {}", at);
            }
        }
    }
}
