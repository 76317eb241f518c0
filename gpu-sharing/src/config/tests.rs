use std::{ffi::OsString, os::unix::ffi::OsStringExt as _};

use proptest::prelude::*;

use super::*;

#[track_caller]
fn parse(text: &str) -> ConfigFile {
    match ConfigFile::parse(text, Reading::Strict) {
        Ok((file, _)) => file,
        Err(error) => panic!("{error}"),
    }
}

#[track_caller]
fn resolve(text: &str) -> (Config, Vec<String>) {
    let (config, warnings) = Config::resolve(parse(text), Flags::default(), Options::default());
    (config, warnings.iter().map(ToString::to_string).collect())
}

#[track_caller]
fn check_error(text: &str, expected: &str) {
    let error = ConfigFile::parse(text, Reading::Strict).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}

fn environment(variables: &[(&str, &str)]) -> impl Fn(&'static str) -> Option<OsString> {
    move |name| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).into())
    }
}

fn sharing(section: &str, entry: &str) -> String {
    format!("sharing:\n  {section}:\n    resources:\n    - {entry}\n")
}

#[test]
fn nothing_written_is_all_defaults() {
    for text in [
        "",
        "version: v1",
        "{}",
        "# nothing\n",
        "---\n",
        "version:\nflags:\nsharing: {}",
        r#"{"version":""}"#,
    ] {
        assert_eq!(parse(text), ConfigFile::default(), "{text}");
    }
    let (config, warnings) = resolve("");
    assert_eq!(config.mig_strategy, MigStrategy::None);
    assert_eq!(
        (config.nvidia_driver_root.as_str(), config.nvidia_dev_root.as_str()),
        ("/", "/")
    );
    assert_eq!(config.gfd.sleep_interval.to_string(), "1m0s");
    assert_eq!(config.plugin.device_list_strategy, [DeviceListStrategy::EnvVar]);
    assert!(config.fail_on_init_error && config.use_node_feature_api && warnings.is_empty());
}

#[test]
fn every_setting_of_the_file_is_read() {
    let text = r#"{"version": "v1", "flags": {
        "migStrategy": "single", "failOnInitError": false, "mpsRoot": "/m", "nvidiaDriverRoot": "/d",
        "nvidiaDevRoot": "/v", "gdrcopyEnabled": true, "gdsEnabled": true, "mofedEnabled": true, "useNodeFeatureAPI": false,
        "deviceDiscoveryStrategy": "nvml",
        "plugin": {"passDeviceSpecs": true, "deviceListStrategy": ["envvar", "cdi-cri"], "deviceIDStrategy": "index",
            "cdiAnnotationPrefix": "p/", "nvidiaCTKPath": "/c", "containerDriverRoot": "/r",
            "sharedDevicesAllocationPolicy": "packed"},
        "gfd": {"oneshot": true, "noTimestamp": true, "sleepInterval": "30s", "outputFile": "/o", "machineTypeFile": ""}},
        "imex": {"channelIDs": [0], "required": true}}"#;
    let (config, _) = resolve(text);
    let expected = Config {
        mig_strategy: MigStrategy::Single,
        fail_on_init_error: false,
        mps_root: Some("/m".into()),
        nvidia_driver_root: "/d".into(),
        nvidia_dev_root: "/v".into(),
        gdrcopy_enabled: true,
        gds_enabled: true,
        mofed_enabled: true,
        use_node_feature_api: false,
        device_discovery_strategy: DiscoveryStrategy::Nvml,
        plugin: Plugin {
            pass_device_specs: true,
            device_list_strategy: vec![DeviceListStrategy::EnvVar, DeviceListStrategy::CdiCri],
            device_id_strategy: DeviceIdStrategy::Index,
            cdi_annotation_prefix: "p/".into(),
            nvidia_ctk_path: "/c".into(),
            container_driver_root: "/r".into(),
            shared_devices_allocation_policy: AllocationPolicy::Packed,
        },
        gfd: Gfd {
            oneshot: true,
            no_timestamp: true,
            sleep_interval: "30s".parse().unwrap(),
            output_file: Some("/o".into()),
            machine_type_file: None,
        },
        resources: Resources::default(),
        sharing: Sharing::None,
        imex: Imex {
            channel_ids: vec![0],
            required: true,
        },
    };
    assert_eq!(config, expected);
}

