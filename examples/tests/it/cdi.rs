//! `gpuctl cdi` where the vendor's recorded runs (nvidia-ctk v1.20.0+27) wrote no spec, and its list of devices.

use gpu_sim::{Node, NodeSpec};
use serde_json::json;
use tempfile::TempDir;

use super::{program, run, stderr, stdout};

#[track_caller]
fn check(node: &Node, mode: &str, code: i32, expected: &str) {
    let mut gpuctl = program(env!("CARGO_BIN_EXE_gpuctl"));
    gpuctl.envs(node.env()).args(["cdi", "generate", "--mode", mode]);
    gpuctl.arg("--driver-root").arg(node.root());
    let output = run(&mut gpuctl);
    assert_eq!((output.status.code(), stdout(&output)), (Some(code), ""), "{mode}");
    let text = stderr(&output).replace(&node.root().display().to_string(), "ROOT");
    assert!(text.contains(expected), "{mode}: {text}");
}

/// The vendor's program says `empty device edits` of each but the first.
#[test]
fn where_there_is_no_spec_it_is_said_what_was_looked_for() {
    let dir = TempDir::new().unwrap();
    let node = Node::create(&NodeSpec::new("a100").gpus(1), dir.path()).unwrap();
    // a100-1gpu-mode-bogus
    check(&node, "bogus", 2, "invalid value 'bogus'");
    // a100-1gpu-mode-{csv,gdrcopy,gds,imex,mofed,nvswitch}
    check(
        &node,
        "csv",
        1,
        "error: no device node that a csv file names in the device root `ROOT`",
    );
    check(&node, "gdrcopy", 1, "error: no /dev/gdrdrv in the device root `ROOT`");
    check(&node, "gds", 1, "error: no /dev/nvidia-fs* in the device root `ROOT`");
    check(&node, "imex", 1, "error: no /dev/nvidia-caps-imex-channels/channel*");
    check(&node, "mofed", 1, "error: no /dev/infiniband/uverbs* or");
    check(&node, "nvswitch", 1, "error: no /dev/nvidia-nvswitch*");
    // no-devnodes
    for entry in std::fs::read_dir(node.root().join("dev")).unwrap() {
        let path = entry.unwrap().path();
        if path.display().to_string().contains("/dev/nvidia") && !path.is_dir() {
            std::fs::remove_file(path).unwrap();
        }
    }
    check(&node, "nvml", 1, "has no device node `/dev/nvidia0`");
    check(&node, "nvml", 1, "note: device nodes are looked for beneath `ROOT`\n");
    // What is made of a node without the right to make devices.
    std::fs::write(node.root().join("dev/nvidia0"), "").unwrap();
    check(
        &node,
        "nvml",
        1,
        "has no device node: `/dev/nvidia0` is a regular file\n",
    );
    // a100-1gpu-mig-empty
    node.set_mig_mode(0, true).unwrap();
    check(&node, "nvml", 1, "is in MIG mode and has no MIG devices");
}

#[test]
fn a_gpu_that_is_not_there_is_answered_with_those_that_are() {
    let dir = TempDir::new().unwrap();
    let node = Node::create(&NodeSpec::new("a100").gpus(2), dir.path()).unwrap();
    node.set_mig_mode(1, true).unwrap();
    node.create_mig(1, "1g.5gb", None).unwrap();
    let mut gpuctl = program(env!("CARGO_BIN_EXE_gpuctl"));
    let output = run(gpuctl.envs(node.env()).args(["cdi", "generate", "--device-id=0,8"]));
    assert_eq!(
        stderr(&output),
        "error: no GPU or MIG device `8` on this node, which has `0`, `1`, `1:0`\n"
    );
}

#[test]
fn a_transformation_that_changes_nothing_says_so() {
    let dir = TempDir::new().unwrap();
    let device = json!({ "name": "a", "containerEdits": { "deviceNodes": [{ "path": "/r/a" }] } });
    let spec = json!({ "cdiVersion": "0.5.0", "kind": "v/c", "devices": [device] }).to_string();
    let path = dir.path().join("a.json");
    std::fs::write(&path, spec).unwrap();
    let input = path.to_str().unwrap();
    let moved = |from: &str, side: &str| {
        let flags = [
            "transform",
            "root",
            "--to=/b",
            "--from",
            from,
            "--relative-to",
            side,
            "--input",
            input,
        ];
        let (code, _, said) = gpuctl(&flags);
        (code, said)
    };
    assert_eq!(moved("/r", "host"), (Some(0), String::new()));
    for side in ["host", "container"] {
        let said = format!("warning: no path of the {side} lies in `/d`: nothing is changed\n");
        assert_eq!(moved("/d", side), (Some(0), said));
    }
}

