//! The driver's kernel modules.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, ensure};

/// Those that CUDA programs and displays need.
pub(super) const ALL: [&str; 3] = ["nvidia", "nvidia-uvm", "nvidia-modeset"];

/// Loads a module by the `modprobe` of this root.
pub(super) fn load(module: &str, root: &Path) -> anyhow::Result<()> {
    let mut command = if root == Path::new("/") {
        Command::new("/sbin/modprobe")
    } else {
        let mut command = Command::new("chroot");
        command.arg(root).arg("/sbin/modprobe");
        command
    };
    let output = command.arg(module).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run modprobe of `{}`", root.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "cannot load the kernel module `{module}` from `{}`: {}",
        root.display(),
        said.trim()
    );
    Ok(())
}
