//! The hook program on containers that are folders, some with traps for it.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use crate::elf;

/// What the program says of itself if the tests were built dynamic, as they are for GNU/Linux by default.
const NOT_STATIC: &str = "warning: this program is not static";

/// A bundle as runtimes lay it out, and beside it a file that no hook may touch.
struct Bundle {
    dir: tempfile::TempDir,
}

impl Bundle {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir_all(dir.path().join("bundle/rootfs")).expect("a new folder");
        fs::create_dir(dir.path().join("host")).expect("a new folder");
        fs::write(dir.path().join("host/file"), "host").expect("a new file");
        fs::write(dir.path().join("bundle/config.json"), r#"{"root": {"path": "rootfs"}}"#).expect("a new file");
        Self { dir }
    }

    fn host(&self) -> PathBuf {
        self.dir.path().join("host")
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join("bundle/rootfs").join(path)
    }

    fn file(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a new folder");
        fs::write(path, content).expect("a new file");
    }

    fn link(&self, path: &str, target: impl AsRef<Path>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a new folder");
        symlink(target, path).expect("a new link");
    }

    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.path(path)).ok()
    }

    fn target(&self, path: &str) -> Option<String> {
        Some(fs::read_link(self.path(path)).ok()?.to_str()?.to_owned())
    }

    fn state(&self) -> String {
        let bundle = self.dir.path().join("bundle");
        format!(
            r#"{{"ociVersion":"1.2.0","id":"test","status":"creating","bundle":"{}"}}"#,
            bundle.display()
        )
    }

    fn run(&self, args: &[&str]) -> Output {
        run(&mut Command::new(program()), args, &self.state())
    }

    #[track_caller]
    fn succeeds(&self, args: &[&str]) {
        let output = self.run(args);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    #[track_caller]
    fn fails(&self, args: &[&str], code: i32, expected: &str) {
        let output = self.run(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
        let lines = stderr.lines().filter(|line| !line.contains(NOT_STATIC));
        assert_eq!(lines.count(), 1, "{stderr}");
    }

    /// That the host's folder holds what it did at first.
    #[track_caller]
    fn host_is_untouched(&self) {
        assert_eq!(entries(&self.host()), ["file"]);
        assert_eq!(
            fs::read_to_string(self.host().join("file")).expect("the host's file"),
            "host"
        );
    }
}

fn entries(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("a folder");
    let mut names: Vec<_> = entries.map(|entry| entry.expect("an entry").file_name()).collect();
    names.sort();
    names
        .into_iter()
        .map(|name| name.into_string().expect("UTF-8"))
        .collect()
}

/// The example that is the hook program; cargo builds it beside the tests.
fn program() -> PathBuf {
    let test = std::env::current_exe().expect("this program");
    let dir = test.ancestors().nth(2).expect("the profile's folder");
    let program = dir.join("examples/gpu-cdi-hook");
    assert!(
        program.exists(),
        "\nthe hook program that these tests run is not built: no `{}`.\n\
         `cargo test --test it` builds the tests alone; run `cargo test -p gpu-cdi`, or first\n\
         `cargo build -p gpu-cdi --features hook --example gpu-cdi-hook`, with the profile and target of the tests\n",
        program.display()
    );
    program
}

fn run(command: &mut Command, args: &[&str], state: &str) -> Output {
    let mut child = command
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the hook program");
    // A hook that fails early does not read its input.
    let _ = child.stdin.take().expect("a pipe").write_all(state.as_bytes());
    child.wait_with_output().expect("its end")
}

#[test]
fn links_are_made_with_the_folders_above_them() {
    let bundle = Bundle::new();
    bundle.file("usr/lib/libb.so", "an older file");
    bundle.link("usr/lib/libc.so", "other");
    bundle.link("lib64", "/usr/lib");
    let links = [
        "liba.so.1::/opt/driver/lib/liba.so",
        "libb.so.1::/usr/lib/libb.so",
        "libc.so.1::/usr/lib/libc.so",
        "libd.so.1::lib64/libd.so",
    ];
    let mut args = vec!["create-symlinks"];
    args.extend(links.iter().chain(&links[..1]).flat_map(|link| ["--link", link]));
    bundle.succeeds(&args);
    bundle.succeeds(&args);
    assert_eq!(bundle.target("opt/driver/lib/liba.so").as_deref(), Some("liba.so.1"));
    assert_eq!(bundle.target("usr/lib/libb.so").as_deref(), Some("libb.so.1"));
    assert_eq!(bundle.target("usr/lib/libc.so").as_deref(), Some("libc.so.1"));
    assert_eq!(bundle.target("usr/lib/libd.so").as_deref(), Some("libd.so.1"));
    assert_eq!(entries(&bundle.path("usr/lib")), ["libb.so", "libc.so", "libd.so"]);
    assert_eq!(
        fs::metadata(bundle.path("opt/driver")).unwrap().permissions().mode() & 0o777,
        0o755
    );
}

#[test]
fn cve_2024_0134_a_link_in_the_image_leads_no_new_link_out_of_it() {
    let bundle = Bundle::new();
    let host = bundle.host();
    bundle.link("absolute", &host);
    bundle.link("relative", "../../host");
    bundle.link("many", "../../../../../../../../../../../../../../../../../../../../");
    for dir in ["absolute", "relative"] {
        for path in ["sub/a", "file"] {
            bundle.fails(
                &["create-symlinks", "--link", &format!("a::/{dir}/{path}")],
                1,
                "cannot make the link",
            );
            bundle.host_is_untouched();
        }
    }
    bundle.succeeds(&["create-symlinks", "--link", "a::/many/etc/a"]);
    assert_eq!(bundle.target("etc/a").as_deref(), Some("a"));
    bundle.fails(
        &["create-symlinks", "--link", "a::/../../host/a"],
        1,
        "`..` in the path",
    );
    bundle.fails(
        &["create-symlinks", "--link", "a::/x/../../../host/a"],
        1,
        "`..` in the path",
    );
    bundle.host_is_untouched();
}

#[test]
fn a_link_that_is_none_is_bad_usage() {
    let bundle = Bundle::new();
    for link in ["a", "a::", "::b", "a::b::c"] {
        bundle.fails(&["create-symlinks", "--link", link], 2, "expected `TARGET::LINK`");
    }
    fs::create_dir(bundle.path("dir")).unwrap();
    bundle.fails(
        &["create-symlinks", "--link", "a::/dir"],
        1,
        "cannot make the link `/dir` to `a` in the container",
    );
    assert_eq!(entries(&bundle.path("")), ["dir"]);
}

#[test]
fn bad_usage_and_a_bad_state_have_the_documented_exit_codes() {
    let bundle = Bundle::new();
    bundle.fails(&[], 2, "no hook named");
    bundle.fails(&["create-symlinks", "--nothing", "x"], 2, "unknown flag `--nothing`");
    bundle.fails(
        &["create-symlinks", "--container-spec", "/nonexistent"],
        1,
        "cannot read the container's state",
    );
    fs::write(
        bundle.dir.path().join("bundle/config.json"),
        r#"{"root": {"path": "/"}}"#,
    )
    .unwrap();
    bundle.fails(
        &["create-symlinks", "--link", "a::/b"],
        1,
        "the container's root `/` is the root of the host",
    );
    fs::write(bundle.dir.path().join("bundle/config.json"), "{").unwrap();
    bundle.fails(&["update-application-profile"], 1, "config.json` is not valid: EOF");
    let output = bundle.run(&["--quiet", "--help"]);
    assert!(output.status.success() && output.stderr.is_empty());
    assert!(String::from_utf8_lossy(&output.stdout).contains("update-ldcache"));
}

#[test]
fn an_unknown_hook_is_told_and_fails_no_container() {
    let bundle = Bundle::new();
    let output = bundle.run(&["make-coffee", "--milk", "--sugar=2"]);
    assert!(output.status.success());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        stderr.contains("warning: unknown hook `make-coffee`: nothing was done"),
        "{stderr}"
    );
    assert_eq!(entries(&bundle.path("")), [""; 0]);
}

