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
    for line in LIST.lines().filter(|line| !line.starts_with('#')) {
        let line = line.replace("{V}", &node.driver).replace("{LIB}", &library_folder());
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["d", path] => tree.folder(path)?,
            ["so", path, soname] => tree.file(path, 0o755, elf::shared_object(soname))?,
            ["l", path, target] => tree.link(path, target)?,
            ["x", path] => tree.file(path, 0o755, not_simulated(path))?,
            ["f", path] => tree.file(path, 0o644, "simulated\n")?,
            ["f", path, text] => tree.file(path, 0o644, format!("{text}\n"))?,
            ["json", path, soname] => tree.file(path, 0o644, json(soname))?,
            _ => {}
        }
    }
    library(&tree.path(&format!("{}/libnvidia-ml.so.{}", library_folder(), node.driver))?)?;
    program(
        tree,
        "usr/bin/nvidia-smi",
        nvidia_smi.map(Path::to_owned).or_else(built_nvidia_smi),
    )
}

/// Where Debian keeps libraries of this architecture, beneath the root.
fn library_folder() -> String {
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

fn program(tree: &Tree<'_>, path: &str, program: Option<PathBuf>) -> Result<()> {
    let Some(program) = program else {
        return tree.file(path, 0o755, not_simulated(path));
    };
    tree.file(path, 0o755, fs::read(&program).map_err(Error::read(&program))?)
}

/// Stands where a program would be: tools that look for it find it, and whoever runs it learns the truth.
fn not_simulated(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    format!("#!/bin/sh\necho '{name}: not part of this simulated node' >&2\nexit 1\n")
}

fn json(soname: &str) -> String {
    format!("{{\n    \"file_format_version\": \"1.0.0\",\n    \"ICD\": {{ \"library_path\": \"{soname}\" }}\n}}\n")
}
