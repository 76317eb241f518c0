//! Devices that are described without a bus, without the driver, or in other ways than usual.

use gpu_cdi::{
    DeviceNumber, DiscoverConfig, DriverFiles, Error, GenerateOptions, NameStrategy, ORIN_COMPAT_DIR, PlatformSigns,
    Spec, TegraConfig, TegraFiles, WslFiles,
    gpu_core::{AddressingMode, PciDevice, PciInventory},
};

use crate::{
    driver_root::{DriverRoot, inventory},
    elf,
};

const CSV: &str = "etc/nvidia-container-runtime/host-files-for-container.d";

fn devices(spec: &Spec) -> Vec<&str> {
    spec.devices.iter().map(|device| device.name.as_str()).collect()
}

fn mounts(spec: &Spec) -> Vec<&str> {
    let mounts = spec.container_edits.mounts.iter();
    mounts.map(|mount| mount.container_path.as_str()).collect()
}

/// The arguments of the hook of a name.
fn arguments<'s>(spec: &'s Spec, name: &str) -> &'s [String] {
    let mut hooks = spec.container_edits.hooks.iter();
    let hook = hooks.find(|hook| hook.args[1] == name).expect("the hook");
    &hook.args[2..]
}

/// A Tegra machine's root.
fn tegra() -> (DriverRoot, TegraConfig) {
    let root = DriverRoot::empty();
    root.file(
        &format!("{CSV}/devices.csv"),
        b"dev, /dev/nvmap\ndev, /dev/nvhost-*\n\ndev, /dev/gone\n",
    );
    let drivers = "lib, /usr/lib/tegra/libcuda.so.1.1\nsym, /usr/lib/tegra/libcuda.so\ndir, /lib/firmware/tegra\nbad\n";
    root.file(&format!("{CSV}/drivers.csv"), drivers.as_bytes());
    for node in ["nvmap", "nvhost-gpu", "nvhost-ctrl"] {
        root.file(&format!("dev/{node}"), b"");
    }
    root.file("usr/lib/tegra/libcuda.so.1.1", b"");
    root.link("usr/lib/tegra/libcuda.so", "libcuda.so.1.1");
    root.file("lib/firmware/tegra/x.bin", b"");
    let mut config = TegraConfig::new(root.root());
    config.device_rule = gpu_cdi::DeviceRule::AnyFile;
    (root, config)
}

#[test]
fn a_tegra_machine_is_described_by_its_csv_files() {
    let (_root, config) = tegra();
    let files = TegraFiles::discover(&config).unwrap();
    let problems: Vec<_> = files.problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        problems,
        [
            format!("cannot read `/{CSV}/drivers.csv:4`: expected a kind, a comma and a path"),
            "cannot read `/dev/gone`: there is no such device node".to_owned(),
        ]
    );
    let options = GenerateOptions::default();
    let spec = gpu_cdi::generate_tegra(None, &files, &options, ORIN_COMPAT_DIR).unwrap();
    assert_eq!(devices(&spec), ["0", "all"], "without NVML there is no UUID");
    let nodes = &spec.devices[0].container_edits.device_nodes;
    let nodes: Vec<_> = nodes.iter().map(|node| node.path.as_str()).collect();
    assert_eq!(nodes, ["/dev/nvhost-ctrl", "/dev/nvhost-gpu", "/dev/nvmap"]);
    assert_eq!(mounts(&spec), ["/lib/firmware/tegra", "/usr/lib/tegra/libcuda.so.1.1"]);
    assert_eq!(
        arguments(&spec, "create-symlinks"),
        ["--link", "libcuda.so.1.1::/usr/lib/tegra/libcuda.so"]
    );
    assert_eq!(arguments(&spec, "update-ldcache"), ["--folder", "/usr/lib/tegra"]);
}

#[test]
fn of_an_orin_nvml_tells_uuid_and_cuda_version() {
    let (_root, mut config) = tegra();
    config.ignored = vec!["libcuda*".to_owned(), "/lib/firmware/*".to_owned()];
    let files = TegraFiles::discover(&config).unwrap();
    let uuid = "GPU-00000000-0000-0000-0000-000000000001";
    let mut orin = inventory("540.3.0", &[(uuid, "0000:00:00.0", 0)]);
    "Orin (nvgpu)".clone_into(&mut orin.gpus[0].name);
    orin.driver.as_mut().unwrap().cuda_version = Some("13.1".parse().unwrap());
    let spec = gpu_cdi::generate_tegra(Some(&orin), &files, &GenerateOptions::default(), ORIN_COMPAT_DIR).unwrap();
    assert_eq!(devices(&spec), ["0", uuid, "all"]);
    assert!(mounts(&spec).is_empty());
    assert_eq!(
        arguments(&spec, "enable-cuda-compat"),
        [
            "--host-cuda-version=13.1",
            "--cuda-compat-container-root=/usr/local/cuda/compat-orin"
        ]
    );
    orin.gpus.push(orin.gpus[0].clone());
    let error = gpu_cdi::generate_tegra(Some(&orin), &files, &GenerateOptions::default(), ORIN_COMPAT_DIR).unwrap_err();
    assert!(matches!(error, Error::TegraWithOtherGpus { count: 2 }));
}

