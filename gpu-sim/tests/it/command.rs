use std::process::{Command, Output};

use gpu_sim::{Node, NodeSpec};

use crate::Simulated;

/// Runs `gpu-sim` with no node in its environment.
fn gpu_sim(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gpu-sim"))
        .args(arguments)
        .env_remove("GPU_SIM_DIR")
        .output()
        .expect("gpu-sim runs")
}

#[track_caller]
fn check(arguments: &[&str], code: i32, stderr: &str) -> String {
    let output = gpu_sim(arguments);
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {err}");
    assert!(
        if stderr.is_empty() {
            err.is_empty()
        } else {
            err.contains(stderr)
        },
        "{arguments:?}: {err}"
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_node_is_made_and_things_happen_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("it's a node");
    let dir = dir.to_str().unwrap();
    let made = check(
        &[
            "new",
            "--profile",
            "h100",
            "--gpus",
            "2",
            "--seed",
            "3",
            "--driver",
            "580",
            "--dir",
            dir,
        ],
        0,
        "",
    );
    assert!(made.ends_with("2 x H100-80GB-HBM3, driver 580.159.04\n"), "{made}");

    // In a shell, as a person would.
    let exports = check(&["env", "--dir", dir], 0, "");
    let list = || {
        let script = format!("{exports}\nnvidia-smi -L");
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().lines().count()
    };
    assert_eq!(list(), 2);
    check(&["lose", "--gpu", "1", "--dir", dir], 0, "");
    assert_eq!(list(), 1);
    check(&["restore", "--gpu", "1", "--dir", dir], 0, "");
    assert_eq!(list(), 2);
    check(&["xid", "--gpu", "0", "79", "--dir", dir], 0, "");
    let events = std::fs::read_to_string(format!("{dir}/state/events")).unwrap();
    assert!(events.contains(" 8 79 "), "{events}");

    check(&["new", "--profile", "h100", "--dir", dir], 1, "is not empty");
    check(
        &["lose", "--gpu", "2", "--dir", dir],
        1,
        "no GPU 2 on this node: it has 2",
    );
}

#[test]
fn bad_usage_is_refused_with_code_2_and_failure_has_code_1() {
    check(&["new", "--profile", "h100"], 2, "--dir");
    check(&["frobnicate"], 2, "frobnicate");
    check(&["lose", "--gpu", "0"], 2, "--dir");
    check(&["xid", "--gpu", "0", "--dir", "/absent"], 2, "CODE");
    check(
        &["xid", "--gpu", "0", "79", "--dir", "/absent"],
        1,
        "`/absent` is not a simulated node",
    );
    check(
        &["new", "--profile", "h300", "--dir", "/absent"],
        1,
        "choose one of a10, a100",
    );
    check(
        &["new", "--profile", "h100", "--driver", "1", "--dir", "/absent"],
        1,
        "driver `1` is not simulated",
    );
}

#[test]
fn profiles_lists_templates_and_boards() {
    let list = check(&["profiles"], 0, "");
    for name in ["h100", "h200", "h200-vm", "H100-80GB-HBM3", "H200-141GB"] {
        assert!(
            list.lines()
                .any(|line| line.trim_start().starts_with(&format!("{name} "))),
            "{name}: {list}"
        );
    }
}

#[test]
fn a_folder_may_have_any_name_that_a_list_of_folders_can_hold() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join(OsStr::from_bytes(b"n\xff\xfe"));
    let run = |arguments: &[&str], dir: &std::path::Path| {
        let output = Command::new(env!("CARGO_BIN_EXE_gpu-sim"))
            .args(arguments)
            .arg("--dir")
            .arg(dir)
            .output();
        output.expect("gpu-sim runs")
    };
    assert!(run(&["new", "--profile", "h100", "--gpus", "1"], &dir).status.success());
    let mut script = run(&["env"], &dir).stdout;
    script.extend_from_slice(b"\nnvidia-smi -L");
    let list = Command::new("sh")
        .arg("-c")
        .arg(OsStr::from_bytes(&script))
        .output()
        .unwrap();
    assert!(list.stdout.starts_with(b"GPU 0: NVIDIA H100"), "{list:?}");

    let dir = folder.path().join("a:b");
    assert!(run(&["new", "--profile", "h100", "--gpus", "1"], &dir).status.success());
    let refused = run(&["env"], &dir);
    assert_eq!(refused.status.code(), Some(1));
    let message = String::from_utf8(refused.stderr).unwrap();
    assert!(
        message.ends_with("a:b` has a colon or semicolon in it, so LD_LIBRARY_PATH cannot name it\n"),
        "{message}"
    );
}

#[test]
fn a_state_that_was_removed_begins_anew() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("node");
    let dir = dir.to_str().unwrap();
    check(&["new", "--profile", "h100", "--gpus", "2", "--dir", dir], 0, "");
    check(&["mig", "on", "--gpu", "0", "--dir", dir], 0, "");
    check(&["mig", "create", "1g.10gb", "--gpu", "0", "--dir", dir], 0, "");
    std::fs::remove_dir_all(folder.path().join("node/state")).unwrap();
    assert_eq!(check(&["mig", "list", "--gpu", "0", "--dir", dir], 0, ""), "mode off\n");
    check(&["xid", "--gpu", "0", "79", "--dir", dir], 0, "");
    check(&["lose", "--gpu", "1", "--dir", dir], 0, "");
    let nodes = std::fs::read_dir(folder.path().join("node/root/dev/nvidia-caps")).unwrap();
    assert_eq!(nodes.count(), 2, "no instance is left there either");
    std::fs::remove_dir_all(folder.path().join("node")).unwrap();
    check(&["lose", "--gpu", "1", "--dir", dir], 1, "is not a simulated node");
}

/// A limit on the size of files stands for a full disk: every write fails.
#[test]
fn without_room_a_change_is_refused_by_name_and_nothing_is_lost() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(1));
    node.node.set_mig_mode(0, true).unwrap();
    node.node.create_mig(0, "1g.10gb", Some(3)).unwrap();
    let before = node.node.mig(0).unwrap();
    for change in [
        "mig create 3g.40gb --gpu 0",
        "mig destroy 14 --gpu 0",
        "xid --gpu 0 79",
        "ecc --gpu 0 --dbe 1",
        "driver 580",
    ] {
        let script = format!(
            "trap '' XFSZ; ulimit -f 0; exec {} {change}",
            env!("CARGO_BIN_EXE_gpu-sim")
        );
        let output = Command::new("sh")
            .args(["-c", &script])
            .env("GPU_SIM_DIR", node.node.folder())
            .output()
            .expect("sh runs");
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{change}: {err}");
        assert!(
            err.starts_with("gpu-sim: cannot write `") && err.contains("os error 27"),
            "{change}: {err}"
        );
    }
    for folder in ["", "state", "lib"] {
        let left = std::fs::read_dir(node.node.folder().join(folder)).unwrap();
        let left: Vec<_> = left.map(|entry| entry.unwrap().path()).collect();
        assert!(
            left.iter().all(|path| path.extension() != Some("new".as_ref())),
            "{left:?}"
        );
    }
    let opened = Node::open(node.node.folder()).unwrap();
    assert_eq!(opened.mig(0).unwrap(), before);
    node.node.create_mig(0, "3g.40gb", None).unwrap();
}
