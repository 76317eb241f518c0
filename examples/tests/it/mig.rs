//! `gpuctl mig` on simulated nodes.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Output,
};

use gpu_sim::{Load, Node, NodeSpec};
use tempfile::TempDir;

use super::{program, run, stderr, stdout};

mod records;
mod reset;

/// A simulated node and a folder for files.
struct Bench {
    dir: TempDir,
    node: Node,
}

impl Bench {
    fn new(profile: &str, gpus: usize) -> Self {
        let dir = TempDir::new().expect("a folder");
        let spec = NodeSpec::new(profile).gpus(gpus);
        let node = Node::create(&spec, dir.path().join("node")).expect("a node");
        Self { dir, node }
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, text).expect("it can be written");
        path
    }

    fn config(&self, entry: &str) -> PathBuf {
        self.file(
            "config.yaml",
            &format!("version: v1\nmig-configs:\n  x:\n  - {entry}\n"),
        )
    }

    fn mig(&self, arguments: &[&str]) -> Output {
        let mut command = program(env!("CARGO_BIN_EXE_gpuctl"));
        run(command.arg("mig").args(arguments).envs(self.node.env()))
    }

    fn apply(&self, entry: &str) -> Output {
        let config = self.config(entry);
        self.mig(&["apply", "-f", config.to_str().expect("text")])
    }

    fn layout(&self, gpu: usize) -> Vec<String> {
        let instances = self.node.mig(gpu).expect("the state can be read");
        instances
            .iter()
            .map(|mig| format!("{}@{}", mig.profile, mig.start))
            .collect()
    }

    fn uuids(&self, gpu: usize) -> Vec<String> {
        let instances = self.node.mig(gpu).expect("the state can be read");
        instances
            .into_iter()
            .flat_map(|mig| mig.devices)
            .map(|(_, _, uuid)| uuid)
            .collect()
    }
}

#[track_caller]
fn succeeds(output: &Output) {
    assert!(output.status.success(), "{}{}", stdout(output), stderr(output));
}

#[track_caller]
fn fails(output: &Output, message: &str) {
    assert_eq!(output.status.code(), Some(1), "{}{}", stdout(output), stderr(output));
    assert_eq!(stderr(output), message);
}

#[test]
fn kinds_of_gpu_that_differ_are_told_apart_by_filters() {
    let bench = Bench::new("mixed", 4);
    let whole =
        "version: v1\nmig-configs:\n  current:\n  - devices: all\n    mig-enabled: false\n    mig-devices: {}\n";
    assert_eq!(stdout(&bench.mig(&["export"])), whole, "one entry needs no filter");
    let generated = bench.mig(&["generate-config"]);
    succeeds(&generated);
    let file = bench.file("generated.yaml", stdout(&generated));
    let file = file.to_str().expect("text");
    let balanced = "  all-balanced:\n  - device-filter: [\"0x20B510DE\"]\n    devices: all\n    mig-enabled: true\n    mig-devices:\n      \
                    1g.10gb: 2\n      2g.20gb: 1\n      3g.40gb: 1\n  - device-filter: [\"0x20B710DE\"]\n    devices: all\n    mig-enabled: \
                    true\n    mig-devices:\n      1g.6gb: 2\n      2g.12gb: 1\n";
    assert!(stdout(&generated).contains(balanced), "{}", stdout(&generated));
    succeeds(&bench.mig(&["apply", "-f", file, "-c", "all-balanced"]));
    succeeds(&bench.mig(&["assert", "-f", file, "-c", "all-balanced"]));
    let exported = bench.file("exported.yaml", stdout(&bench.mig(&["export"])));
    succeeds(&bench.mig(&["assert", "-f", exported.to_str().expect("text")]));
}

#[test]
fn what_is_there_stays_and_only_the_difference_is_made() {
    let bench = Bench::new("h100", 2);
    bench.node.set_mig_mode(0, true).unwrap();
    bench.node.create_mig(0, "1g.10gb", Some(0)).unwrap();
    bench.node.create_mig(0, "1g.10gb", Some(6)).unwrap();
    let kept = bench.uuids(0);
    let output = bench.apply("{ devices: [0], mig-enabled: true, mig-devices: { 1g.10gb: 2, 3g.40gb: 1 } }");
    succeeds(&output);
    // The one at 6 lies in the way of the only other half.
    assert_eq!(bench.layout(0).len(), 3);
    assert!(bench.uuids(0).contains(&kept[0]) || bench.uuids(0).contains(&kept[1]));
    assert!(bench.layout(1).is_empty());
    let again = bench.apply("{ devices: [0], mig-enabled: true, mig-devices: { 1g.10gb: 2, 3g.40gb: 1 } }");
    assert_eq!(stderr(&again), "nothing to do: it is applied already\n");
}

