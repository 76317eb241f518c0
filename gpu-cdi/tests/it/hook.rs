//! The hook program on containers that are folders, some with traps for it.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    process::Command,
};

use crate::{
    bundle::{Bundle, NOT_STATIC, entries, program},
    elf,
};

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
fn several_hooks_in_one_do_what_each_does() {
    let (one, each) = (Bundle::new(), Bundle::new());
    for bundle in [&one, &each] {
        bundle.file(
            "usr/local/cuda/compat/libcuda.so.560.1",
            elf::library(Some("libcuda.so.1")),
        );
    }
    let hooks: [&[&str]; 4] = [
        &[
            "create-symlinks",
            "--link",
            "libcuda.so.1::/usr/lib/libcuda.so",
            "--link",
            "b::/a",
        ],
        &["enable-cuda-compat", "--host-driver-version=550.163.01"],
        &["update-application-profile"],
        &["make-coffee", "--milk"],
    ];
    for hook in hooks {
        each.succeeds(hook);
    }
    let mut all = vec!["several"];
    all.extend(hooks.join(&"--then"));
    one.succeeds(&all);
    for bundle in [&one, &each] {
        assert_eq!(bundle.target("usr/lib/libcuda.so").as_deref(), Some("libcuda.so.1"));
        assert_eq!(bundle.target("a").as_deref(), Some("b"));
        assert_eq!(entries(&bundle.path("etc/ld.so.conf.d")), ["00-compat-cuda.conf"]);
    }
    one.fails(
        &["several", "create-symlinks", "--link", "x", "--then", "noop"],
        2,
        "`x` is not a link",
    );
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