#[test]
fn what_was_read_can_be_written_and_read_again() {
    let text = "
flags: { migStrategy: mixed, gfd: { sleepInterval: infinite, oneshot: false }, plugin: { deviceListStrategy: cdi-cri } }
resources: { gpus: [{ pattern: '*', name: gpu }] }
sharing:
  timeSlicing: { renameByDefault: true, resources: [{ name: gpu, replicas: 2, devices: [0, '0:1'] }] }
  mps: { failRequestsGreaterThanOne: false, resources: [{ name: gpu, replicas: 2, devices: 3 }] }
imex: { channelIDs: [0] }";
    let file = parse(text);
    assert_eq!(parse(&serde_json::to_string(&file).unwrap()), file);
    assert_eq!(
        parse(&serde_json::to_string(&ConfigFile::default()).unwrap()),
        ConfigFile::default()
    );
}

#[test]
fn flags_beat_environment_beats_file_beats_default() {
    let file =
        parse("flags: { migStrategy: mixed, failOnInitError: false, gfd: { oneshot: true, sleepInterval: 5s } }");
    let environment = environment(&[
        ("MIG_STRATEGY", "single"),
        ("GFD_SLEEP_INTERVAL", "7s"),
        ("GFD_ONESHOT", ""),
    ]);
    let environment = Flags::from_environment(Program::FeatureDiscovery, environment).unwrap();
    let line = Flags {
        gfd: GfdFlags {
            sleep_interval: Some("9s".parse().unwrap()),
            ..GfdFlags::default()
        },
        ..Flags::default()
    };
    let (config, _) = Config::resolve(file, line.or(environment), Options::default());
    assert_eq!(config.gfd.sleep_interval.to_string(), "9s");
    assert_eq!(config.mig_strategy, MigStrategy::Single);
    assert!(config.gfd.oneshot && !config.fail_on_init_error);
    assert!(!config.gfd.no_timestamp);
}

#[test]
fn each_program_reads_its_own_variables() {
    let all = environment(&[
        ("MIG_STRATEGY", "single"),
        ("GFD_MIG_STRATEGY", "mixed"),
        ("FAIL_ON_INIT_ERROR", "0"),
        ("GFD_FAIL_ON_INIT_ERROR", "T"),
        ("MPS_ROOT", "/m"),
        ("NVIDIA_DRIVER_ROOT", "/d"),
        ("NVIDIA_DEV_ROOT", "/v"),
        ("GDRCOPY_ENABLED", "true"),
        ("GDS_ENABLED", "1"),
        ("MOFED_ENABLED", "t"),
        ("USE_NODE_FEATURE_API", "false"),
        ("DEVICE_DISCOVERY_STRATEGY", "nvml"),
        ("PASS_DEVICE_SPECS", "TRUE"),
        ("DEVICE_LIST_STRATEGY", "envvar,cdi-annotations"),
        ("DEVICE_ID_STRATEGY", "index"),
        ("CDI_ANNOTATION_PREFIX", "p/"),
        ("NVIDIA_CTK_PATH", "/c"),
        ("CONTAINER_DRIVER_ROOT", "/r"),
        ("SHARED_DEVICES_ALLOCATION_POLICY", "packed"),
        ("GFD_ONESHOT", "true"),
        ("GFD_NO_TIMESTAMP", "true"),
        ("GFD_OUTPUT_FILE", ""),
        ("GFD_MACHINE_TYPE_FILE", "/t"),
        ("IMEX_CHANNEL_IDS", "[0]"),
        ("IMEX_REQUIRED", "true"),
    ]);
    let flags = |program| Flags::from_environment(program, &all).unwrap();
    let mps = flags(Program::MpsDaemon);
    assert_eq!(
        mps,
        Flags {
            mig_strategy: Some(MigStrategy::Single),
            ..Flags::default()
        }
    );
    let gfd = flags(Program::FeatureDiscovery);
    assert_eq!(gfd.mig_strategy, Some(MigStrategy::Mixed));
    assert_eq!(gfd.fail_on_init_error, Some(true));
    assert_eq!(gfd.use_node_feature_api, Some(false));
    assert_eq!(gfd.gfd.output_file.as_deref(), Some(""));
    assert_eq!((gfd.gds_enabled, gfd.nvidia_driver_root), (None, None));
    assert_eq!(gfd.plugin.container_driver_root.as_deref(), Some("/r"));
    let plugin = flags(Program::DevicePlugin);
    assert_eq!(plugin.fail_on_init_error, Some(false));
    assert_eq!(plugin.gfd, GfdFlags::default());
    assert_eq!(plugin.plugin.nvidia_ctk_path.as_deref(), Some("/c"));
    assert_eq!(
        (plugin.imex_channel_ids, plugin.imex_required),
        (Some(vec![0]), Some(true))
    );
    assert_eq!(plugin.use_node_feature_api, None);
}