#[test]
fn instances_in_use_are_kept_or_named() {
    let bench = Bench::new("h100", 1);
    bench.node.set_mig_mode(0, true).unwrap();
    let used = bench.node.create_mig(0, "1g.10gb", Some(6)).unwrap();
    let load = Load {
        instance: Some((used.id, 0)),
        pid: Some(4242),
        ..Load::default()
    };
    bench.node.load(0, load).unwrap();
    let before = bench.uuids(0);
    succeeds(&bench.apply("{ devices: all, mig-enabled: true, mig-devices: { 1g.10gb: 7 } }"));
    assert!(bench.uuids(0).contains(&before[0]));
    let seven = bench.uuids(0);
    let message = "error: GPU 0: `1g.10gb@6` on GPU 0 is in use, and the configuration has no place for it\n";
    fails(
        &bench.apply("{ devices: all, mig-enabled: true, mig-devices: { 3g.40gb: 2 } }"),
        message,
    );
    fails(
        &bench.apply("{ devices: all, mig-enabled: false }"),
        "error: GPU 0: its MIG mode cannot change while it is in use by process 4242\n",
    );
    assert_eq!(bench.uuids(0), seven);
}

#[test]
fn what_cannot_be_is_refused_before_any_gpu_is_touched() {
    #[track_caller]
    fn check(bench: &Bench, entry: &str, message: &str) {
        fails(&bench.apply(entry), message);
        for gpu in 0..2 {
            assert_eq!(bench.node.mig_mode(gpu).unwrap(), (false, false));
        }
    }
    let bench = Bench::new("h100", 2);
    check(
        &bench,
        "{ devices: [0], mig-enabled: true, mig-devices: { 1g.10gb: 4, 2g.20gb: 1, 3g.40gb: 1 } }",
        "error: GPU 0: 2 of 4 × `1g.10gb` do not fit beside 1 × 2g.20gb, 1 × 3g.40gb on GPU 0: 2 free blocks of 1 slot are \
         short\n",
    );
    check(
        &bench,
        "{ devices: all, mig-enabled: true, mig-devices: { 1g.5gb: 7 } }",
        "error: GPU 0: no GPU offers `1g.5gb` (there are: NVIDIA H100 80GB HBM3); GPU 1: no GPU offers `1g.5gb` (there are: \
         NVIDIA H100 80GB HBM3)\n",
    );
    let config = bench.dir.path().join("config.yaml");
    let unusable = |reason: &str| format!("error: cannot use `{}`: {reason}\n", config.display());
    check(
        &bench,
        "{ device-filter: '0x20B010DE', devices: all, mig-enabled: true, mig-devices: {} }",
        &unusable(
            "configuration `x` is for none of the GPUs of this node (NVIDIA H100 80GB HBM3, NVIDIA H100 80GB HBM3)",
        ),
    );
    check(
        &bench,
        "{ devices: all, mig-enabled: true, mig-devices: { 1g.10gb: 0 } }",
        &unusable("`mig-configs.x[0].mig-devices` in line 4: all counts for all MIG devices are 0"),
    );
    let most = "{ devices: all, mig-enabled: true, mig-devices: { 1c.7g.80gb: 1000, 1g.10gb: 1000 } }";
    let output = bench.apply(most);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
}

#[test]
fn a_file_asks_nothing_of_gpus_that_cannot_do_it() {
    let bench = Bench::new("mixed", 4);
    let output = bench.apply("{ devices: all, mig-enabled: true, mig-devices: {} }");
    succeeds(&output);
    let capable = bench
        .node
        .gpus()
        .iter()
        .map(|gpu| gpu.board.starts_with("A100") || gpu.board.starts_with("A30"));
    for (gpu, capable) in capable.enumerate() {
        let board = &bench.node.gpus()[gpu].board;
        let note = format!("note: GPU {gpu} (");
        assert_eq!(
            stderr(&output).contains(&note),
            !capable,
            "{board}: {}",
            stderr(&output)
        );
        assert_eq!(bench.node.mig_mode(gpu).unwrap().0, capable, "{board}");
    }
    let config = bench.dir.path().join("config.yaml");
    let asserted = bench.mig(&["assert", "-f", config.to_str().expect("text")]);
    succeeds(&asserted);
}

