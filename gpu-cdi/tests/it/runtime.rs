use gpu_cdi::{ContainerEdits, DeviceNode, Hook, HookStage, Mount, runtime::inject};
use serde_json::{Value, json};

fn edits(value: Value) -> ContainerEdits {
    serde_json::from_value(value).expect("edits")
}

/// A container as containerd makes it, with a part that no version of OCI has.
fn container() -> Value {
    json!({
        "ociVersion": "1.1.0",
        "process": {
            "cwd": "/", "args": ["sh"], "user": { "uid": 1000, "gid": 0 },
            "env": ["PATH=/bin", "NVIDIA_VISIBLE_DEVICES=0", "LAST=1"],
        },
        "root": { "path": "rootfs" },
        "mounts": [
            { "destination": "/proc", "type": "proc", "source": "proc" },
            { "destination": "/etc/resolv.conf", "type": "bind", "source": "/x", "options": ["rbind"] },
            { "destination": "/usr/lib", "type": "bind", "source": "/y" },
        ],
        "linux": {
            "resources": { "devices": [{ "allow": false, "access": "rwm" }] },
            "namespaces": [{ "type": "mount" }],
        },
        "future": { "kept": [1, 2.5, 18_446_744_073_709_551_615_u64] },
    })
}

#[test]
fn edits_are_made_as_the_cdi_library_does() {
    let spec = edits(json!({
        "env": ["NVIDIA_VISIBLE_DEVICES=void", "NEW=a=b"],
        "deviceNodes": [
            { "path": "/dev/nvidia0", "hostPath": "/nowhere", "type": "c", "major": 195, "fileMode": 438 },
            { "path": "/dev/null0", "hostPath": "/dev/null", "permissions": "rw", "gid": 44 },
        ],
        "netDevices": [{ "hostInterfaceName": "eth7", "name": "eth0" }],
        "mounts": [
            { "hostPath": "/d/usr/lib/libcuda.so.1", "containerPath": "/usr/lib/libcuda.so.1", "options": ["ro", "rbind"] },
            { "hostPath": "/d/usr/lib", "containerPath": "/usr/lib", "type": "bind" },
        ],
        "hooks": [{ "hookName": "createContainer", "path": "/hook", "args": ["hook", "x"], "env": ["A=b"], "timeout": 5 }],
        "intelRdt": { "closID": "gold", "l3CacheSchema": "L3:0=f" },
        "additionalGids": [0, 44],
    }));
    let mut config = container();
    inject(&mut config, &[&spec, &spec]).expect("a container");

    assert_eq!(
        config["process"]["env"],
        json!(["PATH=/bin", "NVIDIA_VISIBLE_DEVICES=void", "LAST=1", "NEW=a=b"])
    );
    assert_eq!(
        config["linux"]["devices"],
        json!([
            { "path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0, "fileMode": 438, "uid": 1000 },
            { "path": "/dev/null0", "type": "c", "major": 1, "minor": 3, "uid": 1000, "gid": 44 },
        ])
    );
    assert_eq!(
        config["linux"]["resources"]["devices"],
        json!([
            { "allow": false, "access": "rwm" },
            { "allow": true, "type": "c", "major": 195, "minor": 0, "access": "rwm" },
            { "allow": true, "type": "c", "major": 1, "minor": 3, "access": "rw" },
        ])
    );
    let mounts = config["mounts"].as_array().expect("mounts").iter();
    let mounts: Vec<_> = mounts
        .map(|mount| (mount["destination"].as_str(), mount["source"].as_str()))
        .collect();
    assert_eq!(
        mounts,
        [
            (Some("/proc"), Some("proc")),
            (Some("/etc/resolv.conf"), Some("/x")),
            (Some("/usr/lib"), Some("/d/usr/lib")),
            (Some("/usr/lib/libcuda.so.1"), Some("/d/usr/lib/libcuda.so.1")),
        ]
    );
    let hook = json!({ "path": "/hook", "args": ["hook", "x"], "env": ["A=b"], "timeout": 5 });
    assert_eq!(config["hooks"], json!({ "createContainer": [hook] }));
    assert_eq!(config["linux"]["netDevices"], json!({ "eth7": { "name": "eth0" } }));
    assert_eq!(
        config["linux"]["intelRdt"],
        json!({ "closID": "gold", "l3CacheSchema": "L3:0=f" })
    );
    assert_eq!(config["process"]["user"]["additionalGids"], json!([44]));
    assert_eq!(config["future"], container()["future"], "what nobody knows stays");

    // What came out is still what OCI says a configuration is.
    let oci: oci_spec::runtime::Spec = serde_json::from_value(config).expect("an OCI configuration");
    let devices = oci
        .linux()
        .as_ref()
        .and_then(|linux| linux.devices().as_ref())
        .expect("devices");
    assert_eq!((devices[0].major(), devices[1].minor()), (195, 3));
}

#[test]
fn a_configuration_with_nothing_in_it_gets_all_that_is_needed() {
    let spec = ContainerEdits {
        env: vec!["A=b".to_owned()],
        device_nodes: vec![DeviceNode {
            path: "/dev/null".to_owned(),
            ..DeviceNode::default()
        }],
        hooks: vec![Hook {
            hook_name: HookStage::Poststop,
            path: "/hook".to_owned(),
            args: vec![],
            env: vec![],
            timeout: None,
        }],
        mounts: vec![Mount {
            host_path: "/a".to_owned(),
            container_path: "/b".to_owned(),
            ..Mount::default()
        }],
        ..ContainerEdits::default()
    };
    let mut config = json!({ "mounts": null });
    inject(&mut config, &[&spec]).expect("a container");
    assert_eq!(
        config,
        json!({
            "process": { "env": ["A=b"] },
            "linux": {
                "devices": [{ "path": "/dev/null", "type": "c", "major": 1, "minor": 3 }],
                "resources": { "devices": [{ "allow": true, "type": "c", "major": 1, "minor": 3, "access": "rwm" }] },
            },
            "mounts": [{ "destination": "/b", "source": "/a" }],
            "hooks": { "poststop": [{ "path": "/hook" }] },
        })
    );
}

#[test]
fn a_node_that_is_not_what_the_spec_says_is_an_error() {
    #[track_caller]
    fn check(node: &Value, expected: &str) {
        let spec = edits(json!({ "deviceNodes": [node] }));
        let error = inject(&mut container(), &[&spec]).expect_err("no container");
        assert_eq!(error.to_string(), expected);
    }
    check(
        &json!({ "path": "/dev/x", "hostPath": "/nonexistent" }),
        "cannot find the device node `/nonexistent`",
    );
    check(
        &json!({ "path": "/dev/x", "hostPath": "/etc" }),
        "cannot find the device node `/etc`",
    );
    check(
        &json!({ "path": "/dev/null", "type": "b" }),
        "`/dev/null` is not a device of type `b`",
    );
}

#[test]
fn a_configuration_that_is_none_is_an_error() {
    let spec = edits(json!({ "env": ["A=b"] }));
    for config in [
        json!([]),
        json!({ "process": [] }),
        json!({ "process": { "env": "A=b" } }),
    ] {
        let error = inject(&mut config.clone(), &[&spec]).expect_err("no container");
        assert!(
            error
                .to_string()
                .starts_with("`process.env` of the container's configuration is not"),
            "{error}"
        );
    }
}
