use std::{
    ffi::OsStr,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use gpu_cdi::{DeviceRule, DiscoverConfig, DriverFiles, Error, FileProblem};

use crate::{driver_root::DriverRoot, elf};

/// A driver root with one library of version 1.2.3 in the folder `dir`.
fn minimal(dir: &str) -> DriverRoot {
    let root = DriverRoot::empty();
    root.file(&format!("{dir}/libcuda.so.1.2.3"), &elf::library(Some("libcuda.so.1")));
    root
}

fn paths(files: &DriverFiles) -> Vec<&str> {
    files.libraries.iter().map(|library| library.path.as_str()).collect()
}

#[test]
fn an_empty_root_is_an_empty_value_without_problems() {
    let files = DriverRoot::empty().discover();
    assert_eq!(files.driver_version, None);
    assert_eq!(
        (files.libraries.len(), files.device_nodes.len(), files.binaries.len()),
        (0, 0, 0)
    );
    assert_eq!(files.problems, []);
}

#[test]
fn a_missing_root_is_an_error_that_names_it() {
    let error = DriverFiles::discover(&DiscoverConfig::new("/nonexistent/root")).unwrap_err();
    assert!(matches!(error, Error::Root { .. }));
    assert_eq!(error.to_string(), "cannot open the driver root `/nonexistent/root`");
}

#[test]
fn the_version_is_read_off_the_libraries_unless_it_is_given() {
    let root = minimal("usr/lib64");
    root.file("usr/lib64/libcuda.so.0.0.1", &elf::library(Some("libcuda.so.1")));
    let mut config = root.config();
    for (given, expected) in [
        (None, Some("0.0.1")),
        (Some("1.2.3"), Some("1.2.3")),
        (Some("9.9.9"), None),
    ] {
        config.driver_version = given.map(str::to_owned);
        let files = DriverFiles::discover(&config).unwrap();
        assert_eq!(files.driver_version.as_deref(), expected);
    }
}

#[test]
fn absolute_links_lead_to_the_place_beneath_the_root() {
    let root = DriverRoot::empty();
    let elf = elf::library(Some("libcuda.so.1"));
    root.file("opt/driver/libcuda.so.1.2.3", &elf);
    root.link("usr/lib64", "/opt/driver");
    root.file("etc/alternatives/nvidia-smi", b"program");
    root.link("usr/bin/nvidia-smi", "/etc/alternatives/nvidia-smi");
    let files = root.discover();
    assert_eq!(paths(&files), ["/opt/driver/libcuda.so.1.2.3"]);
    assert_eq!(files.binaries[0].path, "/usr/bin/nvidia-smi");
    assert_eq!(files.binaries[0].content(), "/etc/alternatives/nvidia-smi");
}

#[test]
fn nothing_outside_the_root_is_found() {
    let outside = minimal("lib64");
    outside.file("bin/nvidia-smi", b"");
    assert_eq!(outside.discover().driver_version.as_deref(), Some("1.2.3"));
    assert_eq!(outside.discover().binaries.len(), 1);
    // Each of these leads a search to the driver outside that takes the root for a mere folder.
    let absolute = outside.root();
    let relative = Path::new("../../..").join(absolute.strip_prefix(std::env::temp_dir()).unwrap());
    let relative_from_root = relative.strip_prefix("..").unwrap();
    for (link, target) in [
        ("lib64", absolute.join("lib64")),
        ("lib64", relative_from_root.join("lib64")),
        ("usr/lib64", absolute.join("lib64")),
        ("usr/lib64", relative.join("lib64")),
        ("bin", absolute.join("bin")),
        ("bin", relative_from_root.join("bin")),
        ("usr/bin", relative.join("bin")),
        ("usr/lib64/libcuda.so.1.2.3", absolute.join("lib64/libcuda.so.1.2.3")),
    ] {
        let root = DriverRoot::empty();
        root.link(link, target.to_str().unwrap());
        // On the host the link does lead there.
        assert!(root.path(link).exists(), "{link} -> {}", target.display());
        let files = root.discover();
        assert_eq!((files.driver_version, files.binaries), (None, Vec::new()), "{link}");
        // Nor was it looked at and left out afterwards.
        assert_eq!(files.problems, [], "{link}");
    }
}

#[test]
fn folders_that_are_one_by_a_link_give_each_library_once() {
    let root = minimal("usr/lib/x86_64-linux-gnu");
    root.link("lib", "usr/lib");
    let files = root.discover();
    assert_eq!(paths(&files), ["/usr/lib/x86_64-linux-gnu/libcuda.so.1.2.3"]);
    assert_eq!(files.library_dirs, ["/usr/lib/x86_64-linux-gnu"]);
}

#[test]
fn libraries_split_over_two_folders_are_all_found() {
    let root = minimal("usr/lib/x86_64-linux-gnu/nvidia/current");
    root.file(
        "usr/lib/x86_64-linux-gnu/libnvidia-eglcore.so.1.2.3",
        &elf::library(None),
    );
    let files = root.discover();
    assert_eq!(
        files.library_dirs,
        ["/usr/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu/nvidia/current"]
    );
    assert_eq!(files.libraries.len(), 2);
}

#[test]
fn given_search_paths_replace_the_usual_ones() {
    let root = minimal("usr/lib64");
    root.file("opt/libcuda.so.4.5.6", &elf::library(None));
    let mut config = root.config();
    config.library_search_paths = vec!["/nope".into(), "/opt".into()];
    config.config_search_paths = vec!["/opt/libcuda.so.4.5.6".into()];
    let files = DriverFiles::discover(&config).unwrap();
    assert_eq!(files.driver_version.as_deref(), Some("4.5.6"));
    let problems: Vec<_> = files.problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        problems,
        [
            "cannot read `/nope`: there is no such folder",
            "cannot read `/opt/libcuda.so.4.5.6`: there is no such folder"
        ]
    );
}