#[test]
fn a_variable_that_is_not_utf_8_is_named_if_it_is_read() {
    let bytes = |_| Some(OsString::from_vec(b"/drv\xff".to_vec()));
    let only = |wanted: &'static str| move |name| if name == wanted { bytes(name) } else { None };
    for variable in ["NVIDIA_DRIVER_ROOT", "MIG_STRATEGY", "NVIDIA_CTK_PATH"] {
        let error = Flags::from_environment(Program::DevicePlugin, only(variable)).unwrap_err();
        assert_eq!(error.to_string(), format!("{variable}=`/drv\u{fffd}`: it is not UTF-8"));
    }
    let error = Flags::from_environment(Program::FeatureDiscovery, only("GFD_OUTPUT_FILE")).unwrap_err();
    assert!(error.to_string().starts_with("GFD_OUTPUT_FILE="), "{error}");
    let other = Flags::from_environment(Program::MpsDaemon, only("NVIDIA_DRIVER_ROOT")).unwrap();
    assert_eq!(other, Flags::default());
}

#[test]
fn a_variable_that_cannot_be_understood_is_named() {
    #[track_caller]
    fn check(name: &str, value: &str, expected: &str) {
        let error = Flags::from_environment(Program::DevicePlugin, environment(&[(name, value)])).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    check("GDS_ENABLED", "yes", "GDS_ENABLED=`yes`: expected true or false");
    check(
        "DEVICE_LIST_STRATEGY",
        "envvar,foo",
        "DEVICE_LIST_STRATEGY=`envvar,foo`: invalid --device-list-strategy option: invalid strategy: foo (expected envvar, \
         volume-mounts, cdi-annotations, cdi-cri)",
    );
    check(
        "IMEX_CHANNEL_IDS",
        "0,1",
        "IMEX_CHANNEL_IDS=`0,1`: invalid IMEX config: channelIDs must be [] or [0]; found [0 1]",
    );
}

#[test]
fn an_unknown_key_is_an_error_with_line_and_suggestion() {
    check_error("version: v1\nfoo: bar", "`foo` in line 2 is not a known key");
    check_error(
        "sharing:\n  timeSlicing:\n    resources:\n    - name: gpu\n      replicas: 2\n      renam: x",
        "`sharing.timeSlicing.resources[0].renam` in line 6 is not a known key; did you mean `rename`?",
    );
    // The vendor's parser takes any case here …
    assert_eq!(
        parse("FLAGS: { MigStrategy: mixed }").flags.mig_strategy,
        Some(MigStrategy::Mixed)
    );
    // … and not there.
    check_error(&sharing("mps", "{ Name: gpu, replicas: 2 }"), "did you mean `name`?");
}

#[test]
fn a_lenient_reading_says_what_it_passes_over() {
    let text = "foo: bar\nflags: { migStrategie: mixed, failOnInitError: true, failOnInitError: false }";
    assert!(matches!(
        ConfigFile::parse(text, Reading::Strict),
        Err(Error::Syntax { .. })
    ));
    let (file, warnings) = ConfigFile::parse(text, Reading::Lenient).unwrap();
    assert_eq!(file.flags.fail_on_init_error, Some(false));
    let warnings: Vec<_> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "`foo` in line 1 is not a known key; it has no effect",
            "`flags.migStrategie` in line 2 is not a known key; did you mean `migStrategy`?; it has no effect",
        ]
    );
}