#[test]
fn without_csv_files_there_is_nothing_to_describe() {
    let root = DriverRoot::empty();
    let files = TegraFiles::discover(&TegraConfig::new(root.root())).unwrap();
    let error = gpu_cdi::generate_tegra(None, &files, &GenerateOptions::default(), ORIN_COMPAT_DIR).unwrap_err();
    assert!(error.is_nothing_found(), "{error}");
}

#[test]
fn a_csv_file_that_is_missing_is_named_unless_it_is_one_that_not_every_machine_has() {
    let (_root, mut config) = tegra();
    let before = TegraFiles::discover(&config).unwrap().problems;
    config.files.push("/etc/typo.csv".into());
    let problems = TegraFiles::discover(&config).unwrap().problems;
    let new: Vec<_> = problems.iter().filter(|problem| !before.contains(problem)).collect();
    assert_eq!(new.len(), 1, "{new:?}");
    assert_eq!(new[0].to_string(), "cannot read `/etc/typo.csv`: there is no such file");
}

#[test]
fn files_show_what_a_machine_is() {
    #[track_caller]
    fn check(file: &str, text: &str, windows: bool, tegra: bool) {
        let root = DriverRoot::empty();
        let elsewhere = tempfile::tempdir().unwrap();
        root.file(file, text.as_bytes());
        let mut config = DiscoverConfig::new(elsewhere.path());
        config.device_rule = gpu_cdi::DeviceRule::AnyFile;
        config.sys_root = root.root();
        let expected = PlatformSigns { windows, tegra };
        assert_eq!(PlatformSigns::discover(&config).unwrap(), expected, "{file}");
        config.driver_root = root.root();
        config.sys_root = elsewhere.path().to_owned();
        assert_eq!(PlatformSigns::discover(&config).unwrap(), expected, "{file}");
    }
    check("dev/nvidia0", "", false, false);
    check("dev/dxg", "", true, false);
    check("usr/lib/wsl/lib/libdxcore.so", "", true, false);
    check("etc/nv_tegra_release", "", false, true);
    check("sys/devices/soc0/family", "Tegra\n", false, true);
    check("sys/devices/soc0/family", "i.MX\n", false, false);
}

#[test]
fn the_gpus_of_windows_are_one_device() {
    let root = DriverRoot::empty();
    let mut config = DiscoverConfig::new(root.root());
    config.device_rule = gpu_cdi::DeviceRule::AnyFile;
    let generate = || gpu_cdi::generate_wsl(&WslFiles::discover(&config).unwrap(), &GenerateOptions::default());
    assert!(generate().unwrap_err().to_string().starts_with("no `/dev/dxg` in"));
    root.file("dev/dxg", b"");
    root.file("usr/lib/wsl/lib/libdxcore.so", b"");
    let error = generate().unwrap_err().to_string();
    assert!(
        error.starts_with("no `libcuda.so.1.1` of the Windows driver in"),
        "{error}"
    );
    let store = "usr/lib/wsl/drivers/nv_dispi.inf_amd64_1";
    root.file("usr/lib/wsl/drivers/intel.inf/igd.dll", b"");
    for name in [
        "libcuda.so.1.1",
        "libcuda_loader.so",
        "libnvidia-ptxjitcompiler.so.1",
        "libnvidia-ml.so.1",
        "libnvidia-ml_loader.so",
        "libnvdxgdmal.so.1",
        "nvcubins.bin",
        "nvidia-smi",
        "libnvidia-opticalflow.so.1",
        "readme.txt",
    ] {
        root.file(&format!("{store}/{name}"), b"");
    }
    let spec = generate().unwrap();
    assert_eq!(devices(&spec), ["all"]);
    assert_eq!(spec.devices[0].container_edits.device_nodes[0].path, "/dev/dxg");
    assert_eq!(mounts(&spec).len(), 10, "all but the text");
    assert_eq!(
        arguments(&spec, "create-symlinks"),
        ["--link".to_owned(), format!("/{store}/nvidia-smi::/usr/bin/nvidia-smi")]
    );
    assert_eq!(arguments(&spec, "update-ldcache").len(), 4, "two folders");
}

