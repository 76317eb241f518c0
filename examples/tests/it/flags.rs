//! Each flag of `--help`, by runs of the program: what is otherwise with it, for whoever looks from outside.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::TcpStream,
    os::unix::{fs::symlink, net::UnixListener},
    path::PathBuf,
    process::Command,
    time::Duration,
};

use gpu_core::ownership::OwnerFile;
use gpu_kubelet::{
    device_plugin::{ContainerAllocateResponse, Device},
    double::{Config, Kubelet},
};
use rustix::process::Signal;

use super::{
    LONG, Running,
    device_plugin::{GPU, Place, free_port, probe, until},
    help, program, run, stderr, stdout,
};

/// What shows of a run.
#[derive(Debug, Default)]
struct Seen {
    /// The folder of the kubelet that the program came to.
    kubelet: PathBuf,
    /// The resources that the kubelet knows, and their devices.
    resources: BTreeMap<String, Vec<Device>>,
    /// Whether all of them are near a processor, and which GPUs are among them.
    has_numa: bool,
    offered: Vec<bool>,
    /// Two devices, and what a container is told of them.
    ids: Vec<String>,
    answer: ContainerAllocateResponse,
    /// The CDI file of the GPUs, and the folder that it is in.
    cdi: String,
    cdi_dir: PathBuf,
    /// Whether an Xid that is an application's made a GPU unhealthy, and whether that has recovered soon.
    ill: bool,
    recovered: bool,
    /// Whether somebody came to the socket of pod resources, and whether probes were answered.
    asked: bool,
    healthz: bool,
    /// The owners' file and how many claims were in it, while it ran and after.
    claims: Option<Claims>,
    left: Option<Claims>,
    log: String,
}