#[test]
fn values_that_do_not_fit_are_errors_in_the_vendors_words() {
    let check_entry = |entry: &str, expected: &str| {
        check_error(&sharing("timeSlicing", entry), expected);
        check_error(&sharing("mps", entry), expected);
    };
    check_error("version: v2", "unknown version: v2");
    check_error("version: 1", "unknown version: 1");
    check_error("[]", "`the document` in line 1: expected keys and values");
    check_error("a: b: c", "the configuration is not YAML");
    check_error("flags: { migStrategy: foo }", "unknown MIG strategy: foo");
    check_error(
        "flags: { failOnInitError: 3 }",
        "`flags.failOnInitError` in line 1: expected true or false",
    );
    check_error("flags: { gfd: { sleepInterval: soon } }", "`soon` is not an interval");
    check_error(
        "flags: { plugin: { deviceListStrategy: 3 } }",
        "invalid deviceListStrategy: ",
    );
    check_error(
        "flags: { plugin: { deviceListStrategy: [foo] } }",
        "invalid strategy: foo",
    );
    check_error(
        "flags: { plugin: { deviceListStrategy: [] } }",
        "`flags.plugin.deviceListStrategy` in line 1: invalid deviceListStrategy: without a strategy",
    );
    check_error(
        "flags: { plugin: { deviceIDStrategy: foo } }",
        "invalid --device-id-strategy option: foo",
    );
    check_error("sharing: { timeSlicing: null }", "no resources specified");
    check_error("sharing: { timeSlicing: {} }", "no resources specified");
    check_error("sharing: { mps: { resources: [] } }", "no resources specified");
    assert_eq!(parse("sharing: { mps: null }"), ConfigFile::default());
    check_entry("{ replicas: 2 }", "no resource name specified");
    check_entry("{ name: gpu }", "no replicas specified");
    check_entry("{ name: gpu, replicas: 1 }", "number of replicas must be >= 2");
    check_entry("{ name: gpu, replicas: '2' }", "expected a whole number");
    check_entry("{ name: GPU, replicas: 2 }", "incorrect format for resource name 'GPU'");
    check_entry(
        "{ name: gpu, replicas: 2, devices: some }",
        "devices set as 'some' but the only valid string input is 'all'",
    );
    check_entry(
        "{ name: gpu, replicas: 2, devices: 0 }",
        "devices set as '0' but a count of devices must be > 0",
    );
    check_entry(
        "{ name: gpu, replicas: 2, devices: 2.0 }",
        "unrecognized type for devices spec",
    );
    check_entry(
        "{ name: gpu, replicas: 2, devices: {} }",
        "unrecognized type for devices spec",
    );
    check_entry(
        "{ name: gpu, replicas: 2, devices: [-1] }",
        "unsupported type for device in devices list",
    );
    check_entry(
        "{ name: gpu, replicas: 2, devices: [GPU-x] }",
        "unsupported type for device in devices list: `GPU-x`",
    );
    check_error(
        "imex: { channelIDs: [0, 1] }",
        "`imex.channelIDs` in line 1: invalid IMEX config: channelIDs must be [] or [0]; found [0 1]",
    );
    check_error(
        "resources: { gpus: [{ pattern: x }] }",
        "`resources.gpus[0]` in line 1: no resource name specified",
    );
}