#[test]
fn a_gpu_that_no_entry_is_about_is_named() {
    let bench = Bench::new("mixed", 4);
    let notes = |entry: &str| {
        let output = bench.apply(entry);
        succeeds(&output);
        let notes = stderr(&output)
            .lines()
            .filter(|line| line.starts_with("note: `device-filter`"));
        notes.map(str::to_owned).collect::<Vec<_>>()
    };
    let a100 = "device-filter: '0x20B510DE', devices: all, mig-enabled: true, mig-devices: {}";
    let expected = "note: `device-filter` leaves out GPU 1, 2, 3, and no other entry is about it: it stays as it is";
    assert_eq!(notes(&format!("{{ {a100} }}")), [expected]);
    assert!(
        notes(&format!(
            "{{ {a100} }}\n  - {{ devices: [1, 2, 3], mig-enabled: false }}"
        ))
        .is_empty()
    );
    assert!(notes("{ devices: all, mig-enabled: false }").is_empty());
}

#[test]
fn a_gpu_that_cannot_be_read_fails_what_may_be_about_it() {
    #[track_caller]
    fn check(bench: &Bench, entry: &str, expected: bool) {
        let config = bench.config(entry);
        let config = config.to_str().expect("text");
        for command in ["apply", "assert", "plan"] {
            let output = bench.mig(&[command, "-f", config]);
            assert_eq!(output.status.success(), expected, "{command}: {}", stderr(&output));
            let error = format!("error: cannot use `{config}`: configuration `x`: GPU 1 is lost: ");
            assert_eq!(
                stderr(&output).contains(&error),
                !expected,
                "{command}: {}",
                stderr(&output)
            );
        }
    }
    let bench = Bench::new("h100", 2);
    bench.node.lose(1).unwrap();
    let seven = |devices: &str| format!("{{ {devices}, mig-enabled: true, mig-devices: {{ 1g.10gb: 7 }} }}");
    check(&bench, &seven("devices: all"), false);
    check(&bench, &seven("devices: [1]"), false);
    // What kind of GPU it is cannot be read either.
    check(&bench, &seven("device-filter: '0x233010DE', devices: all"), false);
    assert!(!bench.node.mig_mode(0).unwrap().0, "nothing was touched");
    check(&bench, &seven("devices: [0]"), true);
    assert_eq!(bench.layout(0).len(), 7);
}

#[test]
fn a_failure_half_way_is_taken_back() {
    // The passed-through A100 takes a reset that the machine cannot do: the mode is not left waiting for one.
    let bench = Bench::new("a100-vm", 1);
    let output = bench.apply("{ devices: all, mig-enabled: true, mig-devices: { 1g.5gb: 7 } }");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("MIG mode changes with a reset"),
        "{}",
        stderr(&output)
    );
    assert_eq!(bench.node.mig_mode(0).unwrap(), (false, false));
    let config = bench.dir.path().join("config.yaml");
    let pending = bench.mig(&[
        "apply",
        "-f",
        config.to_str().expect("text"),
        "--mode-only",
        "--skip-reset",
    ]);
    succeeds(&pending);
    assert!(
        stderr(&pending).contains("MIG mode of GPU 0 changes with the next reset"),
        "{}",
        stderr(&pending)
    );
    assert_eq!(bench.node.mig_mode(0).unwrap(), (false, true));
}

#[test]
fn two_do_not_change_gpus_at_once() {
    let bench = Bench::new("h100", 1);
    let lock = bench.node.root().join("run/gpu-mig.lock");
    let held = fs::File::create(&lock).unwrap();
    held.lock().unwrap();
    fails(
        &bench.apply("{ devices: all, mig-enabled: true, mig-devices: {} }"),
        &format!(
            "error: another program is changing the GPUs of this node: it holds `{}`\n",
            lock.display()
        ),
    );
    drop(held);
    succeeds(&bench.apply("{ devices: all, mig-enabled: true, mig-devices: {} }"));
}

