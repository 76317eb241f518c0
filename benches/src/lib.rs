//! What the benches share: `cargo bench -p gpu-benches`.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};

/// Compiles `native/NAME.c` to the file of that name in a folder, with arguments before and behind what that takes.
///
/// # Errors
/// Where there is no C compiler, or it refuses.
pub fn compile(folder: &Path, name: &str, first: &[&str], last: &[String]) -> anyhow::Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("native/{name}.c"));
    let output = folder.join(name);
    let status = Command::new("cc")
        .args(first)
        .args(last)
        .arg("-o")
        .arg(&output)
        .arg(source)
        .status();
    ensure!(status.context("a C compiler")?.success(), "{name}.c does not compile");
    Ok(output)
}
