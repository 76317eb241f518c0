//! The driver's user-space part: libraries, programs, firmware, configuration.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use super::Tree;
use crate::{Error, NodeFile, Result, elf};

/// What a driver leaves: a line per file. The list is that of the driver root the vendor's programs were recorded with.
const LIST: &str = include_str!("driver-root.txt");

pub(super) fn write(
    tree: &Tree<'_>,
    node: &NodeFile,
    nvidia_smi: Option<&Path>,
    library: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    for line in lines() {
        entry(tree, &filled(line, &node.driver))?;
    }
    library(&tree.path(&format!("{}/libnvidia-ml.so.{}", library_folder(), node.driver))?)?;
    programs(tree, nvidia_smi.map(Path::to_owned).or_else(built_nvidia_smi))
}

/// Replaces what bears the driver's version; programs stay.
pub(super) fn change(
    tree: &Tree<'_>,
    node: &NodeFile,
    old: &str,
    library: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    let with_version = || lines().filter(|line| line.contains("{V}"));
    for line in with_version() {
        let line = filled(line, old);
        if let Some(path) = line.split_whitespace().nth(1) {
            let path = tree.path(path)?;
            let is_folder = path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir());
            let removed = if is_folder {
                fs::remove_dir_all(&path)
            } else {
                super::absent(&path)
            };
            removed.map_err(Error::write(path))?;
        }
    }
    let own = format!("{}/libnvidia-ml.so.", library_folder());
    let path = tree.path(&format!("{own}{old}"))?;
    super::absent(&path).map_err(Error::write(path))?;
    for line in with_version() {
        entry(tree, &filled(line, &node.driver))?;
    }
    library(&tree.path(&format!("{own}{}", node.driver))?)
}

fn lines() -> impl Iterator<Item = &'static str> {
    LIST.lines().filter(|line| !line.starts_with('#'))
}

fn filled(line: &str, version: &str) -> String {
    line.replace("{V}", version).replace("{LIB}", &library_folder())
}

fn entry(tree: &Tree<'_>, line: &str) -> Result<()> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        ["d", path] => tree.folder(path),
        ["so", path, soname] => tree.file(path, 0o755, elf::shared_object(soname)),
        ["l", path, target] => tree.link(path, target),
        ["x", path] => tree.file(path, 0o755, not_simulated(path)),
        ["f", path] => tree.file(path, 0o644, "simulated\n"),
        ["f", path, text] => tree.file(path, 0o644, format!("{text}\n")),
        ["json", path, soname] => tree.file(path, 0o644, json(soname)),
        _ => Ok(()),
    }
}

/// Where Debian keeps libraries of this architecture, beneath the root.
pub(crate) fn library_folder() -> String {
    format!("usr/lib/{}-linux-gnu", env::consts::ARCH)
}

/// Our `nvidia-smi`, where it was built with the program that runs: beside it, or above `deps/` for a test.
fn built_nvidia_smi() -> Option<PathBuf> {
    let program = env::current_exe().ok()?;
    program
        .ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join("nvidia-smi"))
        .find(|path| path.is_file())
}

/// One executable under all its names. Links, because nobody minds and a node is smaller.
fn programs(tree: &Tree<'_>, program: Option<PathBuf>) -> Result<()> {
    const PATH: &str = "usr/bin/nvidia-smi";
    let Some(program) = program else {
        return tree.file(PATH, 0o755, not_simulated(PATH));
    };
    tree.file(PATH, 0o755, fs::read(&program).map_err(Error::read(&program))?)?;
    for name in PROGRAMS {
        let path = tree.path(&format!("usr/bin/{name}"))?;
        let link = || {
            super::absent(&path)?;
            fs::hard_link(tree.root.join(PATH), &path)
        };
        link().map_err(Error::write(&path))?;
    }
    Ok(())
}

/// What the executable is besides `nvidia-smi`.
const PROGRAMS: [&str; 4] = [
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
];

/// Stands where a program would be: tools that look for it find it, and whoever runs it learns the truth.
fn not_simulated(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    format!("#!/bin/sh\necho '{name}: not part of this simulated node' >&2\nexit 1\n")
}

fn json(soname: &str) -> String {
    format!("{{\n    \"file_format_version\": \"1.0.0\",\n    \"ICD\": {{ \"library_path\": \"{soname}\" }}\n}}\n")
}
