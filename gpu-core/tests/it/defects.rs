//! What is wrong or missing in `nvml-wrapper` 0.13, and is right here.
//!
//! | defect of the wrapper | test |
//! |---|---|
//! | possible placements are always empty | `mig::an_h200_offers_what_it_does_on_hardware_also_while_the_mode_is_off` |
//! | field values: no scope | [`fields_are_asked_for_by_number_and_scope_and_answered_in_their_order`] |
//! | field values: signed int and unsigned short unknown | the same, and `nvml::field::tests::values_are_as_wide_and_as_signed_as_they_were_given` |
//! | field values: unsigned long cut to 32 bits | the same |
//! | field values: another id in the answer than was asked for | the same, and `nvml::field::tests::numbers_that_an_update_changed_are_translated_each_to_its_own` |
//! | memory: no fallback for drivers before 510 | [`the_memory_of_a_driver_without_the_second_version_is_known`] |
//! | events: GPU and compute instance dropped, unknown Xids unnamed | `health::an_event_of_an_instance_names_it`, `health::an_xid_is_delivered_once_and_names_its_gpu` |
//! | events: unknown kinds come as no event | [`an_event_of_a_kind_that_was_not_asked_for_is_passed_over`] |
//! | return codes without a name | [`a_code_that_has_no_name_is_told_by_number`] |
//! | monitoring: more than 210 metrics panic, each sample allocates | [`any_number_of_metrics_is_read_with_two_samples_in_all`] |
//! | MIG mode: what activating it met is a bare number | `control::a_mode_that_waits_for_a_reset_is_refused_and_no_longer_pending` |
//! | lists: no second try where one has grown | [`a_list_that_grows_while_it_is_read_is_read_again`] |
//! | process utilisation: no samples are an error | [`a_gpu_that_nobody_used_has_no_utilisation`] |
//! | CUDA version: none where libcuda cannot be loaded | [`the_cuda_version_is_known_where_libcuda_is_not_there`] |
//! | fabric: absent; versions of the struct | `boards::a_compute_tray_is_in_a_fabric`, [`the_fabric_of_a_driver_that_knows_an_older_struct_is_read`] |
//! | addressing mode absent | `reading::an_h200_is_read_as_it_was_on_hardware` |
//! | GPU and compute instances absent | `mig::instances_are_read_with_their_placements_and_devices_with_their_names` |
//! | a missing `nvmlShutdown` or `nvmlEventSetFree` panics when dropped | [`a_library_without_its_last_functions_is_refused_and_does_not_panic`] |
//! | texts are read past the end of their buffer | `garbage::texts_without_an_end_are_read_to_the_end_of_their_buffer` |

use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

use gpu_core::{
    Error, ProblemKind,
    nvml::{Field, FieldValue, GpmSampler, HealthWatch, Watched},
};
use gpu_sim::NodeSpec;

use crate::{
    Simulated, open,
    shim::{library, shimmed},
};

fn h100() -> Simulated {
    Simulated::new(&NodeSpec::new("h100").gpus(1))
}

/// Answers each field by its number and scope, in the types of `nvml.h`.
const FIELDS: &str = r"
struct Value { unsigned field, scope; long long time, latency; unsigned type, code; union { double d; int si; unsigned ui; unsigned long ul; long long sll; unsigned short us; } value; };
int nvmlDeviceGetFieldValues(Handle device, int count, struct Value *values) {
    for (int i = 0; i < count; i++) {
        struct Value *v = &values[i];
        v->code = 0;
        v->time = 1000000 + i;
        switch (v->field) {
        case 1: v->type = 0; v->value.d = 0.25; break;
        case 2: v->type = 5; v->value.si = -40; break;
        case 3: v->type = 6; v->value.us = 65535; break;
        case 4: v->type = 2; v->value.ul = 0x100000005ul; break;
        case 5: v->type = 1; v->value.ui = v->scope; break;
        case 6: v->type = 77; v->value.ui = 1; break;
        case 7: v->type = 0; v->value.d = 0.0 / 0.0; break;
        case 8: v->code = 3; break;
        default: v->type = 1; v->value.ui = v->field; break;
        }
        v->field = 4711; /* what it says of itself does not count */
    }
    return 0;
}
";