#[test]
fn a_library_that_is_none_is_a_problem_and_hides_no_other() {
    let root = minimal("usr/lib64");
    let valid = elf::library(Some("libnvidia-ml.so.1"));
    root.file("usr/lib64/libnvidia-ml.so.1.2.3", &valid[..valid.len() - 4]);
    root.file("usr/lib64/libnvidia-tls.so.1.2.3", b"");
    root.file("usr/lib64/libnvidia-cfg.so.1.2.3", &elf::library(Some("../libc.so.6")));
    let files = root.discover();
    let problems: Vec<_> = files.problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        problems,
        [
            "cannot read `/usr/lib64/libnvidia-cfg.so.1.2.3`: an ELF file whose SONAME is not a file name",
            "cannot read `/usr/lib64/libnvidia-ml.so.1.2.3`: an ELF file whose SONAME is out of range",
            "cannot read `/usr/lib64/libnvidia-tls.so.1.2.3`: not an ELF file",
        ]
    );
    let readable: Vec<_> = files.libraries.iter().filter(|library| library.readable).collect();
    assert_eq!(readable.len(), 1);
    assert_eq!(readable[0].soname.as_deref(), Some("libcuda.so.1"));
}

#[test]
fn a_broken_loader_cache_is_a_problem() {
    let root = DriverRoot::empty();
    root.file("etc/ld.so.cache", b"glibc-ld.so.cache1.1\xff\xff\xff\xff");
    let expected = FileProblem {
        path: "/etc/ld.so.cache".to_owned(),
        reason: "a loader cache cut short".to_owned(),
    };
    assert_eq!(root.discover().problems, [expected]);
}