#[test]
fn a_program_with_a_loader_says_so() {
    let dynamic = fs::read(program())
        .unwrap()
        .windows(12)
        .any(|text| text == b"/ld-linux-x8" || text == b"/ld-linux-aa");
    let stderr = |args: &[&str]| String::from_utf8(Bundle::new().run(args).stderr).unwrap();
    assert_eq!(stderr(&["noop"]).contains(NOT_STATIC), dynamic);
    assert_eq!(stderr(&["--quiet", "noop"]), "");
}

#[test]
fn compatibility_libraries_are_preferred_if_they_are_newer_than_the_driver() {
    #[track_caller]
    fn check(library: &str, version: &str, expected: Option<&str>) {
        let bundle = Bundle::new();
        bundle.file(
            &format!("usr/local/cuda-13.0/compat/{library}"),
            elf::library(Some("libcuda.so.1")),
        );
        bundle.link("usr/local/cuda-13.0/compat/libcuda.so.1", library);
        bundle.link("usr/local/cuda", "cuda-13.0");
        bundle.succeeds(&["enable-cuda-compat", &format!("--host-driver-version={version}")]);
        assert_eq!(bundle.read("etc/ld.so.conf.d/00-compat-cuda.conf").as_deref(), expected);
    }
    check(
        "libcuda.so.580.65.06",
        "550.163.01",
        Some("/usr/local/cuda-13.0/compat\n"),
    );
    check("libcuda.so.580.65.06", "580.10.01", None);
    check("libcuda.so.535.1", "550.163.01", None);
    check("libcuda.so.580.65.06", "unknown", None);
}