#[test]
fn fields_are_asked_for_by_number_and_scope_and_answered_in_their_order() {
    let simulated = Simulated::exactly(&NodeSpec::new("h100").gpus(1).driver("610"));
    let library = shimmed(&simulated, FIELDS);
    let asked = [1, 2, 3, 4, 6, 7, 8].map(|id| Field { id, scope: 0 });
    let scoped = [0, 3, u32::MAX].map(|scope| Field { id: 5, scope });
    let renumbered = [251, 256].map(|id| Field { id, scope: 0 });
    let fields: Vec<_> = asked.into_iter().chain(scoped).chain(renumbered).collect();
    let readings = library.field_values(0, &fields).unwrap();
    assert_eq!(readings.iter().map(|reading| reading.field).collect::<Vec<_>>(), fields);
    let values: Vec<_> = readings.iter().map(|reading| reading.value).collect();
    let unsigned = |number| Some(FieldValue::Unsigned(number));
    assert_eq!(
        values,
        [
            Some(FieldValue::Float(0.25)),
            Some(FieldValue::Signed(-40)),
            unsigned(65_535),
            unsigned(0x1_0000_0005),
            None,
            None,
            None,
            unsigned(0),
            unsigned(3),
            unsigned(u32::MAX.into()),
            unsigned(269), // what driver 610 has at the number that 251 was
            unsigned(251),
        ]
    );
    assert_eq!(readings[1].timestamp_us, 1_000_001);
    assert_eq!(library.field_values(0, &[]).unwrap(), []);
}

#[test]
fn fields_of_a_lost_gpu_are_a_problem() {
    let simulated = h100();
    let library = shimmed(&simulated, FIELDS);
    simulated.node.lose(0).unwrap();
    let problem = library.field_values(0, &[Field { id: 1, scope: 0 }]).unwrap_err();
    assert_eq!((problem.index, problem.kind), (0, ProblemKind::Lost));
}

#[test]
fn the_memory_of_a_driver_without_the_second_version_is_known() {
    let simulated = Simulated::exactly(&NodeSpec::new("h100").gpus(1).driver("470"));
    let inventory = simulated.library().inventory(&simulated.node.root()).unwrap();
    let memory = inventory.gpus[0].memory.unwrap();
    assert_eq!((memory.total_bytes, memory.reserved_bytes), (85_899_345_920, None));
}

