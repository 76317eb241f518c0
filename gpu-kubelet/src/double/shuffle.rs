/// A reproducible source of disorder (SplitMix64): the kubelet's sets come out in no stable order.
#[derive(Debug)]
pub(super) struct Shuffle(u64);

impl Shuffle {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let chosen = self.next() % (last as u64 + 1);
            items.swap(last, usize::try_from(chosen).unwrap_or(last));
        }
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(seed: u64) -> Vec<usize> {
        let mut items: Vec<_> = (0..16).collect();
        Shuffle::new(seed).shuffle(&mut items);
        items
    }

    #[test]
    fn same_seed_same_order_of_the_same_items() {
        assert_eq!(order(1), order(1));
        let mut sorted = order(1);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..16).collect::<Vec<_>>());
    }

    #[test]
    fn other_seed_other_order() {
        assert_ne!(order(1), order(2));
    }
}