#[test]
fn a_program_must_be_executable_and_a_file() {
    let root = DriverRoot::empty();
    root.file("usr/local/bin/nvidia-smi", b"");
    fs::set_permissions(root.path("usr/local/bin/nvidia-smi"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::create_dir_all(root.path("usr/sbin/nvidia-smi")).unwrap();
    root.file("usr/bin/nvidia-smi", b"");
    let files = root.discover();
    assert_eq!(files.binaries.len(), 1);
    assert_eq!(files.binaries[0].path, "/usr/bin/nvidia-smi");
}

#[test]
fn a_regular_file_is_a_device_node_only_if_told_so() {
    let root = DriverRoot::empty();
    root.file("dev/nvidia0", b"");
    root.link("dev/nvidia1", "/dev/null");
    root.file("dev/nvidiactl", b"");
    let mut config = root.config();
    assert_eq!(DriverFiles::discover(&config).unwrap().device_nodes.len(), 3);
    config.device_rule = DeviceRule::CharacterDevice;
    let files = DriverFiles::discover(&config).unwrap();
    assert_eq!(files.device_nodes, []);
    let others = [
        ("/dev/nvidia0", "a regular file"),
        ("/dev/nvidia1", "a symbolic link"),
        ("/dev/nvidiactl", "a regular file"),
    ];
    let not_devices = others.map(|(path, what)| (path.to_owned(), what.to_owned()));
    assert_eq!(files.not_devices, not_devices.into());
    let control = "`/dev/nvidiactl` is a regular file and no device in the device root";
    assert!(files.missing()[1].starts_with(control), "{:?}", files.missing());
}

#[test]
fn a_fifo_in_place_of_a_library_does_not_hold_the_search_up() {
    let root = minimal("usr/lib64");
    let path = root.path("usr/lib64/libnvidia-ml.so.1.2.3");
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o644.into(), 0).unwrap();
    let files = root.discover();
    assert_eq!(files.problems.len(), 1, "{:?}", files.problems);
}

#[test]
fn a_value_that_was_stored_is_read_back_the_same() {
    let root = minimal("usr/lib64");
    root.file("dev/nvidia0", b"");
    root.sys_file("sys/bus/pci/devices/0000:1a:00.0/drm/card1/uevent", b"");
    root.link("dev/dri/by-path/pci-0000:1a:00.0-card", "../card1");
    let files = root.discover();
    let stored = serde_json::to_string(&files).unwrap();
    assert_eq!(serde_json::from_str::<DriverFiles>(&stored).unwrap(), files);
}

#[test]
fn a_value_of_another_layout_is_refused() {
    let mut stored = serde_json::to_value(DriverRoot::empty().discover()).unwrap();
    for (version, expected) in [
        (2, "schema_version 2 is not known: expected 1"),
        (0, "schema_version 0 is"),
    ] {
        stored["schema_version"] = version.into();
        let error = serde_json::from_value::<DriverFiles>(stored.clone()).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn lists_of_folders_are_taken_as_the_environment_has_them() {
    #[track_caller]
    fn check(path: Option<&str>, data_dirs: Option<&str>, binaries: &[&str], data: &[&str]) {
        let config = DiscoverConfig::new("/").with_search_paths(path.map(OsStr::new), data_dirs.map(OsStr::new));
        let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(config.binary_search_paths, paths(binaries));
        assert_eq!(config.data_dirs, paths(data));
    }
    let default = ["/usr/local/share", "/usr/share"];
    check(None, None, &[], &default);
    check(Some("/a:b::/c"), Some("/d"), &["/a", "/c"], &["/d"]);
    check(Some(""), Some("share:"), &[], &default);
}

#[test]
#[ignore = "needs root"]
fn character_devices_are_found_with_their_numbers_and_permissions() {
    use rustix::fs::{CWD, FileType, makedev, mknodat};
    let root = minimal("usr/lib64");
    fs::create_dir_all(root.path("dev")).unwrap();
    mknodat(
        CWD,
        root.path("dev/nvidia3"),
        FileType::CharacterDevice,
        0o660.into(),
        makedev(195, 3),
    )
    .unwrap();
    fs::set_permissions(root.path("dev/nvidia3"), fs::Permissions::from_mode(0o660)).unwrap();
    std::os::unix::fs::chown(root.path("dev/nvidia3"), Some(0), Some(44)).unwrap();
    let mut config = root.config();
    config.device_rule = DeviceRule::CharacterDevice;
    let files = DriverFiles::discover(&config).unwrap();
    let node = &files.device_nodes[0];
    let number = node.number.unwrap();
    assert_eq!((number.major, number.minor), (195, 3));
    assert_eq!((node.mode, node.uid, node.gid), (0o660, 0, 44));
}
