//! `gpu-e2e-images PROGRAMS OUT`: writes the images that every test cluster has, `pause.tar` and `busybox.tar`.
//!
//! PROGRAMS holds the static programs `pause` and `busybox`, as `e2e/programs` leaves them.

#![expect(clippy::print_stderr, reason = "a program says on standard error what went wrong")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, ensure};
use gpu_e2e::{Image, Layer};

fn main() -> ExitCode {
    let arguments: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    let [programs, out] = arguments.as_slice() else {
        eprintln!("usage: gpu-e2e-images PROGRAMS OUT");
        return ExitCode::from(2);
    };
    match write(programs, out) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gpu-e2e-images: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn write(programs: &Path, out: &Path) -> Result<()> {
    fs::create_dir_all(out).with_context(|| format!("cannot make the folder `{}`", out.display()))?;
    pause(programs)?.save(out.join("pause.tar"))?;
    busybox(programs)?.save(out.join("busybox.tar"))
}

fn pause(programs: &Path) -> Result<Image> {
    let mut layer = Layer::new();
    layer.host_file("/pause", programs.join("pause"))?;
    Ok(Image {
        layer,
        entrypoint: vec!["/pause".into()],
        tags: vec!["localhost/gpu-e2e/pause:test".into()],
        ..Image::default()
    })
}

fn busybox(programs: &Path) -> Result<Image> {
    let program = programs.join("busybox");
    let mut layer = Layer::new();
    layer.host_file("/bin/busybox", &program)?;
    for applet in applets(&program)? {
        if applet != "busybox" {
            layer.symlink(Path::new("/bin").join(applet), "busybox")?;
        }
    }
    layer.dir("/tmp", 0o1777)?.dir("/root", 0o700)?;
    layer.file("/etc/passwd", 0o644, "root:x:0:0:root:/root:/bin/sh\n")?;
    layer.file("/etc/group", 0o644, "root:x:0:\n")?;
    Ok(Image {
        layer,
        cmd: vec!["/bin/sh".into()],
        env: vec!["PATH=/bin".into()],
        tags: vec!["localhost/gpu-e2e/busybox:test".into()],
        ..Image::default()
    })
}

fn applets(busybox: &Path) -> Result<Vec<String>> {
    let output = Command::new(busybox)
        .arg("--list")
        .output()
        .with_context(|| format!("cannot run `{}`", busybox.display()))?;
    ensure!(
        output.status.success(),
        "`{} --list` failed: {}",
        busybox.display(),
        output.status
    );
    Ok(String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect())
}
