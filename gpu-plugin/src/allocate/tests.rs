use super::*;

fn gpu(n: u32) -> OfferedDevice {
    let uuid = format!("GPU-00000000-0000-4000-8000-{n:012}");
    OfferedDevice {
        index: n.to_string(),
        gpu: uuid.parse().ok(),
        uuid,
        node: Some(format!("/dev/nvidia{}", 7 - n)),
        instance: None,
        numa_node: None,
        replicas: None,
    }
}

/// What two GPUs are answered, the first asked for twice, with everything besides that there is.
fn answer(lists: &[DeviceListStrategy], ids: DeviceIdStrategy, nodes: bool) -> ContainerAllocateResponse {
    let answers = Answers {
        lists: lists.to_vec(),
        ids,
        annotation_prefix: "cdi.k8s.io/".to_owned(),
        gates: vec![names::GDS],
        companions: vec!["k8s.device-plugin.nvidia.com/gds=all".to_owned()],
        imex_channels: vec![0],
        nodes: nodes.then(|| NodePaths {
            host_root: "/run/nvidia/driver/".to_owned(),
            control: vec!["/dev/nvidiactl".to_owned()],
            ..NodePaths::default()
        }),
    };
    answers.answer(&[&gpu(1), &gpu(0), &gpu(1)], || "nonce".to_owned())
}

use DeviceIdStrategy::{Index, Uuid};
use DeviceListStrategy::{CdiAnnotations, CdiCri, EnvVar, VolumeMounts};

#[test]
fn each_strategy_tells_devices_its_own_way() {
    let env = answer(&[EnvVar], Index, false);
    assert_eq!(env.envs[names::VISIBLE_DEVICES], "1,0");
    assert_eq!(
        (&*env.envs[names::IMEX_CHANNELS], &*env.envs[names::GDS]),
        ("0", "enabled")
    );
    assert!(env.cdi_devices.is_empty() && env.mounts.is_empty() && env.annotations.is_empty());

    let mounts = answer(&[VolumeMounts], Index, false);
    let paths: Vec<_> = mounts
        .mounts
        .iter()
        .map(|mount| mount.container_path.as_str())
        .collect();
    let folder = names::DEVICES_FOLDER;
    assert_eq!(paths, ["1", "0", "imex/0"].map(|name| format!("{folder}/{name}")));
    assert_eq!(mounts.envs[names::VISIBLE_DEVICES], folder);

    let cdi = answer(&[CdiCri], Index, false);
    let told: Vec<_> = cdi.cdi_devices.iter().map(|device| device.name.as_str()).collect();
    let kind = names::CDI_KIND;
    let expected = [
        format!("{kind}=1"),
        format!("{kind}=0"),
        format!("{}=0", names::IMEX_CDI_KIND),
        "k8s.device-plugin.nvidia.com/gds=all".to_owned(),
    ];
    assert_eq!(told, expected);
    assert_eq!(cdi.envs.keys().collect::<Vec<_>>(), [names::GDS]);

    let annotations = answer(&[CdiAnnotations], Index, false).annotations;
    assert_eq!(annotations["cdi.k8s.io/nvidia-device-plugin_nonce"], expected.join(","));
}

#[test]
fn strategies_add_up_and_mounts_have_the_last_word_on_the_variable() {
    let all = answer(&[EnvVar, VolumeMounts, CdiAnnotations, CdiCri], Uuid, false);
    assert_eq!(all.envs[names::VISIBLE_DEVICES], names::DEVICES_FOLDER);
    assert_eq!(
        (all.mounts.len(), all.cdi_devices.len(), all.annotations.len()),
        (3, 4, 1)
    );
    assert_eq!(all.cdi_devices[0].name, format!("{}={}", names::CDI_KIND, gpu(1).uuid));
}

#[test]
fn nodes_are_listed_once_and_not_beside_cdi_alone() {
    let listed = answer(&[EnvVar], Uuid, true).devices;
    let hosts: Vec<_> = listed.iter().map(|spec| spec.host_path.as_str()).collect();
    let expected = [
        "/dev/nvidiactl",
        "/dev/nvidia6",
        "/dev/nvidia7",
        "/dev/nvidia-caps-imex-channels/channel0",
    ];
    assert_eq!(hosts, expected.map(|path| format!("/run/nvidia/driver{path}")));
    assert!(answer(&[CdiCri], Uuid, true).devices.is_empty());
    assert_eq!(answer(&[CdiCri, VolumeMounts], Uuid, true).devices.len(), 4);
}