#[test]
fn compatibility_libraries_that_cannot_be_told_apart_are_left_alone() {
    let bundle = Bundle::new();
    bundle.succeeds(&["enable-cuda-compat", "--host-driver-version=550.163.01"]);
    bundle.file("usr/local/cuda/compat/libcuda.so.580.1", elf::library(None));
    bundle.file("usr/local/cuda/compat/libcuda.so.590.1", elf::library(None));
    let output = bundle.run(&["enable-cuda-compat", "--host-driver-version=550.163.01"]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("more than one CUDA library"));
    fs::remove_file(bundle.path("usr/local/cuda/compat/libcuda.so.590.1")).unwrap();
    bundle.succeeds(&["enable-cuda-compat", "--host-cuda-version=12.4"]);
    bundle.file("usr/local/cuda/compat/libcuda.so.580.1", "not a library");
    let output = bundle.run(&["enable-cuda-compat", "--host-driver-version=550.163.01"]);
    assert!(output.status.success());
    assert_eq!(bundle.read("etc/ld.so.conf.d/00-compat-cuda.conf"), None);
}

#[test]
fn cve_2025_23266_the_compat_hook_reads_and_writes_in_the_container_only() {
    let bundle = Bundle::new();
    let host = bundle.host();
    bundle.link("usr/local/cuda/compat", &host);
    fs::write(host.join("libcuda.so.580.1"), elf::library(None)).unwrap();
    bundle.succeeds(&["enable-cuda-compat", "--host-driver-version=550.163.01"]);
    fs::remove_file(host.join("libcuda.so.580.1")).unwrap();
    assert_eq!(bundle.read("etc/ld.so.conf.d/00-compat-cuda.conf"), None);

    let bundle = Bundle::new();
    bundle.file("usr/local/cuda/compat/libcuda.so.580.1", elf::library(None));
    bundle.link("etc/ld.so.conf.d/00-compat-cuda.conf", bundle.host().join("file"));
    bundle.succeeds(&["enable-cuda-compat", "--host-driver-version=550.163.01"]);
    bundle.host_is_untouched();
    assert_eq!(
        bundle.read("etc/ld.so.conf.d/00-compat-cuda.conf").as_deref(),
        Some("/usr/local/cuda/compat\n")
    );
    assert_eq!(bundle.target("etc/ld.so.conf.d/00-compat-cuda.conf"), None);

    let bundle = Bundle::new();
    bundle.file("usr/local/cuda/compat/libcuda.so.580.1", elf::library(None));
    bundle.link("etc/ld.so.conf.d", bundle.host());
    bundle.fails(
        &["enable-cuda-compat", "--host-driver-version=550.163.01"],
        1,
        "cannot write `/etc/ld.so.conf.d/00-compat-cuda.conf`",
    );
    bundle.host_is_untouched();
}