#[test]
fn what_is_no_yaml_is_said_in_words_for_who_wrote_it() {
    #[track_caller]
    fn check(text: &str, expected: &str) {
        let error = ConfigFile::parse(text, Reading::Strict).unwrap_err();
        assert_eq!(error.to_string(), format!("the configuration is not YAML: {expected}"));
    }
    check("flags: {}\nflags: {}", "line 2: the key `flags` is there twice");
    check("flags: {}\n---\nflags: {}", "line 3: there is more than one document");
    check(
        "flags: *common",
        "line 1: an alias (`*name`) names no anchor (`&name`) before it",
    );
    check("flags: { migStrategy: .inf }", "line 1: `.inf` is no finite number");
    check("? [flags]\n: {}", "line 1: a key or a value cannot be understood");
    check(
        "flags:\n  <<: 3",
        "line 2: what `<<` merges is neither keys with values nor a list of such",
    );
    check(
        &"[".repeat(1000),
        "line 1: it is too large or too deep, or its aliases repeat too much",
    );
    check(&" ".repeat((1 << 20) + 1), "it is longer than 1 MiB");
}

#[test]
fn a_text_that_stands_for_far_more_is_refused_at_once() {
    let line = |n: usize| {
        let ten = vec![format!("*a{}", n - 1); 10].join(", ");
        format!("a{n}: &a{n} [{ten}]\n")
    };
    let laughs = (1..10).map(line).collect::<Vec<_>>().concat();
    let laughs = format!("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n{laughs}");
    let nested = format!("- {}{}\n", "&x [".repeat(60), "]".repeat(60)).repeat(500);
    let merged = format!("a: &a {{ b: c }}\nd:\n{}", "- <<: *a\n".repeat(90_000));
    let many = "- a\n".repeat(200_000);
    for text in [laughs, nested, merged, many] {
        for reading in [Reading::Strict, Reading::Lenient] {
            let error = ConfigFile::parse(&text, reading).unwrap_err().to_string();
            assert!(error.ends_with("its aliases repeat too much"), "{error}");
        }
    }
}

#[test]
fn devices_that_are_shared_twice_are_told() {
    #[track_caller]
    fn check(entries: &str, naming: bool, expected: &[&str]) {
        let text = format!("sharing:\n  timeSlicing:\n    resources:{entries}");
        let (file, read) = ConfigFile::parse(&text, Reading::Strict).unwrap();
        let (_, resolved) = Config::resolve(file, Flags::default(), Options { naming });
        let warnings = read.iter().chain(&resolved).map(ToString::to_string);
        let warnings: Vec<_> = warnings.filter(|warning| warning.contains("has no effect")).collect();
        assert_eq!(warnings, expected);
    }
    let warning = |place: &str| {
        format!(
            "`sharing.timeSlicing.resources[1]`{place} shares devices of `nvidia.com/gpu` that an entry before it shares: for those it has no effect"
        )
    };
    let twice = "\n    - { name: gpu, replicas: 2 }\n    - { name: nvidia.com/gpu, replicas: 4 }";
    for naming in [false, true] {
        check(twice, naming, &[&warning(" in line 5")]);
        check(
            "\n    - { name: gpu, replicas: 2 }\n    - { name: mig-1g.5gb, replicas: 4 }",
            naming,
            &[],
        );
    }
    let rest = "\n    - { name: gpu, replicas: 2, devices: [0] }\n    - { name: gpu, replicas: 4 }";
    check(rest, true, &[]);
    check(rest, false, &[&warning("")]);
    let overlap = "\n    - { name: gpu, replicas: 2, devices: [0, 1] }\n    - { name: gpu, replicas: 4, devices: [1] }";
    check(overlap, true, &[&warning(" in line 5")]);
}

