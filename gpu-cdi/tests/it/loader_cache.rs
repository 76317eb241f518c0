//! The hook that makes the container's loader know the driver's libraries.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    bundle::{Bundle, entries, program, run},
    elf,
};

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