fn pci(address: &str, driver: &str, group: u32) -> PciDevice {
    serde_json::from_value(serde_json::json!({
        "address": address, "id": "10de:2330", "class": 0x03_0200, "driver": driver, "iommu_group": group,
    }))
    .expect("a device")
}

#[test]
fn gpus_that_are_bound_to_vfio_are_their_groups() {
    let root = DriverRoot::empty();
    for node in ["vfio", "7"] {
        root.file(&format!("dev/vfio/{node}"), b"");
    }
    let files = root.discover();
    let mut bus = PciInventory {
        devices: vec![
            pci("0000:1a:00.0", "nvidia", 5),
            pci("0000:1b:00.0", "vfio-pci", 7),
            pci("0000:1c:00.0", "nvgrace_gpu_vfio_pci", 9),
        ],
        problems: Vec::new(),
    };
    let generated = gpu_cdi::generate_vfio(&bus, &files, &GenerateOptions::default()).unwrap();
    assert_eq!(devices(&generated.spec), ["0000:1b:00.0", "1", "all"]);
    let problems: Vec<_> = generated.problems.iter().map(ToString::to_string).collect();
    assert_eq!(problems, ["GPU 0000:1c:00.0 has no device node `/dev/vfio/9`"]);
    let node = |edits: &gpu_cdi::ContainerEdits| edits.device_nodes[0].path.clone();
    assert_eq!(node(&generated.spec.devices[1].container_edits), "/dev/vfio/7");
    assert_eq!(node(&generated.spec.container_edits), "/dev/vfio/vfio");

    bus.devices.remove(1);
    let error = gpu_cdi::generate_vfio(&bus, &files, &GenerateOptions::default()).unwrap_err();
    assert!(
        error.to_string().contains("GPU 0000:1c:00.0 has no device node"),
        "{error}"
    );
}

/// A root with one GPU and its driver.
fn gpu() -> (DriverRoot, DriverFiles) {
    let root = DriverRoot::empty();
    root.file("usr/lib64/libcuda.so.1.2.3", &elf::library(Some("libcuda.so.1")));
    for node in ["nvidia0", "nvidiactl"] {
        root.file(&format!("dev/{node}"), b"");
    }
    let mut files = root.discover();
    for node in &mut files.device_nodes {
        node.number = Some(DeviceNumber { major: 195, minor: 0 });
    }
    (root, files)
}

const UUID: &str = "GPU-00000000-0000-0000-0000-000000000001";

#[test]
fn the_device_that_is_none_has_the_driver_and_no_gpu() {
    let (_root, files) = gpu();
    let spec = gpu_cdi::generate_none(&files, &GenerateOptions::default()).unwrap();
    assert_eq!(devices(&spec), ["none"]);
    let edits = &spec.devices[0].container_edits;
    assert_eq!(
        (edits.env.as_slice(), edits.device_nodes.len()),
        (&["NVCT_EMPTY_DEVICE=".to_owned()][..], 0)
    );
    assert_eq!(mounts(&spec), ["/usr/lib64/libcuda.so.1.2.3"]);
}

#[test]
fn what_is_coherent_is_said_and_can_be_told_apart() {
    let (_root, mut files) = gpu();
    files.device_nodes.push(gpu_cdi::DeviceFile {
        path: "/dev/nvidia1".to_owned(),
        ..files.device_nodes[0].clone()
    });
    let other = "GPU-00000000-0000-0000-0000-000000000002";
    let mut inventory = inventory("1.2.3", &[(UUID, "0000:1a:00.0", 0), (other, "0000:1b:00.0", 1)]);
    inventory.gpus[0].addressing_mode = Some(AddressingMode::Ats);
    let mut options = GenerateOptions::default();
    options.names = vec![NameStrategy::TypeIndex];
    options.coherent_annotations = true;
    let spec = gpu_cdi::generate(&inventory, &files, &options).unwrap().spec;
    assert_eq!(spec.cdi_version.as_str(), "0.6.0");
    let values: Vec<_> = spec
        .devices
        .iter()
        .map(|device| device.annotations.get("gpu.nvidia.com/coherent"))
        .collect();
    assert_eq!(
        values,
        [None, Some(&"true".to_owned()), Some(&"false".to_owned())],
        "all, gpu0, gpu1"
    );

    let parts = gpu_cdi::split_by_coherence(&spec).unwrap();
    let parts: Vec<_> = parts
        .iter()
        .map(|part| (part.kind.to_string(), devices(part)))
        .collect();
    assert_eq!(
        parts,
        [
            ("nvidia.com/gpu.coherent".to_owned(), vec!["all", "gpu0"]),
            ("nvidia.com/gpu.noncoherent".to_owned(), vec!["all", "gpu1"]),
        ]
    );
}

