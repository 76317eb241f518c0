use serde_json::json;

use super::*;

const GPU: &str = "GPU-00000000-0000-4000-8000-000000000000";

fn gpu() -> GpuUuid {
    GPU.parse().unwrap()
}

fn device(instance: Option<(u32, u32)>) -> OfferedDevice {
    OfferedDevice {
        uuid: GPU.to_owned(),
        index: "0".to_owned(),
        gpu: Some(gpu()),
        node: None,
        instance: instance.map(|(gpu, compute)| Instance { gpu, compute }),
        numa_node: None,
        replicas: None,
    }
}

fn event(kind: HealthEventKind, gpu_instance: Option<u32>) -> HealthEvent {
    HealthEvent {
        gpu: gpu(),
        kind,
        gpu_instance,
        compute_instance: gpu_instance.map(|_| 0),
    }
}

fn problem(kind: &str) -> Problem {
    let call = "nvmlDeviceGetHandleByIndex_v2";
    serde_json::from_value(json!({ "index": 0, "uuid": GPU, "kind": kind, "call": call, "message": "made up" }))
        .unwrap()
}

/// What happens, at which second.
enum What {
    Xid(u64),
    XidOf(u64, u32),
    Ecc,
    Lost(&'static str),
    NotWatched(&'static str),
    Sound,
    Broken,
    WantsReset,
    Silent,
    Away,
    DriverReloaded,
}

use What::{Away, Broken, DriverReloaded, Ecc, Lost, NotWatched, Silent, Sound, WantsReset, Xid, XidOf};

fn after(policy: HealthPolicy, story: &[(u64, What)]) -> HealthStates {
    let mut states = HealthStates::new(policy);
    for (second, what) in story {
        let now = Duration::from_secs(*second);
        match what {
            Xid(xid) => drop(states.event(now, &event(HealthEventKind::Xid(*xid), None))),
            XidOf(xid, instance) => drop(states.event(now, &event(HealthEventKind::Xid(*xid), Some(*instance)))),
            Ecc => drop(states.event(now, &event(HealthEventKind::DoubleBitEcc, None))),
            Lost(kind) => drop(states.lost(now, &gpu(), &problem(kind))),
            NotWatched(kind) => drop(states.not_watched(now, &problem(kind))),
            Sound => drop(states.looked(now, &gpu(), &Finding::Sound)),
            Broken => drop(states.looked(now, &gpu(), &Finding::Broken("made up".to_owned()))),
            WantsReset => drop(states.looked(now, &gpu(), &Finding::WantsReset("made up".to_owned()))),
            Silent => drop(states.looked(now, &gpu(), &Finding::Silent("made up".to_owned()))),
            Away => drop(states.looked(now, &gpu(), &Finding::Away("made up".to_owned()))),
            DriverReloaded => states.driver_reloaded(),
        }
    }
    states
}

/// The health of the whole GPU at the end, with a minute to be sound.
#[track_caller]
fn check(story: &[(u64, What)], expected: Health) {
    let states = after(HealthPolicy::default(), story);
    let health = states
        .ailing()
        .map(|(_, health)| health)
        .max()
        .unwrap_or(Health::Healthy);
    assert_eq!(health, expected);
    assert_eq!(states.is_healthy(&device(None)), expected != Health::Unhealthy);
}

#[test]
fn an_xid_makes_a_gpu_unhealthy_until_it_has_been_sound_for_a_while() {
    check(&[(0, Xid(13))], Health::Healthy);
    check(&[(0, Xid(95))], Health::Unhealthy);
    check(&[(0, Xid(95)), (5, Sound), (59, Sound)], Health::Unhealthy);
    check(&[(0, Xid(95)), (60, Sound)], Health::Healthy);
    check(&[(0, Xid(95)), (30, Xid(95)), (60, Sound)], Health::Unhealthy);
    check(&[(0, Xid(95)), (30, Xid(31)), (60, Sound)], Health::Healthy);
}

#[test]
fn time_alone_heals_nothing() {
    check(&[(0, Xid(95)), (1000, Away), (1001, Sound)], Health::Unhealthy);
    check(&[(0, Xid(95)), (1000, Away), (1060, Sound)], Health::Healthy);
    check(&[(0, Xid(95)), (1000, Broken), (1059, Sound)], Health::Unhealthy);
}

#[test]
fn a_fatal_xid_wants_the_gpu_to_have_been_away() {
    check(&[(0, Xid(79)), (1000, Sound)], Health::Unhealthy);
    check(&[(0, Xid(79)), (10, Lost("lost")), (70, Sound)], Health::Healthy);
    check(&[(0, Xid(79)), (10, Away), (20, Away), (79, Sound)], Health::Unhealthy);
    check(&[(0, Xid(79)), (10, DriverReloaded), (70, Sound)], Health::Healthy);
    check(
        &[(0, Xid(79)), (10, Lost("lost")), (20, Xid(79)), (90, Sound)],
        Health::Unhealthy,
    );
}

#[test]
fn a_fatal_xid_wants_the_gpu_to_have_been_reset_where_it_stays() {
    check(&[(0, Xid(79)), (5, WantsReset), (64, Sound)], Health::Unhealthy);
    check(&[(0, Xid(79)), (5, WantsReset), (65, Sound)], Health::Healthy);
    check(
        &[(0, Xid(79)), (5, WantsReset), (10, Sound), (65, Sound)],
        Health::Healthy,
    );
    check(&[(0, Xid(79)), (5, Broken), (1000, Sound)], Health::Unhealthy);
    // What waited before the Xid tells nothing of a reset after it.
    check(
        &[(0, Xid(79)), (5, WantsReset), (10, Xid(79)), (1000, Sound)],
        Health::Unhealthy,
    );
    check(&[(0, Xid(79)), (5, WantsReset), (65, Away)], Health::Unhealthy);
    let (policy, _) = HealthPolicy::new("all", "79");
    assert!(after(policy.clone(), &[(0, WantsReset)]).is_healthy(&device(None)));
    assert!(after(policy, &[(0, Xid(79)), (5, WantsReset), (60, Sound)]).is_healthy(&device(None)));
}

#[test]
fn a_gpu_that_is_lost_is_unhealthy_and_one_that_does_not_answer_is_suspect_first() {
    check(&[(0, Lost("lost"))], Health::Unhealthy);
    check(&[(0, Lost("hung"))], Health::Suspect);
    check(&[(0, Lost("hung")), (1, Away)], Health::Unhealthy);
    check(&[(0, Lost("hung")), (1, Sound)], Health::Healthy);
    check(&[(0, Lost("unreadable")), (1, Away), (30, Sound)], Health::Unhealthy);
}

#[test]
fn a_gpu_that_is_silent_is_given_time_and_has_not_been_away() {
    check(&[(0, Silent)], Health::Healthy); // that it hangs is told otherwise
    check(&[(0, Lost("hung")), (1, Silent), (24, Silent)], Health::Suspect);
    check(&[(0, Lost("hung")), (1, Silent), (25, Silent)], Health::Unhealthy);
    check(&[(0, Lost("hung")), (25, Silent), (84, Sound)], Health::Unhealthy);
    check(&[(0, Lost("hung")), (25, Silent), (85, Sound)], Health::Healthy);
    check(&[(0, Xid(95)), (59, Silent), (60, Sound)], Health::Unhealthy);
    check(
        &[(0, Xid(79)), (1, Lost("hung")), (2, Silent), (1000, Sound)],
        Health::Unhealthy,
    );
}

#[test]
fn an_uncorrected_memory_error_is_looked_into() {
    check(&[(0, Ecc)], Health::Suspect);
    check(&[(0, Ecc), (0, Sound)], Health::Healthy);
    check(&[(0, Ecc), (0, Broken)], Health::Unhealthy);
    check(&[(0, Ecc), (0, Broken), (60, Sound)], Health::Healthy);
    assert_eq!(
        after(HealthPolicy::default(), &[(7, Ecc)]).next_look(),
        Some(Duration::from_secs(7))
    );
}

#[test]
fn with_all_checks_disabled_only_a_lost_gpu_is_unhealthy() {
    let check = |story: &[(u64, What)], healthy| {
        let (policy, _) = HealthPolicy::new("all", "");
        assert_eq!(after(policy, story).is_healthy(&device(None)), healthy);
    };
    check(&[(0, Xid(79)), (0, Ecc), (1, Broken)], true);
    check(&[(0, Lost("lost"))], false);
}

#[test]
fn a_gpu_that_fails_when_asked_for_events_is_unhealthy() {
    check(&[(0, NotWatched("lost"))], Health::Unhealthy);
    check(&[(0, NotWatched("unreadable"))], Health::Unhealthy);
    check(&[(0, NotWatched("no_permission"))], Health::Unhealthy);
    check(&[(0, NotWatched("incomplete"))], Health::Healthy); // not supported: an old GPU
    check(&[(0, NotWatched("hung"))], Health::Healthy); // that it hangs is told otherwise
}

#[test]
fn after_an_xid_of_an_application_the_gpu_is_looked_at_and_no_more_often_than_an_ailing_one() {
    let second = Duration::from_secs;
    let next = |story: &[(u64, What)]| after(HealthPolicy::default(), story).next_look();
    assert_eq!(next(&[(3, Xid(13))]), Some(second(3)));
    assert_eq!(next(&[(3, Xid(13)), (4, Xid(31))]), Some(second(3)));
    assert_eq!(next(&[(3, Xid(13)), (3, Sound)]), None);
    assert_eq!(next(&[(3, Xid(13)), (3, Sound), (4, Xid(13))]), Some(second(8)));
    assert_eq!(next(&[(3, Xid(13)), (3, Sound), (20, Xid(13))]), Some(second(20)));
    check(&[(3, Xid(13)), (3, Broken)], Health::Unhealthy);
    check(&[(3, Xid(13)), (3, Away)], Health::Healthy); // that it is lost is told otherwise
    let (policy, _) = HealthPolicy::new("all", "");
    assert_eq!(after(policy, &[(3, Xid(13))]).next_look(), None);
}

#[test]
fn what_happens_to_a_part_touches_the_devices_of_that_part() {
    let states = after(HealthPolicy::default(), &[(0, XidOf(95, 7))]);
    assert!(!states.is_healthy(&device(Some((7, 0)))));
    assert!(states.is_healthy(&device(Some((7, 1)))));
    assert!(states.is_healthy(&device(Some((8, 0)))));
    assert!(!states.is_healthy(&device(None)), "a GPU that is offered whole");
    let states = after(HealthPolicy::default(), &[(0, Xid(95))]);
    assert!(!states.is_healthy(&device(Some((7, 0)))) && !states.is_healthy(&device(Some((8, 1)))));
}

#[test]
fn only_news_is_told() {
    let mut states = HealthStates::new(HealthPolicy::default());
    let xid = event(HealthEventKind::Xid(95), None);
    let change = states.event(Duration::ZERO, &xid).unwrap();
    assert_eq!(
        change.to_string(),
        format!("{GPU} is unhealthy (it was healthy): Xid 95")
    );
    assert_eq!(states.event(Duration::from_secs(1), &xid), None);
    assert_eq!(states.patients(), [gpu()].into());
    assert_eq!(states.next_look(), Some(Duration::ZERO));
    assert_eq!(states.looked(Duration::ZERO, &gpu(), &Finding::Sound), []);
    assert_eq!(states.next_look(), Some(Duration::from_secs(5)));
    let changes = states.looked(Duration::from_secs(61), &gpu(), &Finding::Sound);
    assert_eq!((changes[0].from, changes[0].to), (Health::Unhealthy, Health::Healthy));
    assert_eq!(states.next_look(), None);
}

#[test]
fn what_is_to_be_forgotten_is() {
    let mut states = after(HealthPolicy::default(), &[(0, Xid(79)), (1, Xid(13))]);
    states.forget(|gpu| gpu.as_str() != GPU);
    assert!(!states.is_healthy(&device(None)) && !states.patients().is_empty());
    states.forget(|_| true);
    assert!(states.is_healthy(&device(None)) && states.patients().is_empty());
}

#[test]
fn what_is_gone_is_forgotten() {
    let mut states = after(HealthPolicy::default(), &[(0, Xid(79))]);
    states.retain(|gpu| gpu.as_str() != GPU);
    assert!(states.is_healthy(&device(None)));
}
