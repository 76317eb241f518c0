//! Numbers that look random and are always the same for the same seed.

/// A number for one purpose (`what`) of one GPU (`slot`) of the node with that seed.
pub(crate) fn number(seed: u64, slot: u64, what: &str) -> u64 {
    let mut state = mix(seed ^ 0x9e37_79b9_7f4a_7c15);
    state = mix(state ^ slot);
    for byte in what.bytes() {
        state = mix(state ^ u64::from(byte));
    }
    state
}

/// A UUID of version 4, as the driver's are.
pub(crate) fn uuid(seed: u64, slot: u64) -> String {
    written(number(seed, slot, "uuid-high"), number(seed, slot, "uuid-low"), 4)
}

/// The UUID of a MIG device, of version 5 as the driver's are: the same for the same instance of the same GPU.
pub(crate) fn mig_uuid(gpu: &str, instance: u32, compute: u32) -> String {
    let ids = u64::from(instance) << 32 | u64::from(compute);
    let part = |what: &str| number(ids, 0, &format!("{what}{gpu}"));
    format!("MIG-{}", written(part("mig-high"), part("mig-low"), 5))
}

fn written(high: u64, low: u64, version: u64) -> String {
    let high = high & !0xf000 | version << 12;
    let low = low & !(0b11 << 62) | 0b10 << 62;
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

/// The numbers below `count`, shuffled; never in their natural order if there are two or more.
pub(crate) fn permutation(seed: u64, count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|&place| number(seed, place as u64, "order"));
    if order.is_sorted() && count > 1 {
        order.rotate_left(1);
    }
    order
}

/// The finaliser of splitmix64.
fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_has_the_version_and_variant_of_a_random_one() {
        for slot in 0..100 {
            let uuid = uuid(1, slot);
            assert_eq!(uuid.len(), 36);
            assert_eq!(uuid.as_bytes()[14], b'4', "{uuid}");
            assert!(b"89ab".contains(&uuid.as_bytes()[19]), "{uuid}");
        }
    }

    #[test]
    fn a_permutation_moves_something_and_loses_nothing() {
        for seed in 0..50 {
            for count in 2..9 {
                let mut order = permutation(seed, count);
                assert!(!order.is_sorted());
                order.sort_unstable();
                assert_eq!(order, (0..count).collect::<Vec<_>>());
            }
        }
        assert_eq!(permutation(3, 1), [0]);
    }
}
