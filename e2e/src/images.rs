//! The images of the tests.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

use crate::{Image, Layer};

/// The image of our programs.
pub const STACK: &str = "localhost/gpu-e2e/gpu-stack:test";

/// The image of a CUDA program.
pub const CUDA: &str = "localhost/gpu-e2e/cuda-devices:test";

/// The names under which manifests know the images that the one of our programs stands in for.
const STACK_TAGS: [&str; 4] = [
    STACK,
    "nvcr.io/nvidia/k8s-device-plugin:v0.20.0",
    "nvcr.io/nvidia/cuda:13.2.0-base-ubuntu24.04",
    "nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda11.7.1-ubuntu20.04",
];

/// Our programs under the names that manifests use, a shell, and the C library as any distribution's base image has it: the
/// driver's own programs come without it.
///
/// # Errors
/// If `programs`, which `e2e/stack` fills, lacks `gpu-stack`, or this machine a shell.
pub fn stack(programs: &Path) -> Result<Image> {
    let mut layer = Layer::new();
    layer.host_program("/usr/bin/gpu-stack", programs.join("gpu-stack"))?;
    for name in [
        "config-manager",
        "gpu-device-plugin",
        "gpu-feature-discovery",
        "gpu-mig-manager",
        "gpu-mps-daemon",
        "mps-control-daemon",
        "nvidia-device-plugin",
        "gpuctl",
        "gpu-toolkit",
        "nvidia-ctk-installer",
    ] {
        layer.symlink(Path::new("/usr/bin").join(name), "gpu-stack")?;
    }
    for program in ["gpu-cdi-hook", "gpu-container-runtime"] {
        layer.host_program(format!("/usr/bin/{program}"), programs.join(program))?;
    }
    // To run programs of the host.
    layer.host_program("/usr/sbin/chroot", "/usr/sbin/chroot")?;
    base(&mut layer)?;
    Ok(Image {
        layer,
        env: vec![PATH.into()],
        tags: STACK_TAGS.map(str::to_owned).into(),
        ..Image::default()
    })
}

/// `cuda-devices`, a program that needs the driver's `libcuda.so.1`, a shell, and the C library.
///
/// # Errors
/// As [`stack`].
pub fn cuda(programs: &Path) -> Result<Image> {
    let mut layer = Layer::new();
    layer.host_program("/usr/bin/cuda-devices", programs.join("cuda-devices"))?;
    base(&mut layer)?;
    Ok(Image {
        layer,
        env: vec![PATH.into()],
        tags: vec![CUDA.into()],
        ..Image::default()
    })
}

/// As in the CUDA images, which some drivers are mounted into.
const PATH: &str = "PATH=/usr/local/nvidia/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What a distribution's base image has.
fn base(layer: &mut Layer) -> Result<()> {
    for program in ["sh", "cat", "stat", "ls", "sleep", "env", "flock"] {
        layer.host_program(format!("/usr/bin/{program}"), format!("/bin/{program}"))?;
    }
    for library in c_library()? {
        layer.host_file(&library, &library)?;
    }
    layer.dir("/tmp", 0o1777)?.dir("/etc", 0o755)?;
    Ok(())
}

/// The parts of this machine's C library that a program may be linked with.
fn c_library() -> Result<Vec<PathBuf>> {
    let all = crate::image::shared_libraries(Path::new("/bin/sh"))?;
    let libc = all
        .iter()
        .find(|path| path.ends_with("libc.so.6"))
        .context("/bin/sh is not linked with libc.so.6")?;
    let parts = ["libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1"].map(|name| libc.with_file_name(name));
    Ok(parts.into_iter().filter(|path| path.exists()).collect())
}

/// `pause`, the process that holds a pod's namespaces.
///
/// # Errors
/// If `programs` lacks it.
pub fn pause(programs: &Path) -> Result<Image> {
    let mut layer = Layer::new();
    layer.host_file("/pause", programs.join("pause"))?;
    Ok(Image {
        layer,
        entrypoint: vec!["/pause".into()],
        tags: vec!["localhost/gpu-e2e/pause:test".into()],
        ..Image::default()
    })
}

/// A shell and its tools, from the static `busybox`.
///
/// # Errors
/// If `programs` lacks it, or it does not run.
pub fn busybox(programs: &Path) -> Result<Image> {
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
