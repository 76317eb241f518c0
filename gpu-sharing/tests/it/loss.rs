use gpu_sharing::mig::{Geometry, loss};
use proptest::prelude::*;

use crate::{
    brute,
    fleets::{cases, occupied},
};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_lost_is_what_no_longer_fits(case in cases(1..=1, 4, 7, 1, 1)) {
        let (fleet, (tables, _)) = (case.fleet(), case.brute());
        let (gpu, table) = (&fleet.gpus()[0], &tables[0].table);
        let geometry = Geometry::from_instances(&gpu.board, gpu.instances.iter().map(|held| held.instance.clone()));
        prop_assert_eq!(loss(&gpu.board, &geometry.unwrap()), brute::lost(table, occupied(gpu)));
    }
}
