//! The host: its services, its reboot, and resets by the driver's tool.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{Bench, CLIENT, LIMIT, Manager, PAUSE};

/// In the place of `chroot`, which only root may call: the same programs, found beneath the root.
const CHROOT: &str = r#"#!/bin/sh
ROOT=$1; shift
export ROOT PATH="$ROOT/usr/bin:$PATH"
exec "$@"
"#;

/// A host's systemd: what it is told, and the units that run. It waits while `hangs` names the unit.
const SYSTEMCTL: &str = r#"#!/bin/sh
echo "$@" >> "$ROOT/calls"
case $1 in
is-active) [ -e "$ROOT/units/$3" ] ;;
stop)
    while [ "$(cat "$ROOT/hangs" 2>/dev/null)" = "$2" ]; do sleep 0.01; done
    [ "$(cat "$ROOT/refuses" 2>/dev/null)" != "$2" ] && rm "$ROOT/units/$2" ;;
start) [ "$(cat "$ROOT/dead" 2>/dev/null)" != "$2" ] && touch "$ROOT/units/$2" ;;
reboot | daemon-reload) ;;
*) exit 1 ;;
esac
"#;

/// The driver's tool: it waits until the test has reset the GPU, or says that it cannot.
const NVIDIA_SMI: &str = r#"#!/bin/sh
echo "$@" >> "$ROOT/calls"
[ ! -e "$ROOT/refuses" ] || { echo "GPU is in use by another client"; exit 255; }
touch "$ROOT/resetting"
while [ -e "$ROOT/resetting" ]; do sleep 0.01; done
"#;

const A100: &str = "version: v1
mig-configs:
  seven: [{ devices: all, mig-enabled: true, mig-devices: { 1g.5gb: 7 } }]
  off: [{ devices: all, mig-enabled: false }]
";

fn program(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(path, text).expect("a file");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
}

impl Bench {
    /// Waits until the host's systemd is told this.
    #[track_caller]
    fn is_told(&self, what: &str) {
        until(what, || {
            fs::read_to_string(self.path("host/calls")).is_ok_and(|calls| calls.contains(what))
        });
    }

    /// Gives the host a systemd and these services, all running.
    fn systemd(&self, units: &[&str]) {
        program(&self.path("bin/chroot"), CHROOT);
        program(&self.path("host/usr/bin/systemctl"), SYSTEMCTL);
        fs::create_dir_all(self.path("host/units")).expect("a folder");
        for unit in units {
            fs::write(self.unit(unit), "").expect("a file");
        }
    }

    fn unit(&self, name: &str) -> PathBuf {
        self.path("host/units").join(name)
    }

    /// What systemd was told but to say which units run, and forgets it.
    fn told(&self) -> Vec<String> {
        let calls = self.path("host/calls");
        let text = fs::read_to_string(&calls).unwrap_or_default();
        fs::write(calls, "").expect("a file");
        let told = text.lines().filter(|line| !line.starts_with("is-active"));
        told.map(str::to_owned).collect()
    }

    /// A passed-through A100, whose MIG mode changes with a reset that the driver cannot do.
    fn passed_through() -> Self {
        let bench = Self::of("a100-vm", 1);
        fs::write(bench.path("config.yaml"), A100).expect("a file");
        bench
    }

    fn mode(&self) -> (bool, bool) {
        self.node.mig_mode(0).expect("the state")
    }
}

