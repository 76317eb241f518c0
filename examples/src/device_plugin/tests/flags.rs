//! Each flag of `--help`, and what is otherwise with it.

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use gpu_plugin::{HealthPolicy, NodeConfig, Sockets, XidClass, gpu_cdi::HookName};
use gpu_sharing::config::{
    AllocationPolicy, Config, DeviceIdStrategy, DeviceListStrategy, DiscoveryStrategy, MigStrategy, Sharing,
};

use super::{DevicePlugin, command, config, parse};

/// What a command line comes to.
struct Meaning {
    plugin: DevicePlugin,
    node: NodeConfig,
    sockets: Sockets,
}

impl Meaning {
    fn of(arguments: &[String]) -> Option<Self> {
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let plugin = parse(&[&["--driver-root-ctr-path=/"], &*arguments].concat()).ok()?;
        let node = plugin.node_config(&plugin.settings().ok()?.config).ok()?;
        Some(Self {
            sockets: plugin.sockets(),
            plugin,
            node,
        })
    }

    fn config(&self) -> &Config {
        &self.node.config
    }
}

/// The flags that were looked at.
struct Flags {
    seen: BTreeSet<String>,
    folder: tempfile::TempDir,
}

impl Flags {
    fn new() -> Self {
        Self {
            seen: BTreeSet::new(),
            folder: tempfile::tempdir().expect("a temporary folder"),
        }
    }

    /// That it is so with the arguments, the first of which is the flag, and not without that.
    #[track_caller]
    fn check(&mut self, arguments: &str, expected: impl Fn(&Meaning) -> bool) {
        self.check_with("", arguments, expected);
    }

    /// The same with a configuration file.
    #[track_caller]
    fn check_with(&mut self, file: &str, arguments: &str, expected: impl Fn(&Meaning) -> bool) {
        let path = self.folder.path().join("config.yaml");
        fs::write(&path, file).expect("a file");
        let words: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
        let name = words[0].trim_start_matches("--").split('=').next().unwrap_or_default();
        let also = [format!("--config-file={}", path.display())];
        let with = Meaning::of(&[&also[..], &words[..]].concat());
        assert!(with.is_some_and(|meaning| expected(&meaning)), "{arguments}");
        let without = Meaning::of(&[&also[..], &words[1..]].concat());
        assert!(
            without.is_none_or(|meaning| !expected(&meaning)),
            "without {name} it is the same"
        );
        self.seen.insert(name.to_owned());
    }
}

fn flags_of_the_vendors(flags: &mut Flags) {
    flags.check("--mig-strategy=mixed", |with| {
        with.config().mig_strategy == MigStrategy::Mixed
    });
    flags.check("--fail-on-init-error=0", |with| !with.config().fail_on_init_error);
    flags.check("--mps-root=/run/nvidia/mps", |with| {
        with.config().mps_root.as_deref() == Some("/run/nvidia/mps")
    });
    for driver_root in ["--driver-root=/r", "--nvidia-driver-root=/r"] {
        flags.check(driver_root, |with| {
            with.config().nvidia_driver_root == "/r" && with.config().nvidia_dev_root == "/r"
        });
    }
    flags.check("--dev-root=/d --driver-root=/r", |with| {
        with.config().nvidia_dev_root == "/d"
    });
    flags.check("--gdrcopy-enabled", |with| with.config().gdrcopy_enabled);
    flags.check("--gds-enabled=true", |with| with.config().gds_enabled);
    flags.check("--mofed-enabled=1", |with| with.config().mofed_enabled);
    for strategy in [DiscoveryStrategy::Nvml, DiscoveryStrategy::Tegra] {
        flags.check(&format!("--device-discovery-strategy={strategy}"), |with| {
            with.config().device_discovery_strategy == strategy
        });
    }
    flags.check("--pass-device-specs", |with| with.config().plugin.pass_device_specs);
    for several in [
        "--device-list-strategy=volume-mounts,cdi-cri",
        "--device-list-strategy=volume-mounts --device-list-strategy=cdi-cri",
    ] {
        flags.check(several, |with| {
            let lists = &with.config().plugin.device_list_strategy;
            *lists == [DeviceListStrategy::VolumeMounts, DeviceListStrategy::CdiCri]
        });
    }
    flags.check("--device-id-strategy=index", |with| {
        with.config().plugin.device_id_strategy == DeviceIdStrategy::Index
    });
    flags.check("--cdi-annotation-prefix=x/", |with| {
        with.config().plugin.cdi_annotation_prefix == "x/"
    });
    for hook in ["--nvidia-cdi-hook-path=/h", "--nvidia-ctk-path=/h"] {
        flags.check(hook, |with| with.config().plugin.nvidia_ctk_path == "/h");
    }
    flags.check("--shared-devices-allocation-policy=packed", |with| {
        with.config().plugin.shared_devices_allocation_policy == AllocationPolicy::Packed
    });
    flags.check("--imex-channel-ids=0", |with| with.config().imex.channel_ids == [0]);
    flags.check("--imex-required", |with| with.config().imex.required);
    flags.check("--kubelet-socket=/k/kubelet.sock", |with| {
        with.sockets.kubelet == Path::new("/k/kubelet.sock")
    });
    flags.check("--cdi-disable-hooks=chmod,update-ldcache", |with| {
        with.node.disabled_hooks == [HookName::UpdateLdcache, HookName::Chmod].into()
    });
    flags.check("--cdi-disable-hooks=all", |with| {
        with.node.disabled_hooks.len() == HookName::ALL.len()
    });
    flags.check("--cdi-feature-flags=no-additional-gids-for-device-nodes", |with| {
        !with.node.additional_gids
    });
    flags.check(
        "--cdi-feature-flags=disable-nvsandboxutils,disable-ipc-discoverer",
        |with| !with.node.ipc_sockets,
    );
    flags.check("--cdi-feature-flags=enable-explicit-driver-libraries", |with| {
        with.node.driver_files.explicit_libraries
    });
    flags.check("--cdi-feature-flags=enable-coherent-annotations", |with| {
        with.node.coherent_annotations
    });
    let folder = tempfile::tempdir().expect("a temporary folder");
    for root in ["--driver-root-ctr-path", "--container-driver-root"] {
        // The last one counts; the other one is of this module.
        let plugin = parse(&["--config-file=", &format!("{root}={}", folder.path().display())]).expect("flags");
        let node = plugin
            .node_config(&plugin.settings().expect("settings").config)
            .expect("a node");
        assert_eq!(node.library.driver_root.as_deref(), Some(folder.path()), "{root}");
    }
    flags.seen.insert("driver-root-ctr-path".to_owned());
}

