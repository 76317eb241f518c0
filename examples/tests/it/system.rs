//! What `gpuctl system` says that it does.

use std::{fs, path::Path};

use gpu_sim::{Node, NodeSpec};
use tempfile::TempDir;

use super::{program, run, stderr};

/// What a command says of a node, and what of it is in the folder of links.
#[track_caller]
fn says(node: &Node, arguments: &[&str]) -> String {
    let mut gpuctl = program(env!("CARGO_BIN_EXE_gpuctl"));
    gpuctl.arg("system").args(arguments).arg("--host-root").arg(node.root());
    let output = run(&mut gpuctl);
    assert!(output.status.success(), "{}", stderr(&output));
    stderr(&output).to_owned()
}

#[test]
fn links_are_counted_and_each_is_named_where_somebody_asks() {
    let dir = TempDir::new().unwrap();
    let node = Node::create(&NodeSpec::new("h100").gpus(2), dir.path()).unwrap();
    let folder = dir.path().join("char");
    let links = |more: &[&str]| {
        let path = format!("--dev-char-path={}", folder.display());
        let root = format!("--driver-root={}", node.root().display());
        let command = ["create-dev-char-symlinks", "--create-all", &path, &root];
        says(&node, &[&command, more].concat())
    };
    let in_folder = || fs::read_dir(&folder).map_or(0, Iterator::count);

    let dry = links(&["--dry-run"]);
    let lines: Vec<_> = dry.lines().collect();
    let Some((last, each)) = lines.split_last() else {
        panic!("{dry}")
    };
    assert_eq!(
        *last,
        format!("would make {} links in `{}`", each.len(), folder.display())
    );
    assert!(
        each.len() > 10 && each.iter().all(|line| line.starts_with("would link `")),
        "{dry}"
    );
    assert_eq!(in_folder(), 0);

    let made = format!("made {} links in `{}`\n", each.len(), folder.display());
    assert_eq!(links(&[]), made, "one line, however many links");
    assert_eq!(in_folder(), each.len());
    let (number, path) = (each.len(), folder.display());
    let kept = format!("nothing to do in `{path}`: it has {number} links already\n");
    assert_eq!((links(&[]), links(&["--dry-run"])), (kept.clone(), kept));

    let first = folder.join("195:255");
    fs::remove_file(&first).unwrap();
    let target = node.root().join("dev/nvidiactl");
    assert_eq!(
        links(&["--verbose"]),
        format!(
            "linked `{}` to `{}`\nmade 1 link in `{}`, which had {} links already\n",
            first.display(),
            target.display(),
            folder.display(),
            each.len() - 1
        )
    );
}

#[test]
fn a_driver_root_that_is_not_seen_is_warned_of_where_it_is_linked_to() {
    let dir = TempDir::new().unwrap();
    let node = Node::create(&NodeSpec::new("h100").gpus(1), dir.path()).unwrap();
    let path = format!("--dev-char-path={}/char", dir.path().display());
    let said = says(
        &node,
        &[
            "create-dev-char-symlinks",
            "--create-all",
            &path,
            "--driver-root=/nowhere",
        ],
    );
    let expected = "warning: there is no driver root `/nowhere` here: the links lead nowhere until there is\nmade ";
    assert!(said.starts_with(expected), "{said}");
}

#[test]
fn a_dry_run_names_the_nodes_that_would_be_made_where_they_would_be() {
    let dir = TempDir::new().unwrap();
    let node = Node::create(&NodeSpec::new("h100").gpus(1), dir.path()).unwrap();
    let root = dir.path().join("driver");
    fs::create_dir(&root).unwrap();
    let dry = |root: &Path| {
        let root = format!("--driver-root={}", root.display());
        says(&node, &["create-device-nodes", "--control-devices", "--dry-run", &root])
    };
    let said = dry(&root);
    let expected = format!("would make `{}/dev/nvidiactl` 195:255\n", root.display());
    assert!(said.starts_with(&expected), "{said}");
    assert_eq!((said.lines().count(), root.join("dev").exists()), (4, false));
}

#[test]
#[ignore = "needs root"]
fn control_nodes_that_are_there_are_not_made_again() {
    let dir = TempDir::new().unwrap();
    let node = Node::create(&NodeSpec::new("h100").gpus(1), dir.path()).unwrap();
    let root = dir.path().join("driver");
    fs::create_dir(&root).unwrap();
    let flag = format!("--driver-root={}", root.display());
    let command = ["create-device-nodes", "--control-devices", &flag];
    assert_eq!(says(&node, &command).lines().count(), 4);
    let complete = format!("all control nodes are in `{}/dev`\n", root.display());
    assert_eq!(says(&node, &[&command[..], &["--dry-run"]].concat()), complete);
    fs::remove_file(root.join("dev/nvidia-uvm")).unwrap();
    let missing = format!("`{}/dev/nvidia-uvm` ", root.display());
    let dry = says(&node, &[&command[..], &["--dry-run"]].concat());
    assert!(
        dry.starts_with(&format!("would make {missing}")) && dry.lines().count() == 1,
        "{dry}"
    );
    let made = says(&node, &command);
    assert!(
        made.starts_with(&format!("made {missing}")) && made.lines().count() == 1,
        "{made}"
    );
    assert_eq!(says(&node, &command), complete);
}