#[test]
fn intervals_are_durations_or_nanoseconds() {
    let interval = |text: &str| {
        parse(&format!("flags: {{ gfd: {{ sleepInterval: {text} }} }}"))
            .flags
            .gfd
            .sleep_interval
    };
    assert_eq!(interval("5s").unwrap().to_string(), "5s");
    assert_eq!(interval("5000000000").unwrap().to_string(), "5s");
    assert_eq!(interval("infinite"), Some(Interval::Infinite));
}

#[test]
fn naming_is_ignored_with_the_vendors_warnings_unless_opted_in() {
    let text = "
resources: { gpus: [{ pattern: '*H100*', name: h100 }] }
sharing:
  timeSlicing: { resources: [{ name: gpu, rename: few, replicas: 2, devices: [0, 1] }] }";
    let (config, warnings) = resolve(text);
    let Sharing::TimeSlicing(shared) = &config.sharing else {
        panic!("{config:?}")
    };
    assert_eq!(
        (&shared.resources[0].rename, &shared.resources[0].devices),
        (&None, &DeviceSelector::All)
    );
    assert_eq!(config.gpu_resource("NVIDIA H100"), ResourceName::gpu());
    assert_eq!(
        warnings,
        [
            "Customizing the 'resources' field is not yet supported in the config. Ignoring...",
            "Setting the 'rename' field in sharing.timeSlicing.resources is not yet supported in the config. Ignoring...",
            "Customizing the 'devices' field in sharing.timeSlicing.resources is not yet supported in the config. Ignoring...",
        ]
    );
    let (config, warnings) = Config::resolve(parse(text), Flags::default(), Options { naming: true });
    assert_eq!(warnings, []);
    assert_eq!(config.gpu_resource("NVIDIA H100").as_str(), "nvidia.com/h100");
    assert_eq!(config.gpu_resource("NVIDIA A100"), ResourceName::gpu());
    let resource = config.sharing.resource(&ResourceName::gpu()).unwrap();
    assert_eq!(resource.rename.as_ref().unwrap().as_str(), "nvidia.com/few");
    assert!(matches!(&resource.devices, DeviceSelector::List(list) if list.len() == 2));
}

#[test]
fn replicas_are_renamed_by_default_where_that_is_asked_for() {
    let check = |rename: &str, expected: &[String]| {
        let text = format!(
            "sharing: {{ mps: {{ renameByDefault: true, resources: [{{ name: gpu, replicas: 2{rename} }}] }} }}"
        );
        let (config, warnings) = resolve(&text);
        let resource = config.sharing.resource(&ResourceName::gpu()).unwrap();
        assert_eq!(resource.rename.as_ref().unwrap().as_str(), "nvidia.com/gpu.shared");
        assert_eq!(warnings, expected);
    };
    check("", &[]);
    check(", rename: gpu.shared", &[]);
    check(
        ", rename: few",
        &[Warning::RenameIgnored { section: "mps" }.to_string()],
    );
}

#[test]
fn mps_wins_over_time_slicing_and_refuses_larger_requests_by_default() {
    let text = "
sharing:
  timeSlicing: { resources: [{ name: gpu, replicas: 2 }] }
  mps: { resources: [{ name: gpu, replicas: 4 }] }";
    let (config, warnings) = resolve(text);
    assert!(matches!(&config.sharing, Sharing::Mps(shared) if shared.fail_requests_greater_than_one));
    assert_eq!(warnings.len(), 1);
    let (config, _) =
        resolve("sharing: { mps: { failRequestsGreaterThanOne: false, resources: [{ name: gpu, replicas: 4 }] } }");
    assert!(matches!(&config.sharing, Sharing::Mps(shared) if !shared.fail_requests_greater_than_one));
    let (config, _) = resolve(&sharing("timeSlicing", "{ name: gpu, replicas: 4 }"));
    assert!(matches!(&config.sharing, Sharing::TimeSlicing(shared) if !shared.fail_requests_greater_than_one));
}