#[test]
fn a_driver_that_tells_nothing_with_mig_off_is_asked_again_with_it_on() {
    let dir = TempDir::new().unwrap();
    let node = Node::create(&NodeSpec::new("h100").gpus(1).driver("535"), dir.path().join("node")).unwrap();
    let bench = Bench { dir, node };
    let generated = bench.mig(&["generate-config"]);
    fails(
        &generated,
        "error: the driver tells no profile of GPU 0 while MIG mode is off\n",
    );
    let planned = bench.config("{ devices: all, mig-enabled: true, mig-devices: { 1g.10gb: 7 } }");
    let plan = bench.mig(&["plan", "-f", planned.to_str().expect("text")]);
    assert_eq!(
        stderr(&plan),
        "note: GPU 0 tells its profiles once MIG mode is on: its part is by the catalogue\n"
    );
    fails(
        &bench.apply("{ devices: all, mig-enabled: true, mig-devices: { 3g.40gb: 3 } }"),
        "error: GPU 0: 1 of 3 × `3g.40gb` do not fit on GPU 0: 1 free block of 4 slots is short\n",
    );
    assert_eq!(bench.node.mig_mode(0).unwrap(), (false, false));
    succeeds(&bench.apply("{ devices: all, mig-enabled: true, mig-devices: { 1g.10gb: 7 } }"));
    assert_eq!(bench.layout(0).len(), 7);
}

#[test]
fn a_checkpoint_brings_every_place_back() {
    let bench = Bench::new("h100", 2);
    let entry = "{ devices: [1], mig-enabled: true, mig-devices: { 1c.3g.40gb: 3, 2g.20gb: 1, 1g.10gb+me: 1 } }";
    succeeds(&bench.apply(entry));
    let before = bench.layout(1);
    let file = bench.dir.path().join("checkpoint.json");
    let file = file.to_str().expect("text");
    succeeds(&bench.mig(&["checkpoint", "-f", file]));
    let link = bench.dir.path().join("link.json");
    std::os::unix::fs::symlink(file, &link).unwrap();
    fs::remove_file(file).and_then(|()| fs::write(file, "")).unwrap();
    succeeds(&bench.mig(&["checkpoint", "-f", link.to_str().unwrap()]));
    assert!(link.is_symlink(), "a link stays one");
    let uuids = bench.uuids(1);
    succeeds(&bench.mig(&["restore", "-f", file]));
    assert_eq!(bench.uuids(1), uuids, "nothing is made anew that is there");
    succeeds(&bench.apply("{ devices: all, mig-enabled: false }"));
    succeeds(&bench.mig(&["restore", "-f", file]));
    assert_eq!((bench.layout(0), bench.layout(1)), (Vec::new(), before));
    assert_eq!(bench.uuids(1).len(), 5);
    let mut twice: serde_json::Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let devices = twice["MigState"]["Devices"].as_array_mut().unwrap();
    devices.push(devices[0].clone());
    let uuid = devices[0]["UUID"].as_str().unwrap().to_owned();
    let twice = bench.file("twice.json", &twice.to_string());
    fails(
        &bench.mig(&["restore", "-f", twice.to_str().unwrap()]),
        &format!("error: cannot use `{}`: GPU `{uuid}` is in it twice\n", twice.display()),
    );
    let far = fs::read_to_string(file)
        .unwrap()
        .replacen("\"Start\":0", "\"Start\":300", 1);
    let far = bench.file("far.json", &far);
    let output = bench.mig(&["restore", "-f", far.to_str().unwrap()]);
    assert!(stderr(&output).contains(" at 300:"), "{}", stderr(&output));
    let other = Bench::new("h100", 1);
    fs::write(file, fs::read_to_string(file).unwrap().replace("GPU-", "GPU-0")).unwrap();
    assert_eq!(other.mig(&["restore", "-f", file]).status.code(), Some(1));
}