#[test]
fn an_event_of_a_kind_that_was_not_asked_for_is_passed_over() {
    let simulated = h100();
    // A recovery action (0x8000), then an Xid of a GPU instance.
    let functions = r"
        struct Event { Handle device; unsigned long long kind, data; unsigned gpu_instance, compute_instance; };
        static Handle gpu;
        int nvmlDeviceRegisterEvents(Handle device, unsigned long long kinds, Handle set) { gpu = device; return 0; }
        int nvmlEventSetWait_v2(Handle set, struct Event *event, unsigned timeout) {
            static int calls;
            struct Event events[] = {{ gpu, 0x8000, 1, -1, -1 }, { 0, 8, 79, -1, -1 }, { gpu, 8, 1234567890123, 5, 2 }};
            if (calls == 3) { usleep(10000); return 10; }
            *event = events[calls++];
            return 0;
        }
    ";
    let library = Arc::new(shimmed(&simulated, functions));
    let gpus = library.inventory(&simulated.node.root()).unwrap().gpus;
    let (sender, events) = mpsc::channel();
    let _watch = HealthWatch::start(library, &gpus, move |watched| {
        let _ = sender.send(watched);
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    let first = events.recv_timeout(Duration::from_secs(10)).unwrap();
    let Watched::Event(event) = first else {
        panic!("{first:?}")
    };
    assert_eq!(event.kind, gpu_core::nvml::HealthEventKind::Xid(1_234_567_890_123));
    assert_eq!((event.gpu_instance, event.compute_instance), (Some(5), Some(2)));
}

#[test]
fn a_code_that_has_no_name_is_told_by_number() {
    let simulated = h100();
    let functions = "int nvmlDeviceGetModuleId(Handle device, unsigned *id) { return 27; }";
    let inventory = shimmed(&simulated, functions)
        .inventory(&simulated.node.root())
        .unwrap();
    let [problem] = inventory.problems.as_slice() else {
        panic!("{:?}", inventory.problems)
    };
    assert_eq!(problem.kind, ProblemKind::Incomplete);
    assert!(problem.message.contains("27"), "{problem}");
    assert_eq!((inventory.gpus.len(), inventory.gpus[0].module_id), (1, None));
}

#[test]
fn any_number_of_metrics_is_read_with_two_samples_in_all() {
    let simulated = h100();
    // A sample is a number; a metric is the difference times its id. The third allocation fails.
    let functions = r"
        struct Metric { unsigned id, code; double value; char *names[3]; };
        struct Get { unsigned version, count; long *first, *second; struct Metric metrics[210]; };
        static long memory[2], allocated, now = 100;
        int nvmlGpmSampleAlloc(long **sample) { if (allocated == 2) return 20; *sample = &memory[allocated++]; return 0; }
        int nvmlGpmSampleFree(long *sample) { return 0; }
        int nvmlGpmSampleGet(Handle device, long *sample) { now += 10; *sample = now; return 0; }
        int nvmlGpmMigSampleGet(Handle device, unsigned instance, long *sample) { now += 1000 + instance; *sample = now; return 0; }
        int nvmlGpmMetricsGet(struct Get *get) {
            if (get->version != 1 || get->count > 210) return 25;
            for (unsigned i = 0; i < get->count; i++) {
                struct Metric *m = &get->metrics[i];
                m->code = m->id == 5 ? 3 : 0;
                m->value = m->id == 6 ? 0.0 / 0.0 : (double)(*get->second - *get->first) * m->id;
            }
            return 0;
        }
    ";
    let library = Arc::new(shimmed(&simulated, functions));
    let sampler = GpmSampler::new(Arc::clone(&library), 0, None);
    let ids: Vec<_> = (0..500).collect();
    assert_eq!(
        sampler.read(&ids).unwrap(),
        None,
        "there is no time before the first sample"
    );
    for _ in 0..3 {
        let values = sampler.read(&ids).unwrap().unwrap();
        assert_eq!(values.len(), 500);
        assert_eq!((values[1], values[499]), (Some(10.0), Some(4990.0)));
        assert_eq!((values[5], values[6]), (None, None), "not offered, and no number");
    }
    drop(sampler);
    let refused = GpmSampler::new(library, 0, Some(3)).read(&ids).unwrap_err();
    assert_eq!(refused.call, "nvmlGpmSampleAlloc");
}

#[test]
fn a_gpu_without_monitoring_says_so() {
    let simulated = h100();
    let sampler = GpmSampler::new(Arc::new(simulated.library()), 0, None);
    let problem = sampler.read(&[1]).unwrap_err();
    assert_eq!((problem.index, problem.kind), (0, ProblemKind::Unreadable));
    assert!(problem.call.starts_with("nvmlGpm"), "{problem}");
}

#[test]
fn a_list_that_grows_while_it_is_read_is_read_again() {
    let simulated = h100();
    let functions = r"
        struct Process { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; };
        static int list(unsigned *count, struct Process *processes, unsigned size) {
            static unsigned there = 2;
            if (*count < there) { *count = there; return 7; }
            if (there < 5) { there++; *count = there; return 7; } /* one more has come */
            for (unsigned i = 0; i < there; i++) processes[i] = (struct Process){ 100 + i, i ? 1 << 20 : -1ull, -1, -1 };
            *count = there;
            return 0;
        }
        int nvmlDeviceGetComputeRunningProcesses_v3(Handle device, unsigned *count, struct Process *p) { return list(count, p, 0); }
        int nvmlDeviceGetComputeRunningProcesses_v2(Handle device, unsigned *count, struct Process *p) { return list(count, p, 0); }
        int nvmlDeviceGetProcessUtilization(Handle device, void *samples, unsigned *count, unsigned long long since) {
            static unsigned there = 1;
            struct { unsigned pid; unsigned long long time; unsigned sm, memory, encoder, decoder; } *s = samples;
            if (*count < there) { *count = there; return 7; }
            if (there < 3) { there++; *count = there; return 7; }
            for (unsigned i = 0; i < there; i++) { s[i].pid = i; s[i].time = since + 10 - i; s[i].sm = 50; }
            *count = there;
            return 0;
        }
    ";
    let library = shimmed(&simulated, functions);
    let usage = library.usage(&simulated.node.root()).unwrap();
    assert_eq!(usage.problems, []);
    let compute = usage.gpus[0]
        .processes
        .iter()
        .map(|process| (process.pid, process.memory_bytes));
    let mib = Some(1 << 20);
    assert_eq!(
        compute.collect::<Vec<_>>(),
        [(100, None), (101, mib), (102, mib), (103, mib), (104, mib)]
    );
    let samples = library.process_utilization(0, 1000).unwrap();
    let times: Vec<_> = samples
        .iter()
        .map(|sample| (sample.timestamp_us, sample.multiprocessor_percent))
        .collect();
    assert_eq!(times, [(1008, 50), (1009, 50), (1010, 50)]);
}

#[test]
fn a_gpu_that_nobody_used_has_no_utilisation() {
    let simulated = h100();
    assert_eq!(simulated.library().process_utilization(0, 0).unwrap(), []);
    let none = "int nvmlDeviceGetProcessUtilization(Handle device, void *samples, unsigned *count, unsigned long long since) { return 6; }";
    assert_eq!(shimmed(&simulated, none).process_utilization(0, 0).unwrap(), []);
}

#[test]
fn the_cuda_version_is_known_where_libcuda_is_not_there() {
    let simulated = h100();
    let without = "int nvmlSystemGetCudaDriverVersion_v2(int *version) { return 12; }";
    let cuda = |library: gpu_core::nvml::Library| {
        let inventory = library.inventory(&simulated.node.root()).unwrap();
        inventory
            .driver
            .unwrap()
            .cuda_version
            .map(|version| version.to_string())
    };
    let known = cuda(simulated.library());
    assert!(known.is_some());
    assert_eq!(cuda(shimmed(&simulated, without)), known);
}

#[test]
fn the_fabric_of_a_driver_that_knows_an_older_struct_is_read() {
    for driver in ["535", "550", "580"] {
        let simulated = Simulated::exactly(&NodeSpec::new("gb200-nvl72").gpus(1).driver(driver));
        let inventory = simulated.library().inventory(&simulated.node.root()).unwrap();
        let fabric = inventory.gpus[0].fabric.as_ref().expect(driver);
        assert!(
            fabric.cluster_uuid.is_some() && fabric.clique.is_some(),
            "{driver}: {fabric:?}"
        );
        assert_eq!(fabric.health_mask.is_some(), driver != "535", "{driver}");
    }
}

#[test]
fn a_library_without_its_last_functions_is_refused_and_does_not_panic() {
    let simulated = h100();
    let path = library(&simulated, "int nvmlInit_v2(void) { return 0; }");
    // Without the driver behind it, it has that function alone.
    std::fs::write(
        simulated.node.folder().join("shim/shim.c"),
        "int nvmlInit_v2(void) { return 0; }",
    )
    .unwrap();
    let status = std::process::Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&path)
        .arg(simulated.node.folder().join("shim/shim.c"))
        .status();
    assert!(status.unwrap().success());
    match open(path).unwrap_err() {
        Error::MissingSymbol { symbol, .. } => assert_eq!(symbol, "nvmlShutdown"),
        other => panic!("{other:?}"),
    }
}
