//! What the hooks and the runtime's wrapper add to the start of a container: medians of whole processes.
//!
//! Build the programs first, static, as they are deployed (README.md says how), and name their folder by `GPU_PROGRAMS`; as root,
//! since one of the hooks makes namespaces: `GPU_PROGRAMS=target/x86_64-unknown-linux-gnu/release cargo bench -p gpu-benches
//! --bench container_start`. The references in the same run: a static program that does nothing (`gpu-cdi-hook noop`), the
//! machine's own `ldconfig` on the same root, which one hook must run, and the low-level runtime without the wrapper.

#![expect(clippy::print_stdout, reason = "a bench prints what it measured")]

use std::{
    env, fs,
    io::Write as _,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

const RUNS: usize = 101;

const HOOKS: [&[&str]; 6] = [
    &[
        "create-symlinks",
        "--link",
        "../libnvidia-allocator.so.1::/usr/lib/gbm/nvidia-drm_gbm.so",
    ],
    &[
        "create-symlinks",
        "--link",
        "libcuda.so.1::/usr/lib/libcuda.so",
        "--link",
        "libcuda.so.580.1::/usr/lib/libcuda.so.1",
    ],
    &["enable-cuda-compat", "--host-driver-version=580.1"],
    &["disable-device-node-modification"],
    &["update-application-profile"],
    &["update-ldcache", "--folder", "/usr/lib"],
];

struct Bundle {
    folder: tempfile::TempDir,
}

impl Bundle {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let root = folder.path().join("rootfs");
        for path in ["dev", "etc", "proc/driver/nvidia", "usr/lib", "usr/local"] {
            fs::create_dir_all(root.join(path)).expect("a new folder");
        }
        fs::write(root.join("proc/driver/nvidia/params"), "ModifyDeviceFiles: 0\n").expect("a new file");
        // As many libraries as a small image has.
        for i in 0..40 {
            let name = root.join(format!("usr/lib/libmade-up-{i}.so.1.0"));
            fs::write(&name, [0; 4096]).expect("a new file");
            symlink(&name, root.join(format!("usr/lib/libmade-up-{i}.so.1"))).expect("a new link");
        }
        Self { folder }
    }

    fn ask(&self, variable: &str) {
        let config =
            format!(r#"{{"ociVersion": "1.1.0", "root": {{"path": "rootfs"}}, "process": {{"env": ["{variable}"]}}}}"#);
        fs::write(self.path("config.json"), config).expect("a new file");
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn state(&self) -> String {
        format!(
            r#"{{"ociVersion": "1.2.0", "id": "x", "bundle": "{}"}}"#,
            self.folder.path().display()
        )
    }
}

fn run(command: &mut Command, stdin: &str) {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    // One that does not read it is done before it is written.
    let _ = child.stdin.take().expect("its input").write_all(stdin.as_bytes());
    let output = child.wait_with_output().expect("it ends");
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn median(mut what: impl FnMut()) -> Duration {
    what();
    let mut times: Vec<_> = (0..RUNS)
        .map(|_| {
            let started = Instant::now();
            what();
            started.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[RUNS / 2]
}

fn print(what: &str, time: Duration) {
    println!("{what:<60} {:>8.2} ms", time.as_secs_f64() * 1000.0);
}

fn main() {
    let programs = PathBuf::from(env::var_os("GPU_PROGRAMS").expect("GPU_PROGRAMS: the folder of the static programs"));
    let hook = programs.join("gpu-cdi-hook");
    let bundle = Bundle::new();
    bundle.ask("NVIDIA_VISIBLE_DEVICES=0");
    hooks(&hook, &bundle);
    wrapper(&programs.join("gpu-container-runtime"), &bundle);
}

fn hooks(program: &Path, bundle: &Bundle) {
    let state = bundle.state();
    let call = |arguments: &[&str]| run(Command::new(program).args(arguments).env_clear(), &state);
    print(
        "reference: a static process that does nothing",
        median(|| call(&["noop"])),
    );
    let root = bundle.path("rootfs");
    let ldconfig = || run(Command::new("/sbin/ldconfig").arg("-r").arg(&root).env_clear(), "");
    fs::write(root.join("etc/ld.so.conf"), "/usr/lib\n").expect("a new file");
    print("reference: ldconfig by itself", median(ldconfig));
    for hook in HOOKS {
        print(&format!("hook {}", hook[0]), median(|| call(hook)));
    }
    let six = median(|| HOOKS.iter().for_each(|hook| call(hook)));
    print("all six, one process each", six);
    let mut several = vec!["several"];
    several.extend(HOOKS.join(&"--then"));
    print("all six in one", median(|| call(&several)));
}

/// In front of a low-level runtime that ends at once, so that what is left is the wrapper.
fn wrapper(program: &Path, bundle: &Bundle) {
    let (runtime, cdi, config) = (bundle.path("true"), bundle.path("cdi"), bundle.path("config.toml"));
    fs::write(&runtime, "#!/bin/sh\nexit 0\n").expect("a new file");
    fs::set_permissions(&runtime, fs::Permissions::from_mode(0o755)).expect("its mode");
    fs::create_dir(&cdi).expect("a new folder");
    // A spec as of a node with 8 GPUs in 7 MIG devices each: 113 devices.
    let devices: Vec<_> = (0..113)
        .map(|i| {
            format!(
                "- name: \"{i}\"\n  containerEdits:\n    deviceNodes:\n    - path: /dev/null\n      major: 1\n      minor: 3\n      permissions: rwm\n"
            )
        })
        .collect();
    let mounts: Vec<_> = (0..60)
        .map(|i| {
            format!(
                "  - hostPath: /usr/lib/lib{i}.so\n    containerPath: /usr/lib/lib{i}.so\n    options: [ro, rbind]\n"
            )
        })
        .collect();
    let spec = format!(
        "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n{}containerEdits:\n  mounts:\n{}",
        devices.concat(),
        mounts.concat()
    );
    fs::write(cdi.join("nvidia.yaml"), spec).expect("a new file");
    let text = format!(
        "[nvidia-container-runtime]\nruntimes = [\"{}\"]\n[nvidia-container-runtime.modes.cdi]\nspec-dirs = [\"{}\"]\n",
        runtime.display(),
        cdi.display()
    );
    fs::write(&config, text).expect("a new file");
    let call = |program: &Path| {
        bundle.ask("NVIDIA_VISIBLE_DEVICES=0");
        let mut command = Command::new(program);
        command.args(["create", "--bundle"]).arg(bundle.folder.path()).arg("x");
        run(command.env("NVIDIA_CTK_CONFIG_FILE_PATH", &config), "");
    };
    let alone = median(|| call(&runtime));
    print("reference: the low-level runtime by itself", alone);
    let wrapped = median(|| call(program));
    print("through the wrapper", wrapped);
    print("what the wrapper adds", wrapped.saturating_sub(alone));
}
