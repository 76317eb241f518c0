//! The hook for CUDA's compatibility libraries, in containers that are folders, some with traps for it.

use std::fs;

use crate::{bundle::Bundle, elf};

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
