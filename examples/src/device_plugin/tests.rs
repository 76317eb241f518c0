use std::{fs, path::Path};

use clap::CommandFactory;
use gpu_plugin::NodeConfig;
use gpu_sharing::config::{MigStrategy, Sharing};

use super::{
    arguments::{DevicePlugin, command, meaning::driver_root_here},
    *,
};

mod flags;

fn parse(arguments: &[&str]) -> Result<DevicePlugin, clap::Error> {
    let matches = command().try_get_matches_from(["gpu-device-plugin"].iter().chain(arguments))?;
    clap::FromArgMatches::from_arg_matches(&matches)
}

/// Without the environment's configuration file, and with a driver root that is there.
fn config(arguments: &[&str]) -> anyhow::Result<NodeConfig> {
    let arguments = [&["--config-file=", "--driver-root-ctr-path=/"], arguments].concat();
    let plugin = parse(&arguments)?;
    plugin.node_config(&plugin.settings()?.config)
}

#[test]
fn the_arguments_are_well_formed() {
    DevicePlugin::command().debug_assert();
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    #[track_caller]
    fn check(arguments: &[&str], says: &str) {
        let error = program::chain(&config(arguments).unwrap_err());
        assert!(error.contains(says), "{error}");
    }
    check(&["--device-discovery-strategy=vfio"], "expected auto, nvml, tegra");
    check(
        &["--device-list-strategy=best"],
        "invalid --device-list-strategy option",
    );
    check(
        &["--shared-devices-allocation-policy=best"],
        "invalid --shared-devices-allocation-policy option",
    );
    check(&["--imex-channel-ids=1"], "channelIDs must be [] or [0]; found [1]");
    check(
        &["--cdi-feature-flags=make-coffee"],
        "disable-ipc-discoverer, disable-nvsandboxutils",
    );
    check(&["--cdi-disable-hooks=unheard-of"], "unheard-of");
    check(&["--kubelet-socket="], "never registers");
    check(
        &["--nvidia-cdi-hook-path=hook"],
        "the hook program `hook` is not an absolute path",
    );
    check(
        &["--cdi-annotation-prefix="],
        "the prefix `` of CDI annotations is empty",
    );
    check(&["--xid-classes=94"], "94");
    check(&["--include-gpus=first"], "`first` is neither");
    for harmless in [
        "--imex-channel-ids=",
        "--cdi-feature-flags=",
        "--device-discovery-strategy=auto",
    ] {
        config(&[harmless]).unwrap();
    }
}

#[test]
fn the_file_is_below_the_flags_and_mps_needs_its_root() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.yaml");
    let argument = format!("--config-file={}", path.display());
    let settings = |arguments: &[&str]| parse(&[&[argument.as_str()], arguments].concat()).unwrap().settings();
    let sharing = "sharing: { timeSlicing: { resources: [{ name: gpu, rename: mine, replicas: 4 }] } }";
    fs::write(&path, format!("flags: {{ migStrategy: single }}\n{sharing}")).unwrap();
    let read = settings(&["--mig-strategy=mixed"]).unwrap();
    assert_eq!(read.config.mig_strategy, MigStrategy::Mixed);
    assert_eq!(read.warnings.len(), 1, "{:?}", read.warnings);
    let named = settings(&["--resource-naming"]).unwrap();
    let Sharing::TimeSlicing(shared) = named.config.sharing else {
        panic!("{:?}", named.config.sharing);
    };
    assert_eq!(shared.resources[0].rename.as_ref().unwrap().base(), "mine");

    fs::write(&path, sharing.replace("timeSlicing", "mps")).unwrap();
    let error = settings(&[]).unwrap_err();
    assert_eq!(error.to_string(), "using MPS requires --mps-root to be specified");
    let error = settings(&["--mps-root=/m", "--mig-strategy=mixed"]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "using --mig-strategy=mixed is not supported with MPS"
    );
    settings(&["--mps-root=/m"]).unwrap();

    fs::write(&path, "flags: { migStrategie: single }").unwrap();
    let error = program::chain(&settings(&[]).unwrap_err());
    assert!(error.ends_with("did you mean `migStrategy`?"), "{error}");
    assert_eq!(settings(&["--lenient-config"]).unwrap().warnings.len(), 1);
}

#[test]
fn the_root_is_taken_for_the_driver_root_only_where_it_is() {
    #[track_caller]
    fn check(arguments: &[&str], usual: &Path, expected: Result<&Path, &str>) {
        let arguments = [&["--config-file="], arguments].concat();
        let config = parse(&arguments).unwrap().settings().unwrap().config;
        match (driver_root_here(&config, usual), expected) {
            (Ok(here), Ok(expected)) => assert_eq!(here, expected),
            (Err(error), Err(words)) => assert!(error.to_string().contains(words), "{error}"),
            (here, expected) => panic!("{here:?}, and expected is {expected:?}"),
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let (there, absent) = (dir.path(), dir.path().join("absent"));
    let (root, named) = (Path::new("/"), absent.to_str().unwrap());
    check(&[], there, Ok(there));
    check(&[], &absent, Ok(root));
    check(&["--driver-root=/run/nvidia/driver"], there, Ok(there));
    check(
        &["--driver-root=/run/nvidia/driver"],
        &absent,
        Err("`/run/nvidia/driver`"),
    );
    check(&["--driver-root=/run/nvidia/driver"], &absent, Err(named));
    check(&[&format!("--driver-root-ctr-path={named}")], there, Err(named));
}
