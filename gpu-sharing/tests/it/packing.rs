use std::{collections::HashSet, sync::Arc};

use gpu_sharing::mig::{Catalogue, Demand, Fleet, GpuState, Mode, PlanError, plan};

use crate::brute;

const NAMES: [&str; 6] = ["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"];

/// Whether counts of the profiles above fit on empty GPUs: halves first, then pairs, then slices.
///
/// Counts blocks and knows nothing of placements.
fn fits(gpus: i64, [one, double, two, three, four, seven]: [i64; 6]) -> bool {
    let gpus = gpus - seven;
    let right = (gpus - three).max(0);
    let left = gpus - four - (three - gpus).max(0);
    let pairs = 2 * left + right - two - (double - right).max(0);
    let poor = (right - double).max(0);
    gpus >= 0 && left >= 0 && pairs >= 0 && one <= 2 * pairs + poor
}

fn fleet(gpus: i64) -> Fleet {
    let board = Catalogue::builtin().board("H100-80GB").expect("built in");
    let gpu = |at| GpuState {
        name: format!("gpu-{at}"),
        board: Arc::clone(board),
        mode: Mode::Enabled,
        instances: Vec::new(),
    };
    Fleet::new((0..gpus).map(gpu)).expect("empty GPUs")
}

/// 400 requests with shares in percent, drawn by a small generator.
fn requests(shares: [u32; 6], seed: u32) -> [i64; 6] {
    let mut counts = [0; 6];
    let mut state = seed;
    for _ in 0..400 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let mut left = (state >> 8) % shares.iter().sum::<u32>();
        let kind = shares.iter().position(|&share| {
            let found = left < share;
            left = left.saturating_sub(share);
            found
        });
        counts[kind.expect("below the sum")] += 1;
    }
    counts
}

/// All counts of up to three GPUs, found by trying every set of placements, against the counting of blocks.
#[test]
fn counting_blocks_is_right_for_up_to_three_gpus() {
    let table = brute::table(&[
        ("1g.10gb", &[0, 1, 2, 3, 4, 5, 6], 1, 7),
        ("1g.20gb", &[0, 2, 4, 6], 2, 4),
        ("2g.20gb", &[0, 2, 4], 2, 3),
        ("3g.40gb", &[0, 4], 4, 2),
        ("4g.40gb", &[0], 4, 1),
        ("7g.80gb", &[0], 8, 1),
    ]);
    let one = brute::counts(&table);
    let mut together: HashSet<Vec<i64>> = HashSet::from([vec![0; NAMES.len()]]);
    for gpus in 1..=3 {
        let sums = together
            .iter()
            .flat_map(|a| one.iter().map(|b| a.iter().zip(b).map(|(a, b)| a + b).collect()));
        together = sums.collect();
        // One more than there can be of each.
        let tops = [7, 4, 3, 2, 1, 1].map(|most| most * gpus + 1);
        let all = (0..tops.iter().map(|top| top + 1).product()).map(|mut number: i64| {
            tops.map(|top| {
                let n = number % (top + 1);
                number /= top + 1;
                n
            })
        });
        for counts in all {
            assert_eq!(
                fits(gpus, counts),
                together.contains(&counts[..]),
                "{counts:?} on {gpus}"
            );
        }
    }
}

#[test]
fn as_few_gpus_as_can_be_for_four_hundred_requests() {
    let mixes = [
        [1, 1, 1, 1, 1, 1],
        [35, 20, 20, 12, 8, 5],
        [5, 8, 12, 20, 20, 35],
        [35, 8, 7, 7, 8, 35],
        [25, 15, 25, 20, 15, 0],
    ];
    for (mix, seed) in mixes.into_iter().flat_map(|mix| [(mix, 1), (mix, 2)]) {
        let counts = requests(mix, seed);
        let optimum = (0..=400).find(|&gpus| fits(gpus, counts)).expect("at most one each");
        let count = |(name, n): (&&str, i64)| (name.parse().expect("a profile"), u32::try_from(n).expect("few"));
        let demand: Demand = NAMES.iter().zip(counts).map(count).collect();
        let enough = plan(&fleet(optimum), &demand).expect("the count says that it fits");
        assert_eq!(enough.cost.touched, u32::try_from(optimum).expect("few"), "{mix:?}");
        let short = plan(&fleet(optimum - 1), &demand).expect_err("the count says that it does not fit");
        assert!(matches!(short, PlanError::Short(_)), "{mix:?}: {short}");
    }
}
