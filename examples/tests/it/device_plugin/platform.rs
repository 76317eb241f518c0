//! Machines whose GPUs are one device, told by their files.

use super::*;

/// That the program offers one device, and follows its configuration file, on a machine with these files and this NVML library.
async fn check(file: &str, text: &str, library: Option<&str>, name: &str) {
    let place = Place::new();
    let path = place.node.root().join(file);
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(path, text).expect("a file");
    let kubelet = place.kubelet().await;
    let config = place.dir.path().join("config.yaml");
    fs::write(&config, sharing(2)).expect("a file");
    let mut command = place.plugin();
    command.env("CONFIG_FILE", &config);
    command.envs(library.map(|library| ("GPU_NVML_LIBRARY", library)));
    let plugin = Running::start(&mut command);
    kubelet.wait_for_allocatable(GPU, 2, LONG).await.expect("in time");
    fs::write(&config, sharing(3)).expect("a file");
    kubelet.wait_for_allocatable(GPU, 3, LONG).await.expect("in time");
    assert_eq!(kubelet.registrations(GPU), 1);
    assert_eq!(kubelet.devices(GPU)[2].id, format!("{name}::2"));
    let admission = kubelet.admit("pod", "c", GPU, 2).await.expect("it is admitted");
    assert_eq!(admission.response.envs["NVIDIA_VISIBLE_DEVICES"], name);
    let log = check_ends_well(plugin, Signal::TERM);
    assert_eq!(lines(&log, "are one device, of which nothing is followed"), 1, "{log}");
    assert_eq!(lines(&log, "WARN"), 0, "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tegra_machine_without_nvml_is_offered() {
    let missing = Some("/nonexistent/libnvidia-ml.so.1");
    check("sys/devices/soc0/family", "Tegra\n", missing, "tegra").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gpus_of_windows_are_offered() {
    check("usr/lib/wsl/lib/libdxcore.so", "", None, "all").await;
}