#[test]
fn each_program_refuses_what_it_cannot_do() {
    #[track_caller]
    fn check(text: &str, program: Program, expected: Option<&str>) {
        let error = resolve(text).0.check(program).err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), expected);
    }
    let mps = sharing("mps", "{ name: gpu, replicas: 2 }");
    let no_root = "using MPS requires --mps-root to be specified";
    check(&mps, Program::DevicePlugin, Some(no_root));
    check(&mps, Program::FeatureDiscovery, None);
    check(&format!("{mps}flags: {{ mpsRoot: /m }}"), Program::DevicePlugin, None);
    check(&mps, Program::MpsDaemon, None);
    for program in [Program::DevicePlugin, Program::MpsDaemon] {
        check(
            &format!("{mps}flags: {{ mpsRoot: /m, migStrategy: mixed }}"),
            program,
            Some("using --mig-strategy=mixed is not supported with MPS"),
        );
    }
    check("flags: { migStrategy: mixed }", Program::MpsDaemon, None);
    let vfio = "flags: { deviceDiscoveryStrategy: vfio }";
    check(vfio, Program::FeatureDiscovery, None);
    check(
        vfio,
        Program::DevicePlugin,
        Some("invalid --device-discovery-strategy option: vfio (expected auto, nvml, tegra)"),
    );
    for path in ["", "nvidia-ctk", "./hook"] {
        let text = format!("flags: {{ plugin: {{ nvidiaCTKPath: '{path}' }} }}");
        let error = format!(
            "the hook program `{path}` is not an absolute path (--nvidia-cdi-hook-path, NVIDIA_CDI_HOOK_PATH, \
             NVIDIA_CTK_PATH or flags.plugin.nvidiaCTKPath)"
        );
        check(&text, Program::DevicePlugin, Some(&error));
        check(&text, Program::FeatureDiscovery, None);
    }
    check(
        "flags: { plugin: { cdiAnnotationPrefix: '' } }",
        Program::DevicePlugin,
        Some(
            "the prefix `` of CDI annotations is empty (--cdi-annotation-prefix, CDI_ANNOTATION_PREFIX or \
             flags.plugin.cdiAnnotationPrefix)",
        ),
    );
    // What a runtime is told to look for is for whoever configures it to say.
    let plugin = "flags: { plugin: { cdiAnnotationPrefix: nvidia.cdi.k8s.io/, nvidiaCTKPath: /usr/local/nvidia/toolkit/nvidia-cdi-hook } }";
    check(plugin, Program::DevicePlugin, None);
}

#[test]
fn mig_devices_have_the_resource_of_their_strategy() {
    #[track_caller]
    fn check(text: &str, profile: &str, expected: Option<&str>) {
        let (config, _) = Config::resolve(parse(text), Flags::default(), Options { naming: true });
        let resource = config.mig_resource(profile).unwrap();
        assert_eq!(resource.as_ref().map(ResourceName::as_str), expected);
    }
    check("", "1g.5gb", None);
    check("flags: { migStrategy: single }", "1g.5gb", Some("nvidia.com/gpu"));
    check(
        "flags: { migStrategy: mixed }",
        "1g.5gb+me",
        Some("nvidia.com/mig-1g.5gb.me"),
    );
    let rules = "flags: { migStrategy: mixed }\nresources: { mig: [{ pattern: '1g.*', name: small }] }";
    check(rules, "1g.5gb", Some("nvidia.com/small"));
    check(rules, "2g.10gb", Some("nvidia.com/mig-2g.10gb"));
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "(version|flags|sharing|mps|resources|name|[-:{}\\[\\], \n\"'&*!|>]){0,30}") {
        for reading in [Reading::Strict, Reading::Lenient] {
            if let Err(error) = ConfigFile::parse(&text, reading) {
                let error = error.to_string();
                for word in ["Option", "Policy", "String", "struct", "enum", "serde", "deserialize", "::", "budget", "from_"] {
                    prop_assert!(!error.contains(word), "{error}");
                }
            }
        }
    }
}
