use std::{fs, path::Path};

use super::*;

#[derive(Debug, clap::Parser)]
struct Program {
    #[command(subcommand)]
    system: System,
}

fn run(arguments: &[&str]) -> anyhow::Result<()> {
    let arguments = ["x"].iter().chain(arguments);
    <Program as clap::Parser>::try_parse_from(arguments)?.system.run()
}

/// A host whose kernel has the driver, and flags that say where it is.
fn host() -> (tempfile::TempDir, String) {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("proc")).unwrap();
    fs::write(root.path().join("proc/devices"), "Character devices:\n195 nvidia\n").unwrap();
    let flag = format!("--host-root={}", root.path().display());
    (root, flag)
}

#[test]
fn a_node_without_a_driver_is_told_from_one_where_nothing_is_to_do() {
    let root = tempfile::tempdir().unwrap();
    let here = format!("--host-root={}", root.path().display());
    for command in [
        ["create-device-nodes", "--control-devices"],
        ["create-dev-char-symlinks", "--create-all"],
    ] {
        let error = run(&[&command[..], &[&here]].concat()).unwrap_err().to_string();
        assert!(error.starts_with("no NVIDIA driver is loaded: "), "{error}");
        let error = run(&[&command[..], &["--host-root=/nowhere"]].concat())
            .unwrap_err()
            .to_string();
        assert_eq!(error, "cannot find the host's root `/nowhere`");
    }
}

#[test]
fn driver_root_and_dev_root_are_two() {
    let (root, here) = host();
    // In its place stands what is none, which shows where it was looked for.
    fs::create_dir_all(root.path().join("b/dev/nvidiactl")).unwrap();
    let (a, b) = (
        format!("--driver-root={}/a", root.path().display()),
        format!("--dev-root={}/b", root.path().display()),
    );
    for more in [&[][..], &["--dry-run"]] {
        let command = ["create-device-nodes", "--control-devices", &here, &a, &b];
        let error = run(&[&command[..], more].concat()).unwrap_err();
        let expected = format!("cannot make `{}/b/dev/nvidiactl`", root.path().display());
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn a_root_that_is_not_there_is_refused_and_not_made() {
    let (root, here) = host();
    let typo = root.path().join("typo");
    let flag = |name: &str| format!("--{name}={}", typo.display());
    let (driver, device) = (flag("driver-root"), flag("dev-root"));
    let nodes = ["create-device-nodes", "--control-devices"];
    let links = ["create-dev-char-symlinks", "--create-all", "--create-device-nodes"];
    for (command, flag, what) in [
        (&nodes[..], &driver, "driver root"),
        (&nodes, &device, "device root"),
        (&links, &driver, "driver root"),
    ] {
        for more in [&[][..], &["--dry-run"]] {
            let error = run(&[command, &[&here, flag], more].concat()).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("cannot find the {what} `{}`", typo.display())
            );
            assert!(!typo.exists());
        }
    }
}

#[test]
fn nodes_are_linked_for_all_that_the_driver_has() {
    let (root, here) = host();
    let folder = format!("--dev-char-path={}/char", root.path().display());
    let command = [
        "create-dev-char-symlinks",
        "--create-all",
        "--driver-root=/run/nvidia/driver",
        &folder,
        &here,
    ];
    run(&[&command[..], &["--dry-run"]].concat()).unwrap();
    assert!(!root.path().join("char").exists());
    run(&command).unwrap();
    assert_eq!(
        fs::read_link(root.path().join("char/195:255")).unwrap(),
        Path::new("/run/nvidia/driver/dev/nvidiactl")
    );
}

#[test]
fn links_that_cannot_be_made_are_counted_and_the_first_is_named() {
    let (root, here) = host();
    let folder = root.path().join("char");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("195:255"), "no link").unwrap();
    let path = format!("--dev-char-path={}", folder.display());
    let error = run(&["create-dev-char-symlinks", "--create-all", &path, &here]).unwrap_err();
    let expected = format!(
        "cannot make 1 of 2 links, the first of them `{}/195:255`",
        folder.display()
    );
    assert_eq!(error.to_string(), expected);
    assert!(folder.join("195:254").is_symlink(), "the others are made");
}
