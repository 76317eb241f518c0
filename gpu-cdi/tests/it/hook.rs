//! The hook program, and its smaller hooks, in containers that are folders.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    process::Command,
};

use crate::{
    bundle::{Bundle, NOT_STATIC, entries, program, run},
    elf,
};

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
fn bad_flags_are_told_before_a_bad_state() {
    for flags in [["update-ldcache", "--nope"], ["create-symlinks", "--link=x"]] {
        let output = run(&mut Command::new(program()), &flags, "no JSON");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(!stderr.contains("state"), "{stderr}");
    }
}

#[test]
fn the_state_is_found_from_the_folder_that_the_program_was_started_in() {
    let bundle = Bundle::new();
    fs::write(bundle.dir.path().join("host/state.json"), bundle.state()).unwrap();
    let mut command = Command::new(program());
    command.current_dir(bundle.dir.path());
    let flags = ["create-symlinks", "--container-spec", "host/state.json", "--link=b::/a"];
    let output = run(&mut command, &flags, "");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(bundle.target("a").as_deref(), Some("b"));
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