#[test]
fn modes_are_set_in_the_container_only() {
    let bundle = Bundle::new();
    fs::create_dir_all(bundle.path("dev/dri")).unwrap();
    fs::set_permissions(bundle.path("dev/dri"), fs::Permissions::from_mode(0o700)).unwrap();
    bundle.link("dev/out", bundle.host());
    fs::set_permissions(bundle.host(), fs::Permissions::from_mode(0o700)).unwrap();
    bundle.succeeds(&[
        "chmod",
        "--mode",
        "755",
        "--path",
        "/dev/dri",
        "--path",
        "/dev/out",
        "--path",
        "/dev/none",
    ]);
    assert_eq!(fs::metadata(bundle.path("dev/dri")).unwrap().mode() & 0o777, 0o755);
    assert_eq!(fs::metadata(bundle.host()).unwrap().mode() & 0o777, 0o700);
}

#[test]
fn without_a_gpu_there_is_no_application_profile() {
    let bundle = Bundle::new();
    bundle.succeeds(&["update-application-profile"]);
    bundle.file("dev/nvidia0", "no device");
    bundle.succeeds(&["update-application-profile"]);
    assert_eq!(entries(&bundle.path("")), ["dev"]);
}

#[test]
#[ignore = "needs root"]
fn the_application_profile_names_the_containers_gpus() {
    use rustix::fs::{CWD, FileType, makedev, mknodat};
    let bundle = Bundle::new();
    fs::create_dir(bundle.path("dev")).unwrap();
    for (name, minor) in [
        ("nvidia3", 3),
        ("nvidia12", 12),
        ("nvidia99", 99),
        ("nvidiactl", 255),
        ("nvidia-uvm", 0),
    ] {
        mknodat(
            CWD,
            bundle.path("dev").join(name),
            FileType::CharacterDevice,
            0o666.into(),
            makedev(195, minor),
        )
        .unwrap();
    }
    bundle.link(
        "etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf",
        bundle.host().join("file"),
    );
    let output = bundle.run(&["update-application-profile"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("minor number 99 of `/dev/nvidia99` is over 63"));
    let file = "etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf";
    assert_eq!(
        bundle.read(file).as_deref(),
        Some(
            r#"{"profiles":[{"name":"_container_","settings":["EGLVisibleDGPUDevices",0x1008]}],"rules":[{"pattern":[],"profile":"_container_"}]}"#
        )
    );
    assert_eq!(fs::metadata(bundle.path(file)).unwrap().mode() & 0o777, 0o444);
    bundle.host_is_untouched();
}

#[test]
#[ignore = "needs root"]
fn the_loader_cache_of_the_container_gets_the_drivers_libraries() {
    let bundle = Bundle::new();
    bundle.file("opt/driver/libcuda.so.1.2.3", elf::library(Some("libcuda.so.1")));
    bundle.file("etc/ld.so.cache", "an old cache");
    bundle.succeeds(&["update-ldcache", "--folder", "/opt/driver", "--folder", "/usr/lib64"]);
    let cache = fs::read(bundle.path("etc/ld.so.cache")).unwrap();
    let holds = |text: &[u8]| cache.windows(text.len()).any(|window| window == text);
    assert!(holds(b"/opt/driver/libcuda.so.1\0"));
    // ldconfig itself makes the link from SONAME to file.
    assert_eq!(
        bundle.target("opt/driver/libcuda.so.1").as_deref(),
        Some("libcuda.so.1.2.3")
    );
    assert_eq!(
        bundle.read("etc/ld.so.conf.d/00-nvcr-driver.conf").as_deref(),
        Some("/opt/driver\n")
    );
    assert_eq!(
        entries(&bundle.path("etc/ld.so.conf.d")),
        ["00-nvcr-driver.conf", "zz-nvcr-system.conf"]
    );
    // A container that is started again has everything already.
    bundle.succeeds(&["update-ldcache", "--folder", "/opt/driver", "--folder", "/usr/lib64"]);
    assert_eq!(
        entries(&bundle.path("etc")),
        ["ld.so.cache", "ld.so.conf", "ld.so.conf.d"]
    );
}

/// A static program that tells where it runs, compiled as a stand-in for `ldconfig`.
fn spy(dir: &Path) -> PathBuf {
    let source = dir.join("spy.c");
    let program = dir.join("spy");
    let text = r#"
        #include <dirent.h>
        #include <net/if.h>
        #include <stdio.h>
        #include <unistd.h>
        extern char **environ;
        int main(int argc, char **argv) {
            FILE *out = fopen("/report", "w");
            char cwd[4096];
            int variables = 0, interfaces = 0, in_proc = 0;
            while (environ[variables]) variables++;
            struct if_nameindex *list = if_nameindex();
            for (struct if_nameindex *i = list; i && i->if_name; i++) interfaces++;
            DIR *proc = opendir("/proc");
            while (proc && readdir(proc)) in_proc++;
            fprintf(out, "pid %d, cwd %s, environment %d, interfaces %d, in /proc %d, host %d\n", getpid(),
                    getcwd(cwd, sizeof cwd), variables, interfaces, in_proc, access("/etc/passwd", F_OK));
            return argc == 5 ? 0 : 7;
        }
    "#;
    fs::write(&source, text).expect("a new file");
    let status = Command::new("cc")
        .args(["-static", "-o"])
        .arg(&program)
        .arg(&source)
        .status()
        .expect("a C compiler");
    assert!(status.success());
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("its mode");
    program
}

#[test]
#[ignore = "needs root"]
fn cve_2025_23266_ldconfig_runs_apart_from_the_host_without_an_environment() {
    let bundle = Bundle::new();
    fs::create_dir(bundle.path("proc")).unwrap();
    let spy = spy(bundle.dir.path());
    let mut command = Command::new(program());
    command
        .env("LD_LIBRARY_PATH", "/nonexistent")
        .env("SECRET", "of the host");
    let output = run(
        &mut command,
        &["update-ldcache", "--ldconfig-path", spy.to_str().unwrap()],
        &bundle.state(),
    );
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // `.` and `..` are all that is in /proc; -1: the host's file is not there.
    let expected = "pid 1, cwd /, environment 0, interfaces 1, in /proc 2, host -1\n";
    assert_eq!(bundle.read("report").as_deref(), Some(expected));
}

#[test]
#[ignore = "needs root"]
fn cve_2024_0135_to_0137_only_a_static_ldconfig_of_the_host_is_run() {
    let bundle = Bundle::new();
    // Were either of these run, it would leave a mark.
    for path in ["sbin/ldconfig", "usr/sbin/ldconfig", "lib64/ld-linux-x86-64.so.2"] {
        bundle.file(path, "#!/bin/sh\ntouch /mark\n");
        fs::set_permissions(bundle.path(path), fs::Permissions::from_mode(0o755)).unwrap();
    }
    bundle.succeeds(&["update-ldcache", "--folder", "/opt"]);
    bundle.succeeds(&["update-ldcache", "--ldconfig-path", "@/sbin/ldconfig"]);
    bundle.fails(
        &["update-ldcache", "--ldconfig-path", "sbin/ldconfig"],
        1,
        "not an absolute path of the host",
    );
    bundle.fails(
        &["update-ldcache", "--ldconfig-path", "/nonexistent"],
        1,
        "cannot use `/nonexistent` as ldconfig",
    );
    bundle.fails(
        &["update-ldcache", "--ldconfig-path", "/usr/bin/env"],
        1,
        "started by the container's loader",
    );
    let of_image = bundle.path("sbin/ldconfig");
    bundle.fails(
        &["update-ldcache", "--ldconfig-path", of_image.to_str().unwrap()],
        1,
        "not an ELF file",
    );
    fs::set_permissions(&of_image, fs::Permissions::from_mode(0o777)).unwrap();
    bundle.fails(
        &["update-ldcache", "--ldconfig-path", of_image.to_str().unwrap()],
        1,
        "others than root may change it",
    );
    assert_eq!(bundle.read("mark"), None);
}

#[test]
#[ignore = "needs root"]
fn cve_2025_23267_links_in_the_image_lead_the_loader_cache_nowhere_else() {
    for path in [
        "etc/ld.so.cache",
        "etc/ld.so.cache~",
        "etc/ld.so.conf",
        "etc/ld-musl-x86_64.path",
    ] {
        let bundle = Bundle::new();
        bundle.file("etc/alpine-release", "3.22\n");
        bundle.link(path, bundle.host().join("file"));
        let output = bundle.run(&["update-ldcache", "--folder", "/opt"]);
        // ldconfig itself refuses a link where it puts its new cache at first; the others are replaced or not read.
        let expected = i32::from(path == "etc/ld.so.cache~");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(expected), "{path}: {stderr}");
        bundle.host_is_untouched();
    }
    for (path, file) in [
        ("etc", "/etc/ld.so.conf"),
        ("etc/ld.so.conf.d", "/etc/ld.so.conf.d/00-nvcr-driver.conf"),
    ] {
        let bundle = Bundle::new();
        bundle.link(path, bundle.host());
        bundle.fails(
            &["update-ldcache", "--folder", "/opt"],
            1,
            &format!("cannot write `{file}`"),
        );
        bundle.host_is_untouched();
    }
    // The kernel's own files stand in a container's /proc as well.
    let before = fs::read("/proc/sys/kernel/core_pattern").unwrap();
    let bundle = Bundle::new();
    fs::create_dir(bundle.path("proc")).unwrap();
    bundle.file("etc/alpine-release", "3.22\n");
    bundle.link("etc/ld-musl-x86_64.path", "/proc/sys/kernel/core_pattern");
    bundle.succeeds(&["update-ldcache", "--folder", "/opt"]);
    assert_eq!(fs::read("/proc/sys/kernel/core_pattern").unwrap(), before);
    assert!(bundle.read("etc/ld-musl-x86_64.path").unwrap().starts_with("/opt\n"));
}