type Claims = (&'static str, usize);

impl Seen {
    fn env(&self, name: &str) -> Option<&str> {
        self.answer.envs.get(name).map(String::as_str)
    }
}

const MINE: &str = "nvidia.com/mine";
const MIG: &str = "nvidia.com/mig-1g.10gb";

const OWNERS: &str = "owners.json";
const USUAL_OWNERS: &str = "usual-owners.json";

const CDI_FEATURES: &str = "disable-ipc-discoverer,enable-coherent-annotations,enable-explicit-driver-libraries";

/// One of the flags: what it is set to, and what shows where it is.
struct Row {
    flag: &'static str,
    value: String,
    shows: fn(&Seen) -> bool,
}

/// A simulated node, whose GPU 3 is divided, with a socket of the driver's and a library that may be the distribution's.
struct Stage {
    place: Place,
    port: u16,
}

impl Stage {
    fn new() -> Self {
        let place = Place::new();
        place.node.set_mig_mode(3, true).expect("the board has MIG");
        place.node.create_mig(3, "1g.10gb", None).expect("there is room");
        let root = place.node.root();
        fs::create_dir_all(root.join("run/nvidia-persistenced")).expect("a folder");
        UnixListener::bind(root.join("run/nvidia-persistenced/socket")).expect("a socket");
        let libraries = root.join("usr/lib/x86_64-linux-gnu");
        fs::copy(place.node.library(), libraries.join("libOpenCL.so.1")).expect("a library");
        let port = free_port();
        Self { place, port }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.dir.path().join(name)
    }

    fn gpu(&self, index: usize) -> &str {
        &self.place.node.gpus()[index].uuid
    }

    async fn kubelet(&self, folder: &str) -> Kubelet {
        let started = Kubelet::start(Config::in_dir(self.path(folder))).await;
        started.expect("the kubelet double starts")
    }

    /// The program with the variables that say where this node is.
    fn plugin(&self) -> Command {
        let mut command = self.place.plugin();
        command
            .env("GPU_CDI_DIR", self.path("cdi"))
            .env("GPU_OWNERS_FILE", self.path(USUAL_OWNERS));
        command
    }

    /// The flags that do without one another, all in one run.
    fn rows(&self) -> Vec<Row> {
        let row = |flag, value: &str, shows| Row {
            flag,
            value: value.to_owned(),
            shows,
        };
        let path = |flag, name: &str, shows| Row {
            flag,
            value: self.path(name).display().to_string(),
            shows,
        };
        let root = self.place.node.root();
        vec![
            path("kubelet-socket", "other/device-plugins/kubelet.sock", |seen| {
                seen.kubelet.ends_with("other/device-plugins")
            }),
            path("config-file", "config.yaml", |seen| {
                seen.ids.iter().all(|id| id.contains("::"))
            }),
            row("lenient-config", "true", |seen| {
                seen.log.contains("`typo` in line 1 is not a known key")
            }),
            row("resource-naming", "true", |seen| seen.resources.contains_key(MINE)),
            row("mig-strategy", "mixed", |seen| seen.resources.contains_key(MIG)),
            row("device-list-strategy", "envvar,cdi-annotations,cdi-cri", |seen| {
                seen.env("NVIDIA_VISIBLE_DEVICES").is_some() && !seen.answer.cdi_devices.is_empty()
            }),
            row("device-id-strategy", "index", |seen| {
                seen.answer.cdi_devices.iter().all(|device| device.name.ends_with("=0"))
            }),
            row("cdi-annotation-prefix", "example.com/", |seen| {
                seen.answer
                    .annotations
                    .keys()
                    .any(|key| key.starts_with("example.com/"))
            }),
            row("nvidia-cdi-hook-path", "/opt/hook", |seen| {
                seen.cdi.contains("\"/opt/hook\"")
            }),
            row("cdi-disable-hooks", "update-ldcache", |seen| {
                !seen.cdi.is_empty() && !seen.cdi.contains("update-ldcache")
            }),
            row("cdi-feature-flags", CDI_FEATURES, |seen| {
                let has = |words| seen.cdi.contains(words);
                !seen.cdi.is_empty()
                    && !has("nvidia-persistenced/socket")
                    && has("gpu.nvidia.com/coherent")
                    && has("libOpenCL.so.1")
            }),
            path("cdi-dir", "other-cdi", |seen| seen.cdi_dir.ends_with("other-cdi")),
            row("pass-device-specs", "true", |seen| !seen.answer.devices.is_empty()),
            row("dev-root", "/elsewhere", |seen| {
                seen.answer
                    .devices
                    .iter()
                    .any(|device| device.host_path.starts_with("/elsewhere/dev"))
            }),
            row("driver-root", "/drivers", |seen| seen.cdi.contains("\"/drivers/usr/")),
            row("gdrcopy-enabled", "true", |seen| {
                seen.env("NVIDIA_GDRCOPY") == Some("enabled")
            }),
            row("gds-enabled", "true", |seen| seen.env("NVIDIA_GDS") == Some("enabled")),
            row("mofed-enabled", "true", |seen| {
                seen.env("NVIDIA_MOFED") == Some("enabled")
            }),
            row("shared-devices-allocation-policy", "packed", |seen| {
                let mut gpus = seen.ids.iter().filter_map(|id| id.split("::").next());
                gpus.next() == gpus.next()
            }),
            row(
                "include-gpus",
                &[self.gpu(0), self.gpu(1), self.gpu(3)].join(","),
                |seen| !seen.offered[2],
            ),
            row("exclude-gpus", self.gpu(1), |seen| !seen.offered[1]),
            row("xid-classes", "13=reset-required", |seen| seen.ill),
            row("health-quiet-period", "1s", |seen| seen.recovered),
            path("owners-file", OWNERS, |seen| seen.claims == Some((OWNERS, 2))),
            row("release-on-exit", "true", |seen| {
                seen.left.is_some_and(|(_, claims)| claims == 0)
            }),
            row("listen", &format!("127.0.0.1:{}", self.port), |seen| seen.healthz),
            path("pod-resources-socket", "pod-resources.sock", |seen| seen.asked),
            row("log-format", "json", |seen| {
                seen.log.lines().all(|line| line.starts_with('{'))
            }),
            // Its variable leads to nothing in both runs.
            Row {
                flag: "host-root",
                value: root.display().to_string(),
                shows: |seen| seen.has_numa,
            },
        ]
    }

    fn claims(&self) -> Option<Claims> {
        let name = [OWNERS, USUAL_OWNERS]
            .into_iter()
            .find(|name| self.path(name).exists())?;
        let file = OwnerFile::new(self.path(name)).read().ok()?;
        Some((name, file.owners.len()))
    }

    /// What can be seen of a run in front of this kubelet, where this resource comes to so many devices.
    async fn watch(&self, mut command: Command, kubelet: &Kubelet, resource: &str, count: usize, sign: usize) -> Seen {
        let pod_resources = UnixListener::bind(self.path("pod-resources.sock")).expect("a socket");
        pod_resources.set_nonblocking(true).expect("it can be set");
        let running = Running::start(&mut command);
        if let Err(error) = kubelet.wait_for_allocatable(resource, count, LONG).await {
            panic!("{error}; the log says:\n{}", stderr(&running.stop()));
        }
        let two = kubelet.admit("pod", "c", resource, 2).await.expect("it is admitted");
        let mut seen = Seen {
            kubelet: kubelet.device_plugin_dir().to_owned(),
            ids: two.device_ids,
            answer: two.response,
            claims: self.claims(),
            healthz: TcpStream::connect(("127.0.0.1", self.port)).is_ok() && probe(self.port, "/healthz").0 == "200",
            ..Seen::default()
        };
        for folder in ["cdi", "other-cdi"] {
            let file = self.path(folder).join("k8s.device-plugin.nvidia.com-gpu.json");
            if let Ok(text) = fs::read_to_string(file) {
                (seen.cdi, seen.cdi_dir) = (text, self.path(folder));
            }
        }
        for name in [GPU, MINE, MIG] {
            seen.resources.insert(name.to_owned(), kubelet.devices(name));
        }
        seen.resources.retain(|_, devices| !devices.is_empty());
        let devices = || seen.resources.values().flatten();
        seen.has_numa = devices().all(|device| device.topology.is_some());
        seen.offered = (0..4)
            .map(|gpu| devices().any(|device| device.id.starts_with(self.gpu(gpu))))
            .collect();

        // Xid 13 is an application's. Once the sign shows, that one would.
        let is_ill = |kubelet: &Kubelet, gpu: usize| {
            let devices = kubelet.devices(resource);
            let mut of_gpu = devices.iter().filter(|device| device.id.starts_with(self.gpu(gpu)));
            of_gpu.any(|device| device.health != "Healthy")
        };
        self.place.node.inject_xid(0, 13).expect("a GPU");
        if sign != 0 {
            self.place.node.inject_xid(sign, 79).expect("a GPU");
        }
        let shows = |kubelet: &Kubelet| is_ill(kubelet, sign);
        kubelet.wait_until("an Xid shows", LONG, shows).await.expect("in time");
        seen.ill = is_ill(kubelet, 0);
        if seen.ill {
            let well = |kubelet: &Kubelet| !is_ill(kubelet, 0);
            let recovered = kubelet.wait_until("it recovers", Duration::from_secs(30), well).await;
            seen.recovered = recovered.is_ok();
        }
        let looks = if seen.ill { 200 } else { 1 };
        for _ in 0..looks {
            seen.asked = pod_resources.accept().is_ok();
            if seen.asked {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        running.signal(Signal::TERM);
        let output = running.end(LONG);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stderr(&output).clone_into(&mut seen.log);
        seen.left = self.claims();
        fs::remove_file(self.path("pod-resources.sock")).expect("a socket");
        seen
    }

    /// That the program ends at its start with these words.
    #[track_caller]
    fn ends(&self, arguments: &[&str], words: &str) {
        let output = run(self.plugin().args(arguments));
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    }
}

/// All that do without one another in one run, against one without any.
async fn flags_together(stage: &Stage) -> Vec<&'static str> {
    let rows = stage.rows();
    let (kubelet, other) = (stage.kubelet(".").await, stage.kubelet("other").await);
    let mut plain = stage.plugin();
    // CDI files are there in both runs; the divided GPU has no device in one, and is not offered whole. The host root of that one has
    // nothing of the machine, the other's variable leads nowhere.
    let bare = stage.path("bare");
    fs::create_dir(&bare).expect("a folder");
    plain.env("DEVICE_LIST_STRATEGY", "cdi-cri").env("GPU_HOST_ROOT", bare);
    let without = stage.watch(plain, &kubelet, GPU, 3, 2).await;
    assert_eq!(
        (without.claims, without.left),
        (Some((USUAL_OWNERS, 3)), Some((USUAL_OWNERS, 3)))
    );
    fs::remove_dir_all(stage.path("cdi")).expect("a folder");
    fs::remove_file(stage.path(USUAL_OWNERS)).expect("a file");

    let text = "typo: 3\nsharing: { timeSlicing: { resources: [{ name: gpu, rename: mine, replicas: 4 }] } }";
    fs::write(stage.path("config.yaml"), text).expect("a file");
    let mut all = stage.plugin();
    for variable in [
        "GPU_NVML_LIBRARY",
        "CONTAINER_DRIVER_ROOT",
        "GPU_HOST_ROOT",
        "LD_LIBRARY_PATH",
    ] {
        all.env(variable, "/nonexistent");
    }
    all.args(rows.iter().map(|row| format!("--{}={}", row.flag, row.value)));
    // Nothing could be read if these two had no effect; what they do alone is in `flags_alone`.
    all.arg(format!("--nvml-library={}", stage.place.node.library().display()))
        .arg(format!("--driver-root-ctr-path={}", stage.place.node.root().display()));
    let with = stage.watch(all, &other, MINE, 4, 0).await;
    for row in &rows {
        assert!(
            (row.shows)(&with),
            "--{}={} does not show: {with:#?}",
            row.flag,
            row.value
        );
        assert!(!(row.shows)(&without), "--{} shows without it: {without:#?}", row.flag);
    }
    rows.iter().map(|row| row.flag).collect()
}

/// Those that need a configuration or a node of their own.
async fn flags_alone(stage: &Stage) -> Vec<&'static str> {
    stage.ends(&["--nvml-library=/nonexistent/nvml.so"], "`/nonexistent/nvml.so`");
    stage.ends(&["--driver-root-ctr-path=/nonexistent"], "`/nonexistent`");
    stage.ends(&["--imex-channel-ids=0", "--imex-required"], "channel0 does not exist");

    // It waits for a driver.
    let mut waiting = stage.plugin();
    waiting.args(["--fail-on-init-error=false", "--nvml-library=/nonexistent/nvml.so"]);
    let running = Running::start(waiting.env("GPU_LISTEN", format!("127.0.0.1:{}", stage.port)));
    until(stage.port, "/readyz", |_, body| body.contains("/nonexistent/nvml.so")).await;
    running.signal(Signal::TERM);
    assert_eq!(running.end(LONG).status.code(), Some(0));

    let kubelet = stage.kubelet("tegra").await;
    let mut tegra = stage.plugin();
    tegra.env("KUBELET_SOCKET", kubelet.registration_socket());
    let running = Running::start(tegra.arg("--device-discovery-strategy=tegra"));
    kubelet.wait_for_allocatable(GPU, 1, LONG).await.expect("in time");
    assert_eq!(kubelet.devices(GPU)[0].id, "tegra");
    drop(running);

    let channels = stage.place.node.root().join("dev/nvidia-caps-imex-channels");
    fs::create_dir_all(&channels).expect("a folder");
    symlink("/dev/null", channels.join("channel0")).expect("a node");
    // The file is as the vendor's daemon makes it.
    let kubelet = stage.kubelet("mps").await;
    let started = stage.path("root/nvidia.com/gpu");
    fs::create_dir_all(&started).expect("a folder");
    fs::write(started.join(".started"), "").expect("a file");
    let text = "sharing: { mps: { resources: [{ name: gpu, replicas: 4 }] } }";
    fs::write(stage.path("mps.yaml"), text).expect("a file");
    let mut mps = stage.plugin();
    mps.env("KUBELET_SOCKET", kubelet.registration_socket())
        .env("CONFIG_FILE", stage.path("mps.yaml"))
        .env("GPU_EXCLUDE_GPUS", "3")
        .args(["--mps-root=/run/mine", "--imex-channel-ids=0"])
        .arg(format!("--mps-dir={}", stage.path("root").display()));
    let running = Running::start(&mut mps);
    kubelet.wait_for_allocatable(GPU, 12, LONG).await.expect("in time");
    let admission = kubelet.admit("pod", "c", GPU, 1).await.expect("it is admitted");
    let mounts = &admission.response.mounts;
    assert!(
        mounts.iter().any(|mount| mount.host_path == "/run/mine/shm"),
        "{mounts:?}"
    );
    assert_eq!(
        admission.response.envs.get("NVIDIA_IMEX_CHANNELS").map(String::as_str),
        Some("0")
    );
    drop(running);
    vec![
        "nvml-library",
        "driver-root-ctr-path",
        "imex-channel-ids",
        "imex-required",
        "fail-on-init-error",
        "device-discovery-strategy",
        "mps-root",
        "mps-dir",
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn every_flag_of_the_device_plugin_changes_what_is_seen_of_it() {
    let stage = Stage::new();
    let mut shown = flags_alone(&stage).await;
    shown.extend(flags_together(&stage).await);
    #[cfg(feature = "stack")]
    shown.extend(super::label::flags_of_the_choice().await);
    let shown: BTreeSet<_> = shown.into_iter().map(str::to_owned).collect();
    let output = run(program(env!("CARGO_BIN_EXE_gpu-device-plugin")).arg("--help"));
    assert_eq!(shown, help::flags(stdout(&output)));
}

/// Which Xids are of interest are variables alone.
#[tokio::test(flavor = "multi_thread")]
async fn the_variables_of_health_checks_say_which_xids_count() {
    let stage = Stage::new();
    let kubelet = stage.kubelet(".").await;
    let mut command = stage.plugin();
    command
        .env("DP_DISABLE_HEALTHCHECKS", "79")
        .env("DP_ENABLE_HEALTHCHECKS", "13,soon");
    let running = Running::start(&mut command);
    kubelet.wait_for_allocatable(GPU, 4, LONG).await.expect("in time");
    stage.place.node.inject_xid(0, 79).expect("a GPU");
    stage.place.node.inject_xid(1, 13).expect("a GPU");
    kubelet.wait_for_allocatable(GPU, 3, LONG).await.expect("in time");
    let ill: Vec<_> = kubelet
        .devices(GPU)
        .into_iter()
        .filter(|device| device.health != "Healthy")
        .map(|device| device.id)
        .collect();
    assert_eq!(ill, [stage.gpu(1)]);
    running.signal(Signal::TERM);
    let output = running.end(LONG);
    assert!(
        stderr(&output).contains("`soon` in DP_DISABLE_HEALTHCHECKS"),
        "{}",
        stderr(&output)
    );
}
