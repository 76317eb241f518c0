//! The manager is killed at each of its requests: what the next one makes of it.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::Bench;

/// Two whole GPUs, of which one is to be made of halves: somebody has to wait, instances go and come.
fn bench() -> Bench {
    let bench = Bench::new();
    bench.node.create_mig(0, "7g.80gb", None).expect("it fits");
    bench.ask("halves");
    bench
}

#[test]
fn a_manager_that_is_killed_at_any_of_its_requests_is_repaired_by_its_next_start() {
    let mut last = 0;
    for request in 1.. {
        let bench = bench();
        bench.api.change(|state| state.mute_from = Some(request));
        let manager = bench.start(&[]);
        let start = Instant::now();
        while bench.api.state().requests < request && start.elapsed() < Duration::from_secs(3) {
            thread::sleep(Duration::from_millis(2));
        }
        let reached = bench.api.state().requests >= request;
        manager.kill();
        bench.api.change(|state| state.mute_from = None);
        let _manager = bench.start(&[]);
        bench.ends("success", "halves");
        assert_eq!(bench.devices().len(), 4, "request {request}");
        if !reached {
            last = request;
            break;
        }
    }
    assert!(last >= 10, "a change takes more requests than {last}");
}