/// The record `cdi-list`.
#[test]
fn devices_are_listed_by_their_names() {
    let dir = TempDir::new().unwrap();
    let gpus = [0, 1].map(|number| format!("GPU-12345678-1234-1234-1234-12345678000{number}"));
    let devices = ["all", &gpus[1], "1", &gpus[0], "0"]
        .map(|name| json!({ "name": name, "containerEdits": { "deviceNodes": [{ "path": "/dev/nvidia0" }] } }));
    let spec = json!({ "cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices });
    std::fs::write(dir.path().join("nvidia.json"), spec.to_string()).unwrap();
    let output = run(program(env!("CARGO_BIN_EXE_gpuctl"))
        .args(["cdi", "list", "--spec-dir"])
        .arg(dir.path()));
    let expected = ["0", "1", &gpus[0], &gpus[1], "all"].map(|name| format!("nvidia.com/gpu={name}\n"));
    assert_eq!(stdout(&output), expected.concat());
    assert_eq!(stderr(&output), "Found 5 CDI devices\n");
}

/// The exit code of a command without a node, what it prints and what it says.
fn gpuctl(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = run(program(env!("CARGO_BIN_EXE_gpuctl")).arg("cdi").args(arguments));
    (
        output.status.code(),
        stdout(&output).to_owned(),
        stderr(&output).to_owned(),
    )
}

#[test]
fn what_was_checked_and_what_was_not_there_is_said() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().display().to_string();
    let validate = |more: &[&str]| gpuctl(&[&["validate"], more].concat());
    let in_folder = || validate(&["--spec-dir", &path]);
    let missing = "error: there is no folder `/nope`\n".to_owned();
    assert_eq!(validate(&["--spec-dir=/nope"]), (Some(1), String::new(), missing));
    assert_eq!(
        in_folder(),
        (Some(0), String::new(), format!("no CDI files in `{path}`\n"))
    );

    let device = json!({ "name": "0", "containerEdits": { "env": ["A=1"] } });
    let spec = json!({ "cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [device] }).to_string();
    std::fs::write(dir.path().join("a.json"), &spec).unwrap();
    let good = format!("{path}/a.json: 1 device of nvidia.com/gpu, CDI 0.5.0\n");
    assert_eq!(
        in_folder(),
        (Some(0), good.clone(), "1 file with 1 device checked\n".to_owned())
    );

    let again = format!("--spec-dir={path},{path}/.");
    let twice = gpuctl(&["validate", &again]);
    let counted = (twice.0, twice.1.lines().count(), twice.2.as_str());
    assert_eq!(counted, (Some(0), 1, "1 file with 1 device checked\n"));

    let bad = dir.path().join("bad.yaml");
    std::fs::write(&bad, "kind: [").unwrap();
    let reason = "not a CDI spec: expected a text at line 1, column 7";
    let fault = format!("error: `{path}/bad.yaml`: {reason}\nerror: 1 fault in ");
    assert_eq!(in_folder(), (Some(1), good, format!("{fault}2 files\n")));
    let named = validate(&[&bad.display().to_string()]);
    assert_eq!(named, (Some(1), String::new(), format!("{fault}1 file\n")));
    let roots = ["transform", "root", "--from=/a", "--to=/b", "--input"];
    let transformed = gpuctl(&[&roots[..], &[&bad.display().to_string()]].concat());
    let error = format!("error: cannot use `{path}/bad.yaml`: {reason}\n");
    assert_eq!(transformed, (Some(1), String::new(), error));

    let listed = gpuctl(&["list", "--spec-dir=/nope"]);
    let said = "warning: there is no folder `/nope`\nFound 0 CDI devices\n".to_owned();
    assert_eq!(listed, (Some(0), String::new(), said));
}

#[test]
fn a_configuration_that_is_named_is_read_or_refused() {
    let dir = TempDir::new().unwrap();
    let node = Node::create(&NodeSpec::new("a100").gpus(1), dir.path()).unwrap();
    let broken = dir.path().join("broken.toml");
    std::fs::write(&broken, "x = [").unwrap();
    for (config, expected) in [
        (
            "/nowhere/config.toml",
            "error: cannot read `/nowhere/config.toml`: No such file".to_owned(),
        ),
        (
            broken.to_str().unwrap(),
            format!("error: `{}:1:6` is not valid TOML", broken.display()),
        ),
    ] {
        for by_variable in [false, true] {
            let mut gpuctl = program(env!("CARGO_BIN_EXE_gpuctl"));
            // Whatever else says where the driver is.
            gpuctl.envs(node.env()).args(["cdi", "generate"]);
            if by_variable {
                gpuctl.env("NVIDIA_CTK_CONFIG_FILE_PATH", config);
            } else {
                gpuctl.args(["--config", config]);
            }
            let output = run(&mut gpuctl);
            assert_eq!((output.status.code(), stdout(&output)), (Some(1), ""));
            assert!(stderr(&output).starts_with(&expected), "{}", stderr(&output));
        }
    }
}

#[test]
fn a_key_that_is_not_known_is_warned_of_in_a_configuration_that_is_named() {
    let dir = TempDir::new().unwrap();
    let node = Node::create(&NodeSpec::new("a100").gpus(1), dir.path().join("node")).unwrap();
    let config = dir.path().join("config.toml");
    let root = node.root().display().to_string();
    std::fs::write(
        &config,
        format!("[nvidia-container-cli]\nroot = '{root}'\nrot = '/x'\n"),
    )
    .unwrap();
    let mut gpuctl = program(env!("CARGO_BIN_EXE_gpuctl"));
    gpuctl.envs(node.env()).env_remove("NVIDIA_DRIVER_ROOT");
    gpuctl.args(["cdi", "generate", "--config"]).arg(&config);
    let output = run(&mut gpuctl);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        stdout(&output).contains(&format!("hostPath: {root}/dev/nvidia0\n")),
        "{}",
        stdout(&output)
    );
    let warning = format!(
        "warning: `nvidia-container-cli.rot` in line 3 of `{}` is not a known key and has no effect; did you mean `root`?",
        config.display()
    );
    assert_eq!(
        stderr(&output).lines().filter(|line| *line == warning).count(),
        1,
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_hook_program_that_nobody_named_and_the_host_lacks_is_warned_of_once() {
    let dir = TempDir::new().unwrap();
    let node = Node::create(&NodeSpec::new("a100").gpus(2), dir.path()).unwrap();
    let warnings = |more: &[&str]| {
        let mut gpuctl = program(env!("CARGO_BIN_EXE_gpuctl"));
        let output = run(gpuctl.envs(node.env()).args(["cdi", "generate"]).args(more));
        assert!(output.status.success(), "{}", stderr(&output));
        let said = stderr(&output).lines();
        said.filter(|line| line.starts_with("warning: the hook program `"))
            .count()
    };
    assert_eq!(warnings(&[]), 1);
    assert_eq!(warnings(&["--nvidia-cdi-hook-path=/opt/gpu-cdi-hook"]), 0);
    assert_eq!(warnings(&["--disable-hook=all"]), 0);
}

#[test]
fn the_file_that_was_written_is_named_as_it_is_called() {
    let dir = TempDir::new().unwrap();
    let node = Node::create(&NodeSpec::new("a100").gpus(1), dir.path()).unwrap();
    let spec = dir.path().join("specs/null");
    let mut gpuctl = program(env!("CARGO_BIN_EXE_gpuctl"));
    gpuctl
        .envs(node.env())
        .args(["cdi", "generate", "--disable-hook=all", "--output"])
        .arg(&spec);
    let output = run(&mut gpuctl);
    let expected = format!("and 3 devices in `{}.yaml`\n", spec.display());
    assert!(stderr(&output).ends_with(&expected), "{}", stderr(&output));
}

#[test]
fn every_mode_is_described() {
    let (code, help, _) = gpuctl(&["generate", "--help"]);
    assert_eq!(code, Some(0));
    let modes = help.split_once("- auto:").unwrap().1.split_once("[env").unwrap().0;
    let plain: Vec<_> = modes.lines().skip(1).filter(|line| !line.trim().is_empty()).collect();
    assert!(
        plain.len() >= 10 && plain.iter().all(|line| !line.contains("- ") || line.contains(": ")),
        "{modes}"
    );
}