#[test]
#[ignore = "needs root"]
fn a_failing_ldconfig_fails_the_hook_and_no_mount_is_left() {
    let bundle = Bundle::new();
    let mounts = || fs::read_to_string("/proc/self/mountinfo").unwrap();
    let before = mounts();
    fs::create_dir_all(bundle.path("etc/ld.so.cache~")).unwrap();
    let output = bundle.run(&["update-ldcache", "--folder", "/opt"]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        stderr.contains("ldconfig failed in the container: exit status: 1"),
        "{stderr}"
    );
    let file = bundle.path("etc/ld.so.conf.d/zz-nvcr-system.conf");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let output = bundle.run(&["update-ldcache", "--folder", "/opt"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let expected = "cannot update the loader's cache: cannot write `/etc/ld.so.conf.d/zz-nvcr-system.conf`";
    assert!(stderr.contains(expected), "{stderr}");
    assert_eq!(mounts(), before);
}

#[test]
#[ignore = "needs root"]
fn the_container_sees_that_it_may_make_no_device_nodes() {
    let bundle = Bundle::new();
    bundle.file("proc/driver/nvidia/params", "ModifyDeviceFiles: 1\n");
    let rootfs = bundle.path("");
    let state = bundle.dir.path().join("state.json");
    fs::write(&state, bundle.state()).unwrap();
    // A namespace that stands for the container's, with a host's parameters that this machine may not have.
    let script = format!(
        "set -e
        mount --make-rprivate /
        mount -t tmpfs none /proc/driver
        mkdir /proc/driver/nvidia
        printf 'DeviceFileMode: 438\\nModifyDeviceFiles: 1\\n' > /proc/driver/nvidia/params
        '{program}' disable-device-node-modification < '{state}'
        cat '{rootfs}/proc/driver/nvidia/params'
        ls '{rootfs}' '{rootfs}/proc/driver/nvidia'
        if (echo 1 > '{rootfs}/proc/driver/nvidia/params') 2> /dev/null; then echo writable; fi
        grep -c '{rootfs}' /proc/self/mounts
        printf 'ModifyDeviceFiles: 0\\n' > /proc/driver/nvidia/params
        '{program}' --debug disable-device-node-modification < /dev/null 2>&1 | grep -v '{NOT_STATIC}'",
        program = program().display(),
        state = state.display(),
        rootfs = rootfs.display(),
    );
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", &script])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).replace(rootfs.to_str().unwrap(), "ROOT/");
    let expected = "DeviceFileMode: 438\nModifyDeviceFiles: 0\nROOT/:\nproc\n\nROOT//proc/driver/nvidia:\nparams\n1\n\
                    gpu-cdi-hook: the driver makes no device nodes: nothing to forbid\n";
    assert_eq!(text, expected, "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(
        bundle.read("proc/driver/nvidia/params").as_deref(),
        Some("ModifyDeviceFiles: 1\n")
    );
}