#[track_caller]
fn until(what: &str, is: impl Fn() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < LIMIT, "not {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

const SHUTDOWN: &str = "--with-shutdown-host-gpu-clients";

#[test]
fn services_of_the_host_stop_for_a_change_and_the_kubelet_for_one_of_mode() {
    let bench = Bench::new();
    bench.systemd(&["nvsm.service", "dcgm.service", "kubelet.service"]);
    bench.node.create_mig(0, "7g.80gb", None).unwrap();
    bench.ask("halves");
    let _manager = bench.start(&[SHUTDOWN]);
    bench.ends("success", "halves");
    let expected = [
        "stop nvsm.service",
        "stop dcgm.service",
        "start dcgm.service",
        "start nvsm.service",
    ];
    assert_eq!(bench.told(), expected);
    let leases: Vec<Value> = bench
        .api
        .state()
        .patches
        .iter()
        .filter_map(|patch| serde_json::from_str(patch["annotations"]["nvidia.com/mig.pause-lease"].as_str()?).ok())
        .collect();
    assert_eq!(
        leases[1]["services"],
        json!(["nvsm.service"]),
        "noted before it is stopped"
    );
    bench.ask("off");
    bench.ends("success", "off");
    let expected = [
        "stop nvsm.service",
        "stop dcgm.service",
        "stop kubelet.service",
        "start kubelet.service",
        "start dcgm.service",
        "start nvsm.service",
    ];
    assert_eq!(bench.told(), expected);
    assert_eq!(bench.node.mig_mode(0).unwrap(), (false, false));
    // Instances are only added: nobody has to wait but for the mode.
    bench.ask("halves");
    bench.ends("success", "halves");
    bench.told();
    bench.ask("off-again");
    bench.ends("failed", "off-again");
    assert!(bench.told().is_empty());
}

/// A manager that has stopped one service, and waits for the other, dcgm, to stop.
fn waiting_for_a_service() -> (Bench, Manager) {
    let bench = Bench::new();
    bench.systemd(&["nvsm.service", "dcgm.service"]);
    bench.node.create_mig(0, "7g.80gb", None).expect("there is room");
    fs::write(bench.path("host/hangs"), "dcgm.service").expect("a file");
    bench.ask("halves");
    let manager = bench.start(&[SHUTDOWN]);
    bench.is_told("stop dcgm.service");
    (bench, manager)
}

#[test]
fn services_that_were_stopped_when_the_manager_was_killed_run_again() {
    let (bench, manager) = waiting_for_a_service();
    manager.kill();
    fs::remove_file(bench.path("host/hangs")).unwrap();
    until("stopped", || !bench.unit("dcgm.service").exists());
    // Also where nobody asks for anything any more.
    bench.ask_nothing();
    let _manager = bench.start(&[SHUTDOWN]);
    bench.resumes();
    assert!(bench.unit("nvsm.service").exists() && bench.unit("dcgm.service").exists());
}

#[test]
fn services_that_are_stopped_when_the_manager_is_to_end_run_again() {
    let (bench, manager) = waiting_for_a_service();
    manager.end();
    fs::remove_file(bench.path("host/hangs")).unwrap();
    assert!(bench.unit("nvsm.service").exists());
    assert_eq!(bench.told()[2..], ["start dcgm.service", "start nvsm.service"]);
    bench.nobody_waits();
}

#[test]
fn a_service_that_does_not_stop_fails_the_change_before_it_begins() {
    let bench = Bench::new();
    bench.systemd(&["nvsm.service", "dcgm.service"]);
    bench.node.create_mig(0, "7g.80gb", None).unwrap();
    fs::write(bench.path("host/refuses"), "dcgm.service").unwrap();
    bench.ask("halves");
    let _manager = bench.start(&[SHUTDOWN]);
    bench.ends("failed", "halves");
    assert_eq!(bench.reason(), "`systemctl stop dcgm.service` failed on the host");
    assert!(bench.unit("nvsm.service").exists());
    assert_eq!(bench.devices().len(), 1);
}

#[test]
fn a_service_that_does_not_start_again_is_noted_and_tried_at_each_attempt() {
    let bench = Bench::new();
    bench.systemd(&["nvsm.service", "dcgm.service"]);
    bench.node.create_mig(0, "7g.80gb", None).unwrap();
    fs::write(bench.path("host/dead"), "dcgm.service").unwrap();
    bench.ask("halves");
    let manager = bench.start(&[SHUTDOWN]);
    let noted = |state: &super::State| {
        let lease = state.annotations.get("nvidia.com/mig.pause-lease");
        let lease: Option<Value> = lease.and_then(|lease| serde_json::from_str(lease.as_str()?).ok());
        state.labels[CLIENT] == "true" && lease.is_some_and(|lease| lease["services"] == json!(["dcgm.service"]))
    };
    bench.wait("noted", noted);
    let told = "nvidia.com/mig.config.state";
    assert_eq!(bench.api.state().labels[told], "failed");
    assert_eq!(bench.reason(), "`systemctl start dcgm.service` failed on the host");
    assert_eq!(bench.devices().len(), 4);
    bench.told();
    bench.is_told("start dcgm.service");
    bench.wait("noted still", noted);
    assert_eq!(
        bench.api.state().labels[told],
        "failed",
        "the GPUs are as asked, and the node is not as it was"
    );
    // Also where nobody asks for anything any more, and by another manager.
    manager.kill();
    bench.ask_nothing();
    bench.told();
    let manager = bench.start(&[SHUTDOWN]);
    bench.is_told("start dcgm.service");
    fs::remove_file(bench.path("host/dead")).unwrap();
    bench.resumes();
    assert!(bench.unit("dcgm.service").exists());
    manager.end();
}

#[test]
fn what_belongs_to_an_applied_value_is_made_up_for() {
    let bench = Bench::new();
    bench.systemd(&[]);
    let drop_in = bench.path("host/etc/systemd/system/nvidia-mig-manager.service.d/override.conf");
    fs::create_dir_all(drop_in.parent().unwrap()).unwrap();
    fs::write(&drop_in, "[Service]\n").unwrap();
    let in_the_way = drop_in.with_extension("conf.new");
    fs::create_dir(&in_the_way).unwrap();
    bench.ask("halves");
    let _manager = bench.start(&[]);
    bench.ends("failed", "halves");
    assert_eq!(bench.devices().len(), 4);
    let requests = bench.api.state().requests;
    bench.wait("tried again", |state| state.requests > requests + 1);
    bench.ends("failed", "halves");
    fs::remove_dir(&in_the_way).unwrap();
    bench.ends("success", "halves");
    let text = fs::read_to_string(&drop_in).unwrap();
    assert!(text.contains("MIG_PARTED_SELECTED_CONFIG=halves"), "{text}");
    assert_eq!(bench.told(), ["daemon-reload"]);
}

#[test]
fn a_mode_that_changes_with_a_reboot_reboots_the_host_once() {
    let bench = Bench::passed_through();
    bench.systemd(&[]);
    bench.ask("seven");
    let manager = bench.start(&["--with-reboot"]);
    let rebooting = |state: &super::State| state.labels.get("nvidia.com/mig.config.state") == Some(&json!("rebooting"));
    bench.wait("rebooting", rebooting);
    bench.is_told("reboot");
    assert_eq!(bench.told(), ["reboot"]);
    assert_eq!(
        bench.api.state().labels[CLIENT],
        PAUSE,
        "who waits goes on waiting for the reboot"
    );
    assert_eq!(bench.mode(), (false, true));
    manager.kill();
    bench.node.reboot().unwrap();
    let manager = bench.start(&["--with-reboot"]);
    bench.ends("success", "seven");
    assert_eq!((bench.mode(), bench.devices().len()), ((true, true), 7));
    assert!(bench.told().is_empty());

    // A reboot that changes nothing is not tried again.
    bench.ask("off");
    bench.wait("rebooting", rebooting);
    bench.is_told("reboot");
    bench.told();
    manager.kill();
    let _manager = bench.start(&["--with-reboot"]);
    bench.ends("failed", "off");
    assert_eq!(bench.reason(), "MIG mode did not change with the reboot");
    let patches = bench.api.state().patches.len();
    fs::write(bench.path("config.yaml"), format!("{A100}\n")).unwrap();
    bench.wait("tried again", |state| state.patches.len() > patches + 1);
    bench.ends("failed", "off");
    assert!(bench.told().is_empty(), "no second reboot");
}

#[test]
fn nobody_waits_for_ever_for_a_reboot_that_does_not_come() {
    let bench = Bench::passed_through();
    bench.systemd(&[]);
    bench.ask("seven");
    let _manager = bench.start(&["--with-reboot", "--change-seconds", "1"]);
    bench.ends("failed", "seven");
    assert_eq!(bench.told(), ["reboot"]);
    assert_eq!(bench.reason(), "MIG mode did not change with the reboot");
}

#[test]
fn a_mode_that_changes_with_a_reset_is_reset_by_the_drivers_tool() {
    let bench = Bench::passed_through();
    bench.systemd(&[]);
    program(&bench.path("driver/usr/bin/nvidia-smi"), NVIDIA_SMI);
    fs::write(bench.path("driver/refuses"), "").unwrap();
    bench.ask("seven");
    let _manager = bench.start(&[]);
    bench.ends("failed", "seven");
    assert!(
        bench.reason().contains("GPU is in use by another client"),
        "{}",
        bench.reason()
    );
    assert_eq!(
        bench.mode(),
        (false, false),
        "no mode is left that would change with somebody's reset"
    );
    fs::remove_file(bench.path("driver/refuses")).unwrap();
    until("resetting", || bench.path("driver/resetting").exists());
    bench.node.reset(0).unwrap();
    fs::remove_file(bench.path("driver/resetting")).unwrap();
    bench.ends("success", "seven");
    assert_eq!(bench.devices().len(), 7);
    let calls = fs::read_to_string(bench.path("driver/calls")).unwrap();
    let address = calls.lines().next().and_then(|line| line.strip_prefix("-r -i "));
    assert!(address.is_some_and(|address| address.ends_with(".0")), "{calls}");
}
