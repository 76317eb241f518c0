use std::fs;

use clap::{CommandFactory, Parser};
use gpu_labels::gpu_sharing::config::{Config, DiscoveryStrategy, Interval, MigStrategy};

use super::*;
use crate::{program::BadUsage, settings::Settings};

fn settings(arguments: &[&str]) -> anyhow::Result<Settings> {
    let name = ["gpu-feature-discovery", "--node-name=n1"];
    FeatureDiscovery::try_parse_from(name.iter().chain(arguments))?.settings()
}

#[test]
fn the_arguments_are_well_formed() {
    FeatureDiscovery::command().debug_assert();
}

#[test]
fn every_flag_of_the_vendors_changes_something() {
    #[track_caller]
    fn check(arguments: &[&str], expected: impl Fn(&Config) -> bool) {
        let arguments: Vec<_> = [&["--config-file="], arguments].concat();
        let config = settings(&arguments).unwrap().config;
        assert!(expected(&config), "{config:#?}");
    }
    check(&["--mig-strategy=mixed"], |config| {
        config.mig_strategy == MigStrategy::Mixed
    });
    check(&["--fail-on-init-error=false"], |config| !config.fail_on_init_error);
    check(&["--use-node-feature-api=0"], |config| !config.use_node_feature_api);
    check(&["--device-discovery-strategy=nvml"], |config| {
        config.device_discovery_strategy == DiscoveryStrategy::Nvml
    });
    check(&["--container-driver-root=/r"], |config| {
        config.plugin.container_driver_root == "/r"
    });
    check(&["--oneshot", "--no-timestamp"], |config| {
        config.gfd.oneshot && config.gfd.no_timestamp
    });
    check(&["--sleep-interval", "infinite"], |config| {
        config.gfd.sleep_interval == Interval::Infinite
    });
    check(&["-o", "/o"], |config| config.gfd.output_file.as_deref() == Some("/o"));
    check(&["--output="], |config| config.gfd.output_file.is_none());
    check(&["--machine-type-file=/m"], |config| {
        config.gfd.machine_type_file.as_deref() == Some("/m")
    });
}

#[test]
fn the_file_is_below_the_flags_and_unknown_keys_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.yaml");
    let argument = format!("--config-file={}", path.display());
    fs::write(&path, "flags: { migStrategy: single, gfd: { oneshot: true } }").unwrap();
    let config = settings(&[&argument, "--mig-strategy=mixed"]).unwrap().config;
    assert!(config.gfd.oneshot && config.mig_strategy == MigStrategy::Mixed);

    fs::write(&path, "flag: {}").unwrap();
    let error = program::chain(&settings(&[&argument]).unwrap_err());
    assert!(
        error.ends_with("`flag` in line 1 is not a known key; did you mean `flags`?"),
        "{error}"
    );
    let lenient = settings(&[&argument, "--lenient-config"]).unwrap();
    assert_eq!(lenient.warnings.len(), 1);
}

#[test]
fn what_is_not_supported_is_bad_usage() {
    #[track_caller]
    fn check(arguments: &[&str], expected: &str) {
        let error = settings(arguments).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(error.is::<BadUsage>());
    }
    check(
        &["--device-discovery-strategy=vfio"],
        "--device-discovery-strategy=`vfio` is not supported",
    );
    check(&["--pci-labels"], "--pci-labels needs --node-labels");
    check(&["--node-name="], "set --node-name or NODE_NAME");
    for argument in [
        "--sleep-interval=soon",
        "--mig-strategy=some",
        "--kube-api-qps=0",
        "--kube-api-qps=1e-300",
        "--oneshot=maybe",
    ] {
        assert!(FeatureDiscovery::try_parse_from(["gpu-feature-discovery", argument]).is_err());
    }
}