fn flags_of_ours(flags: &mut Flags) {
    let misspelt = "flags: { migStrategie: single }";
    flags.check_with(misspelt, "--lenient-config", |_| true);
    let renamed = "sharing: { timeSlicing: { resources: [{ name: gpu, rename: mine, replicas: 4 }] } }";
    flags.check_with(renamed, "--resource-naming", |with| match &with.config().sharing {
        Sharing::TimeSlicing(shared) => shared.resources[0].rename.is_some(),
        _ => false,
    });
    flags.check("--pod-resources-socket=/p", |with| {
        with.sockets.pod_resources.as_deref() == Some(Path::new("/p"))
    });
    flags.check("--pod-resources-socket=", |with| with.sockets.pod_resources.is_none());
    flags.check("--include-gpus=0,GPU-00000000-0000-4000-8000-000000000000", |with| {
        with.node.choice.include.len() == 2
    });
    flags.check("--exclude-gpus=0000:07:00.0", |with| {
        with.node.choice.exclude.len() == 1
    });
    flags.check("--xid-classes=94=application", |with| {
        with.node.health.class(94) == XidClass::Application
    });
    flags.check("--health-quiet-period=5s", |with| {
        with.node.health.quiet == Duration::from_secs(5)
    });
    flags.check("--owners-file=/o", |with| {
        with.node
            .owners
            .as_ref()
            .is_some_and(|owners| owners.path() == Path::new("/o"))
    });
    flags.check("--owners-file=", |with| with.node.owners.is_none());
    flags.check("--release-on-exit", |with| with.plugin.release_on_exit);
    flags.check("--listen=127.0.0.1:1", |with| with.plugin.listen.is_some());
    flags.check("--cdi-dir=/c", |with| with.node.cdi_dir == Path::new("/c"));
    flags.check("--mps-dir=/m", |with| with.node.mps_root == Path::new("/m"));
    flags.check("--nvml-library=/l", |with| with.node.library.library.is_some());
    flags.check("--host-root=/h", |with| with.node.host_root == Path::new("/h"));
    // What they choose is held by `config_manager::follow`.
    #[cfg(all(feature = "config-manager", feature = "node-events"))]
    for name in [
        "config-file-srcdir",
        "node-label",
        "default-config",
        "fallback-strategies",
    ] {
        flags.seen.insert(name.to_owned());
    }
    #[cfg(feature = "node-events")]
    {
        flags.check("--node-name=n", |with| with.plugin.cluster.node_name.is_some());
        flags.check("--kubeconfig=/k", |with| with.plugin.cluster.kubeconfig.is_some());
    }
    let file = flags.folder.path().join("named.yaml");
    fs::write(&file, "flags: { migStrategy: single }").expect("a file");
    for (path, strategy) in [(&*file, MigStrategy::Single), (Path::new(""), MigStrategy::None)] {
        let meaning = Meaning::of(&[format!("--config-file={}", path.display())]).expect("it can be used");
        assert_eq!(meaning.config().mig_strategy, strategy, "{}", path.display());
    }
    flags.seen.insert("config-file".to_owned());
    // Held by `the_log_can_be_json` of `tests/it`.
    flags.seen.insert("log-format".to_owned());
}

#[test]
fn every_flag_changes_something() {
    let mut flags = Flags::new();
    flags_of_the_vendors(&mut flags);
    flags_of_ours(&mut flags);
    let all = command();
    let all = all.get_arguments().filter_map(|argument| argument.get_long());
    let all: BTreeSet<_> = all.filter(|name| !["help", "version"].contains(name)).collect();
    let seen: BTreeSet<_> = flags.seen.iter().map(String::as_str).collect();
    // Other names of the same flags.
    let seen: BTreeSet<_> = seen
        .difference(&["nvidia-driver-root", "nvidia-ctk-path"].into())
        .copied()
        .collect();
    assert_eq!(seen, all);
    assert_eq!(config(&[]).expect("a node").health, HealthPolicy::default());
}