#[test]
fn hooks_get_what_is_documented_and_a_failing_one_stops_all() {
    let bench = Bench::new("h100", 1);
    let out = bench.dir.path().join("out");
    let hooks = |start: &str| {
        let line = |command: &str| {
            format!(
                "[{{ command: /bin/sh, args: ['-c', '{command} >> {}'] }}]",
                out.display()
            )
        };
        let text = format!(
            "version: v1\nhooks:\n  apply-start: {}\n  pre-apply-mode: {}\n  pre-apply-config: {}\n  apply-exit: {}\n",
            line(start),
            line("echo mode"),
            line("echo config"),
            line("echo exit $HOME")
        );
        bench.file("hooks.yaml", &text)
    };
    let config = bench.config("{ devices: all, mig-enabled: true, mig-devices: { 7g.80gb: 1 } }");
    let apply = |hooks: &Path| bench.mig(&["apply", "-f", config.to_str().unwrap(), "-k", hooks.to_str().unwrap()]);
    let failed = apply(&hooks("exit 3"));
    assert!(
        stderr(&failed).contains("the apply-start hook `/bin/sh` failed: exit status: 3"),
        "{}",
        stderr(&failed)
    );
    assert_eq!(fs::read_to_string(&out).unwrap(), "exit\n");
    assert!(!bench.node.mig_mode(0).unwrap().0);
    succeeds(&apply(&hooks("echo start")));
    assert_eq!(fs::read_to_string(&out).unwrap(), "exit\nstart\nmode\nconfig\nexit\n");
    succeeds(&apply(&hooks("echo start")));
    assert_eq!(
        fs::read_to_string(&out).unwrap(),
        "exit\nstart\nmode\nconfig\nexit\nstart\nexit\n"
    );
}

#[test]
fn a_failing_last_hook_hides_nothing_of_what_was_done() {
    let bench = Bench::new("h100", 1);
    let hooks = bench.file(
        "hooks.yaml",
        "version: v1\nhooks:\n  apply-exit: [{ command: /bin/false }]\n",
    );
    let config = bench.config("{ devices: all, mig-enabled: true, mig-devices: { 7g.80gb: 1 } }");
    let output = bench.mig(&["apply", "-f", config.to_str().unwrap(), "-k", hooks.to_str().unwrap()]);
    fails(
        &output,
        "enable MIG on GPU 0\ncreate 7g.80gb@0 on GPU 0\nerror: the apply-exit hook `/bin/false` failed: exit status: 1\n",
    );
}

#[test]
fn profiles_and_drawings_show_what_there_is() {
    let bench = Bench::new("h100", 1);
    succeeds(&bench.apply("{ devices: all, mig-enabled: true, mig-devices: { 3g.40gb: 1 } }"));
    let profiles = bench.mig(&["profiles", "-o", "json"]);
    let offers: serde_json::Value = serde_json::from_str(stdout(&profiles)).unwrap();
    let half = offers[0]["profiles"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["name"] == "3g.40gb")
        .unwrap()
        .clone();
    assert_eq!(
        (
            half["free"].as_u64(),
            half["max_instances"].as_u64(),
            half["id"].as_u64()
        ),
        (Some(1), Some(2), Some(9))
    );
    let table = bench.mig(&["profiles"]);
    assert!(stdout(&table).contains("{0,4}:4"), "{}", stdout(&table));
    let drawn = bench.mig(&["draw"]);
    assert!(
        stdout(&drawn).starts_with("GPU 0 (NVIDIA H100 80GB HBM3)\n|0"),
        "{}",
        stdout(&drawn)
    );
    assert!(stdout(&bench.mig(&["draw", "-o", "svg"])).starts_with("<svg"));
    fails(
        &bench.mig(&["draw", "--gpu", "7"]),
        "error: there is no GPU 7 that can do MIG\n",
    );
}

#[test]
fn an_instance_that_is_divided_is_drawn_with_its_compute_instances() {
    let bench = Bench::new("h100", 1);
    succeeds(&bench.apply("{ devices: all, mig-enabled: true, mig-devices: { 1c.3g.40gb: 3 } }"));
    let drawn = bench.mig(&["draw"]);
    let last = stdout(&drawn).lines().last().unwrap_or_default();
    let cells: Vec<_> = last.split('|').map(str::trim).filter(|cell| !cell.is_empty()).collect();
    assert_eq!(cells, ["1c"; 3], "{}", stdout(&drawn));
}

#[test]
fn dry_runs_and_plans_change_nothing() {
    let bench = Bench::new("h100", 1);
    let config = bench.config("{ devices: all, mig-enabled: true, mig-devices: { 4g.40gb: 1 } }");
    let config = config.to_str().unwrap();
    let expected = "enable MIG on GPU 0\ncreate 4g.40gb@0 on GPU 0\n";
    assert_eq!(stdout(&bench.mig(&["apply", "-f", config, "--dry-run"])), expected);
    assert_eq!(stdout(&bench.mig(&["plan", "-f", config])), expected);
    assert_eq!(bench.node.mig_mode(0).unwrap(), (false, false));
}
