use super::*;
use crate::{NodeSpec, driver, profile};

fn new() -> (tempfile::TempDir, State) {
    let folder = tempfile::tempdir().unwrap();
    let state = State::of(folder.path());
    state.create().unwrap();
    (folder, state)
}

fn file() -> NodeFile {
    let profile = profile::find("h100").unwrap();
    NodeFile::new(&NodeSpec::new("h100").gpus(1), profile, driver::find("550").unwrap()).unwrap()
}

#[test]
fn a_half_written_event_waits_and_a_foreign_line_is_passed_over() {
    let (_folder, state) = new();
    let mut event = Event::of_gpu("GPU-1", Event::XID, 79);
    (event.gpu_instance, event.compute_instance) = (1, 2);
    fs::write(state.events(), "nonsense\n").unwrap();
    state.append(&event).unwrap();
    let so_far = fs::read_to_string(state.events()).unwrap();
    fs::write(state.events(), so_far + "GPU-1 8 4").unwrap();
    let events = state.events_from(0);
    assert_eq!(events, [(9, 9 + "GPU-1 8 79 1 2\n".len() as u64, event)]);
    assert_eq!(state.events_from(events[0].1), []);
    // Its writer is gone: the next event is told all the same.
    let next = Event::of_gpu("GPU-2", Event::XID, 48);
    state.append(&next).unwrap();
    let after: Vec<_> = state
        .events_from(events[0].1)
        .into_iter()
        .map(|(_, _, event)| event)
        .collect();
    assert_eq!(after, [next]);
}

#[test]
fn a_change_is_seen_at_once_and_a_refused_one_leaves_nothing() {
    let (_folder, state) = new();
    let mut watched = Watched::new(state.clone()).unwrap();
    for generation in 1..50 {
        state
            .change(&file(), |record| {
                record.gpu_mut("GPU-1").lost ^= true;
                Ok::<_, Error>(())
            })
            .unwrap();
        let now = watched.now().unwrap();
        assert_eq!(now.generation, generation);
        assert_eq!(now.gpu("GPU-1").lost, generation % 2 == 1);
    }
    let refused: Result<()> = state.change(&file(), |record| {
        record.gpus.clear();
        Err(Error::NoSuchGpu { index: 0, count: 0 })
    });
    assert!(refused.is_err());
    assert_eq!(watched.now().unwrap().gpus.len(), 1);
}

#[track_caller]
fn check(text: &str, expected: &str) {
    let (_folder, state) = new();
    fs::write(state.record(), text).unwrap();
    let message = state.read().unwrap_err().to_string();
    assert!(
        message.contains("state/node`") && message.contains(expected),
        "{message}"
    );
}

#[test]
fn a_state_of_another_version_or_broken_is_refused_with_its_place() {
    check("version: 2\nfuture: yes\n", "version 2 of this format is not known");
    check(
        "version: 1\ngeneration: 4\ngpus:\n  GPU-1:\n    lots: true\n",
        "line 5: unknown field `lots`",
    );
    check("version: 1\ngeneration: [\n", "line ");
    check("", "unexpected end of input");
}

#[test]
fn numbers_that_cannot_be_are_refused_before_anybody_counts_with_them() {
    fn of_a_gpu(text: &str) -> String {
        format!("version: 1\ngeneration: 4\ngpus:\n  GPU-1:\n    {text}\n")
    }
    check(
        "version: 1\ngeneration: 18446744073709551615\n",
        "generation 18446744073709551615 is not below",
    );
    check(
        &of_a_gpu("compute_mode: 4"),
        "gpus, GPU-1: compute_mode 4 is not from 0 to 3",
    );
    check(
        &of_a_gpu("mig: { instances: [{ id: 4294967295, profile: 0, start: 0 }] }"),
        "gpus, GPU-1: mig.instances: there is no instance 4294967295 at 0",
    );
    check(
        &of_a_gpu("mig: { instances: [{ id: 7, profile: 0, start: 4294967295 }] }"),
        "there is no instance 7 at 4294967295",
    );
    check(
        &of_a_gpu("mig: { instances: [{ id: 7, profile: 0, start: 4 }, { id: 7, profile: 0, start: 5 }] }"),
        "mig.instances are not in the order of their ids",
    );
    check(
        &of_a_gpu(
            "mig: { instances: [{ id: 7, profile: 0, start: 4, compute: [{ id: 0, slices: 4294967295, start: 1 }] }] }",
        ),
        "mig.instances, 7: there is no compute instance 0 of 4294967295 slices at 1",
    );
    let process = "{ pid: 1, memory_mib: 18446744073709551615, utilization: 0 }";
    check(
        &of_a_gpu(&format!("processes: [{process}, {process}]")),
        "processes use 18446744073709551615 MiB",
    );
}
