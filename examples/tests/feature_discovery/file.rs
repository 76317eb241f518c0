//! With a file for Node Feature Discovery.

use std::{fs, os::unix::fs::FileTypeExt, process::Command, thread, time::Duration};

use super::{Daemon, Setup, label, wait_until};

#[test]
fn one_shot_writes_the_file_once() {
    let setup = Setup::new();
    let output = setup.run(&["--oneshot"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(setup.label("gpu.product").as_deref(), Some("NVIDIA-H100-80GB-HBM3"));
    assert_eq!(setup.label("gpu.count").as_deref(), Some("2"));
    assert_eq!(setup.label("gpu.mode").as_deref(), Some("compute"));
    let written = fs::metadata(setup.output())
        .and_then(|metadata| metadata.modified())
        .expect("the file is there");
    assert!(setup.run(&["--oneshot"]).status.success());
    let later = fs::metadata(setup.output())
        .and_then(|metadata| metadata.modified())
        .expect("the file is there");
    assert_eq!(written, later);
}

#[test]
fn without_a_driver_it_fails_and_leaves_the_labels() {
    let setup = Setup::new();
    fs::write(setup.output(), "nvidia.com/gpu.count=9\n").expect("the file can be written");
    let without_driver = |arguments: &[&str]| {
        let mut command = setup.program();
        command
            .arg("--nvml-library=/nowhere/libnvidia-ml.so.1")
            .arg("--use-node-feature-api=false")
            .args(arguments);
        command.output().expect("the program starts")
    };
    let file = format!("--output-file={}", setup.output().display());
    for arguments in [&[file.as_str()][..], &[&file, "--oneshot"]] {
        let output = without_driver(arguments);
        assert_eq!(output.status.code(), Some(1));
        let message = String::from_utf8_lossy(&output.stderr);
        let expected = "error: the GPUs of this node cannot be read: no NVIDIA driver library";
        assert!(message.contains(expected), "{message}");
        assert_eq!(setup.label("gpu.count").as_deref(), Some("9"));
    }
    // What the vendor's program writes where it may not fail.
    let output = without_driver(&["--oneshot", "--fail-on-init-error=false", "--output-file="]);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "nvidia.com/vgpu.present=false\n"
    );
}

#[test]
fn a_driver_that_comes_late_is_waited_for_where_that_is_asked_for() {
    let setup = Setup::new();
    setup.node.set_init_error(Some(9)).expect("the driver can be unloaded");
    let daemon = setup.start(&["--fail-on-init-error=false", "--sleep-interval=1s"]);
    daemon.wait_to_say("the NVIDIA kernel driver is not loaded");
    thread::sleep(Duration::from_secs(2));
    assert_eq!(daemon.log().len(), 1, "{:#?}", daemon.log());
    setup.node.set_init_error(None).expect("the driver can be loaded");
    setup.wait_for("gpu.count", "2");
    daemon.end();
}

#[test]
fn a_driver_that_goes_and_comes_back_costs_no_label() {
    let mut setup = Setup::new();
    // Which asks for an end where there is no driver at the start, and at the start alone.
    let daemon = setup.start(&["--fail-on-init-error=true", "--sleep-interval=1s"]);
    setup.wait_for("cuda.driver.major", "550");
    setup.node.load_kernel_driver("580").expect("a driver can be loaded");
    // A call fails, and then the start of the library, which knows why.
    daemon.wait_to_say("driver/library version mismatch: `");
    let said = daemon.log().len();
    thread::sleep(Duration::from_secs(3));
    assert_eq!(daemon.log().len(), said, "{:#?}", daemon.log());
    assert_eq!(setup.label("cuda.driver.major").as_deref(), Some("550"));
    setup.node.load_driver("580").expect("a driver can be loaded");
    setup.wait_for("cuda.driver.major", "580");
    daemon.end();
}

#[test]
fn labels_follow_the_node_and_stay_when_the_program_ends() {
    let setup = Setup::new();
    let daemon = setup.start(&["--sleep-interval=1h", "--mig-strategy=mixed"]);
    setup.wait_for("gpu.count", "2");
    setup.node.lose(1).expect("a GPU can be lost");
    setup.wait_for("gpu.count", "1");
    assert_eq!(setup.label("gpu.degraded").as_deref(), Some("true"));
    setup.node.restore(1).expect("a GPU can come back");
    setup.wait_for("gpu.count", "2");
    assert_eq!(setup.label("gpu.degraded"), None);

    setup.node.set_mig_mode(1, true).expect("MIG can be enabled");
    setup.node.create_mig(1, "1g.10gb", None).expect("it fits");
    setup.wait_for("mig-1g.10gb.count", "1");
    daemon.end();
    assert_eq!(setup.label("mig-1g.10gb.count").as_deref(), Some("1"));
}

#[test]
fn a_gpu_that_stays_lost_is_told_of_once() {
    let setup = Setup::new();
    setup.node.lose(0).expect("a GPU can be lost");
    let daemon = setup.start(&["--sleep-interval=1s"]);
    setup.wait_for("gpu.degraded", "true");
    assert_eq!(setup.label("gpu.product").as_deref(), Some("NVIDIA-H100-80GB-HBM3"));
    thread::sleep(Duration::from_secs(3));
    let log = daemon.log();
    // The GPU, that the labels are of the others, and that they are there.
    assert_eq!(log.len(), 3, "{log:#?}");
    assert_eq!(daemon.said("GPU 0"), 1, "{log:#?}");
    daemon.end();
}

#[test]
fn gpus_that_are_all_lost_keep_their_labels() {
    let setup = Setup::new();
    let product = || setup.label("gpu.product");
    let daemon = setup.start(&["--sleep-interval=1s"]);
    setup.wait_for("gpu.count", "2");
    setup.node.lose(0).expect("a GPU can be lost");
    setup.wait_for("gpu.count", "1");
    setup.node.lose(1).expect("a GPU can be lost");
    daemon.wait_to_say("GPU 1");
    thread::sleep(Duration::from_secs(3));
    assert_eq!(product().as_deref(), Some("NVIDIA-H100-80GB-HBM3"));
    assert_eq!(setup.label("gpu.degraded").as_deref(), Some("true"));
    daemon.end();

    // And so where another process made them.
    let daemon = setup.start(&["--sleep-interval=1s"]);
    daemon.wait_to_say("none of the GPUs of this node can be read");
    assert_eq!(product().as_deref(), Some("NVIDIA-H100-80GB-HBM3"));
    for gpu in [0, 1] {
        setup.node.restore(gpu).expect("a GPU can come back");
    }
    setup.wait_for("gpu.count", "2");
    assert_eq!(setup.label("gpu.degraded"), None);
    assert_eq!(daemon.said("none of the GPUs of this node can be read"), 1);
    daemon.end();
}

#[test]
fn a_configuration_that_asks_for_one_round_ends_the_program() {
    let setup = Setup::new();
    let config = setup.path("config.yaml");
    fs::write(&config, "version: v1").expect("the file can be written");
    let argument = format!("--config-file={}", config.display());
    let mut daemon = setup.start(&["--sleep-interval=1h", &argument]);
    setup.wait_for("gpu.count", "2");
    fs::remove_file(setup.output()).expect("the file can be removed");
    fs::write(&config, "flags: { gfd: { oneshot: true } }").expect("the file can be written");
    assert!(daemon.wait_for_end().success());
    assert_eq!(setup.label("gpu.count").as_deref(), Some("2"));
}

#[test]
fn a_driver_that_hangs_costs_no_label_and_keeps_nobody_from_ending_the_program() {
    let setup = Setup::new();
    let daemon = setup.start(&["--sleep-interval=1s"]);
    setup.wait_for("gpu.count", "2");
    for gpu in [0, 1] {
        setup.node.hang(gpu, Duration::from_mins(5)).expect("a GPU can hang");
    }
    thread::sleep(Duration::from_secs(3));
    assert_eq!(setup.label("gpu.count").as_deref(), Some("2"));
    daemon.end();
}

#[test]
fn labels_are_taken_back_only_where_that_is_asked_for() {
    let setup = Setup::new();
    let daemon = setup.start(&["--remove-on-exit"]);
    setup.wait_for("gpu.count", "2");
    daemon.end();
    assert!(!setup.output().exists());
}

#[test]
fn a_changed_configuration_is_taken_over_and_a_broken_one_is_not() {
    let setup = Setup::new();
    let config = setup.path("config.yaml");
    let write = |text: &[u8]| {
        let new = config.with_extension("new");
        fs::write(&new, text).expect("the file can be written");
        fs::rename(&new, &config).expect("the file can be replaced");
    };
    let shared = |replicas: u32| {
        format!("sharing: {{ timeSlicing: {{ resources: [{{ name: nvidia.com/gpu, replicas: {replicas} }}] }} }}")
    };
    write(shared(3).as_bytes());
    let argument = format!("--config-file={}", config.display());
    let daemon = setup.start(&["--sleep-interval=1h", &argument]);
    setup.wait_for("gpu.replicas", "3");
    assert_eq!(
        setup.label("gpu.product").as_deref(),
        Some("NVIDIA-H100-80GB-HBM3-SHARED")
    );
    write(b"sharing: { timeSlice: {} }");
    daemon.wait_to_say("the configuration in force stays: ");
    thread::sleep(Duration::from_secs(2));
    assert_eq!(daemon.said("the configuration in force stays: "), 1);
    daemon.signal("-HUP");
    wait_until("it is refused again when asked", || {
        daemon.said("the configuration in force stays: ") == 2
    });
    assert_eq!(setup.label("gpu.replicas").as_deref(), Some("3"));

    // Back and broken again, and then gone.
    write(shared(3).as_bytes());
    daemon.wait_to_say("the configuration is read anew");
    write(b"sharing: { timeSlice: {} }");
    wait_until("it is refused as news", || {
        daemon.said("the configuration in force stays: ") == 3
    });
    fs::remove_file(&config).expect("the file can be removed");
    daemon.wait_to_say("the configuration in force stays: cannot read the configuration file `");
    thread::sleep(Duration::from_secs(2));
    assert_eq!(daemon.said("the configuration in force stays: "), 4);
    write(shared(4).as_bytes());
    setup.wait_for("gpu.replicas", "4");
    daemon.end();
}

#[test]
fn a_folder_that_is_not_there_yet_is_waited_for_and_one_that_goes_away_too() {
    let setup = Setup::new();
    let (folder, away) = (setup.path("features.d"), setup.path("away"));
    let file = folder.join("gfd");
    let mut command = setup.program();
    command
        .args(["--use-node-feature-api=false", "--sleep-interval=1s"])
        .arg(format!("--output-file={}", file.display()))
        .arg(format!("--nvml-library={}", setup.node.library().display()));
    let daemon = Daemon::start(command, setup.path("log"));
    let complaint = format!("cannot write `{}`: ", file.display());
    daemon.wait_to_say(&complaint);
    fs::create_dir(&folder).expect("the folder can be made");
    wait_until("there are labels", || label(&file, "gpu.count").is_some());

    // In its place comes something in which there can be no file.
    fs::rename(&folder, &away).expect("the folder can be renamed");
    fs::write(&folder, "").expect("a file can be made");
    wait_until("it says so", || daemon.said(&complaint) == 2);
    thread::sleep(Duration::from_secs(2));
    assert_eq!(daemon.said(&complaint), 2, "{:#?}", daemon.log());
    assert_eq!(label(&away.join("gfd"), "gpu.count").as_deref(), Some("2"));
    assert_eq!(fs::read_dir(&away).expect("it can be listed").count(), 1);
    daemon.end();
}

#[test]
fn a_pipe_in_the_files_place_is_left_alone_and_keeps_nothing_waiting() {
    let setup = Setup::new();
    let made = Command::new("mkfifo").arg(setup.output()).status();
    assert!(made.is_ok_and(|status| status.success()));
    let daemon = setup.start(&["--sleep-interval=1s"]);
    daemon.wait_to_say("it is there and no file");
    daemon.end();
    let kind = fs::symlink_metadata(setup.output()).expect("it is there").file_type();
    assert!(kind.is_fifo());
}

#[test]
fn a_machine_that_cannot_be_told_is_unknown_and_told_of_once() {
    let setup = Setup::new();
    let daemon = setup.start(&["--sleep-interval=1s", "--machine-type-file=/nowhere"]);
    setup.wait_for("gpu.machine", "unknown");
    thread::sleep(Duration::from_secs(2));
    assert_eq!(
        daemon.said("cannot read the machine's type of `"),
        1,
        "{:#?}",
        daemon.log()
    );
    daemon.end();

    // One that was told stays.
    let file = setup.node.root().join("machine");
    fs::write(&file, "Some Server").expect("the file can be written");
    let daemon = setup.start(&["--sleep-interval=1s", "--machine-type-file=/machine"]);
    setup.wait_for("gpu.machine", "Some-Server");
    fs::remove_file(&file).expect("the file can be removed");
    daemon.wait_to_say("cannot read the machine's type of `");
    thread::sleep(Duration::from_secs(2));
    assert_eq!(setup.label("gpu.machine").as_deref(), Some("Some-Server"));
    daemon.end();

    let long = "Very Long Product Name ".repeat(20);
    fs::write(setup.node.root().join("machine"), long).expect("the file can be written");
    assert!(
        setup
            .run(&["--oneshot", "--machine-type-file=/machine"])
            .status
            .success()
    );
    assert_eq!(
        setup.label("gpu.machine").as_deref(),
        Some("Very-Long-Product-Name-Very-Long-Product-Name-Very-Long-Product")
    );
}

#[test]
fn settings_that_cannot_be_meant_are_bad_usage() {
    let setup = Setup::new();
    for (argument, expected) in [
        ("--pci-labels", "--pci-labels needs --node-labels"),
        ("--device-discovery-strategy=tegra", "is not supported"),
        ("--node-labels", "set --node-name or NODE_NAME"),
        ("--mig-strategy=some", "some"),
    ] {
        let output = setup.run(&[argument]);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(expected), "{message}");
    }
}