#[test]
fn libraries_for_32_bit_programs_and_of_the_distribution_are_mounted_if_asked_for() {
    let (root, _) = gpu();
    let mut elf32 = elf::library(Some("libcuda.so.1"));
    elf32[4] = 1; // ELFCLASS32
    root.file("usr/lib/i386-linux-gnu/libcuda.so.1.2.3", &elf32);
    root.file("usr/lib/libcuda.so.1.2.3", &elf::library(Some("libcuda.so.1")));
    root.file("usr/lib64/libOpenCL.so.1.0.0", &elf::library(Some("libOpenCL.so.1")));
    root.link("usr/lib64/libOpenCL.so.1", "libOpenCL.so.1.0.0");
    let inventory = inventory("1.2.3", &[(UUID, "0000:1a:00.0", 0)]);
    let mut config = root.config();
    let mut options = GenerateOptions::default();
    let spec = |config: &DiscoverConfig, options: &GenerateOptions| {
        let files = DriverFiles::discover(config).unwrap();
        gpu_cdi::generate(&inventory, &files, options).unwrap().spec
    };
    assert_eq!(mounts(&spec(&config, &options)), ["/usr/lib64/libcuda.so.1.2.3"]);
    config.explicit_libraries = true;
    options.libraries_32 = true;
    let spec = spec(&config, &options);
    assert_eq!(
        mounts(&spec),
        [
            "/usr/lib64/libOpenCL.so.1.0.0",
            "/usr/lib64/libcuda.so.1.2.3",
            "/usr/lib/i386-linux-gnu/libcuda.so.1.2.3",
        ]
    );
    assert!(arguments(&spec, "update-ldcache").contains(&"/usr/lib/i386-linux-gnu".to_owned()));
}

#[test]
fn one_hook_does_the_work_of_all() {
    let (_root, files) = gpu();
    let inventory = inventory("1.2.3", &[(UUID, "0000:1a:00.0", 0)]);
    let mut options = GenerateOptions::default();
    let each = gpu_cdi::generate(&inventory, &files, &options).unwrap().spec;
    options.combined_hook = true;
    let one = gpu_cdi::generate(&inventory, &files, &options).unwrap().spec;
    let [hook] = one.container_edits.hooks.as_slice() else {
        panic!("{:?}", one.container_edits.hooks)
    };
    let parts: Vec<_> = hook.args[2..]
        .split(|word| word == "--then")
        .map(<[String]>::to_vec)
        .collect();
    let mut expected: Vec<_> = each
        .container_edits
        .hooks
        .iter()
        .map(|hook| hook.args[1..].to_vec())
        .collect();
    expected.sort_by_key(|hook| hook[0] == "update-ldcache");
    assert_eq!((hook.args[1].as_str(), parts), ("several", expected));
    assert_eq!(hook.env, each.container_edits.hooks[0].env);
}

#[test]
fn what_every_program_needs_and_is_not_there_is_said() {
    let (_root, mut files) = gpu();
    assert_eq!(files.missing().len(), 1, "there is no /dev/nvidia-uvm");
    files.libraries.clear();
    files.device_nodes.clear();
    let missing = files.missing();
    assert!(missing[0].starts_with("no `libcuda` in the driver root"), "{missing:?}");
    assert!(
        missing[1].starts_with("no `/dev/nvidiactl` in the device root"),
        "{missing:?}"
    );
}

#[test]
fn a_root_that_no_spec_can_name_is_refused() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};

    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join(OsStr::from_bytes(b"driver\xff"));
    std::fs::create_dir(&root).unwrap();
    let error = DriverFiles::discover(&DiscoverConfig::new(root))
        .unwrap_err()
        .to_string();
    assert!(error.ends_with("is not UTF-8: no spec can name it"), "{error}");
}

#[test]
fn a_relative_root_is_refused() {
    let error = DriverFiles::discover(&DiscoverConfig::new("driver")).unwrap_err();
    assert_eq!(error.to_string(), "the driver root `driver` is not an absolute path");
    let (_root, files) = gpu();
    let mut options = GenerateOptions::default();
    options.host_dev_root = Some("dev-root".to_owned());
    let inventory = inventory("1.2.3", &[(UUID, "0000:1a:00.0", 0)]);
    let error = gpu_cdi::generate(&inventory, &files, &options).unwrap_err();
    assert_eq!(error.to_string(), "the device root `dev-root` is not an absolute path");
}
