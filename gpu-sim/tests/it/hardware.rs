use std::collections::BTreeSet;

use gpu_sim::NodeSpec;
use nvml_wrapper::error::NvmlError;

use crate::Simulated;

/// UUID, serial number, PCI address and minor number.
type Identity = (String, String, String, u32);

/// Every GPU by index, as NVML tells them.
fn identities(node: &Simulated) -> Vec<Identity> {
    let nvml = node.nvml();
    let identity = |index| {
        let gpu = nvml.device_by_index(index)?;
        Ok((gpu.uuid()?, gpu.serial()?, gpu.pci_info()?.bus_id, gpu.minor_number()?))
    };
    let all = || {
        (0..nvml.device_count()?)
            .map(identity)
            .collect::<Result<_, NvmlError>>()
    };
    all().expect("every GPU answers")
}

#[test]
fn the_same_seed_gives_the_same_hardware_and_another_seed_other_hardware() {
    let of_seed = |seed| {
        identities(&Simulated::new(
            &NodeSpec::new("h100").gpus(4).seed(seed).permute_pci(true),
        ))
    };
    let first = of_seed(1);
    assert_eq!(first, of_seed(1));
    let uuids = |of: &[Identity]| of.iter().map(|gpu| gpu.0.clone()).collect::<BTreeSet<_>>();
    assert!(uuids(&first).is_disjoint(&uuids(&of_seed(2))));
    assert_eq!(uuids(&first).len(), 4);
}

#[test]
fn with_permuted_pci_addresses_indices_follow_the_bus_and_minors_do_not() {
    let plain = identities(&Simulated::new(&NodeSpec::new("h100").seed(1)));
    let permuted = identities(&Simulated::new(&NodeSpec::new("h100").seed(1).permute_pci(true)));
    assert!(permuted.is_sorted_by_key(|gpu| gpu.2.clone()));
    assert!(!permuted.is_sorted_by_key(|gpu| gpu.3));
    // The same boards with the same device nodes, in other places.
    let board = |gpu: &Identity| (gpu.0.clone(), gpu.1.clone(), gpu.3);
    assert_eq!(
        plain.iter().map(board).collect::<BTreeSet<_>>(),
        permuted.iter().map(board).collect()
    );
}

#[test]
fn two_nodes_in_one_process_are_separate() {
    let (a, b) = (
        Simulated::new(&NodeSpec::new("h100").seed(1)),
        Simulated::new(&NodeSpec::new("h200").gpus(2).seed(2)),
    );
    let (nvml_a, nvml_b) = (a.nvml(), b.nvml());
    assert_eq!((nvml_a.device_count().unwrap(), nvml_b.device_count().unwrap()), (8, 2));
    a.node.lose(0).unwrap();
    assert!(nvml_a.device_by_index(0).is_err());
    assert_eq!(nvml_b.device_by_index(0).unwrap().name().unwrap(), "NVIDIA H200");
}

#[test]
fn the_file_tree_tells_of_the_same_gpus_as_nvml() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(3).seed(4).permute_pci(true));
    let nvml = node.nvml();
    let root = node.node.root();
    for index in 0..3 {
        let gpu = nvml.device_by_index(index).unwrap();
        let pci = gpu.pci_info().unwrap();
        let address = pci.bus_id[4..].to_lowercase();
        let information =
            std::fs::read_to_string(root.join(format!("proc/driver/nvidia/gpus/{address}/information"))).unwrap();
        assert!(information.contains(&gpu.uuid().unwrap()), "{information}");
        let minor = gpu.minor_number().unwrap();
        assert!(
            information.contains(&format!("Device Minor: \t {minor}\n")),
            "{information}"
        );
        assert!(root.join(format!("dev/nvidia{minor}")).exists());
        let device = root.join(format!("sys/bus/pci/devices/{address}"));
        let read = |name: &str| std::fs::read_to_string(device.join(name)).unwrap();
        assert_eq!(
            (read("vendor").as_str(), read("device").as_str()),
            ("0x10de\n", "0x2330\n")
        );
        let config = std::fs::read(device.join("config")).unwrap();
        assert_eq!((config.len(), &config[..4]), (256, &[0xde, 0x10, 0x30, 0x23][..]));
        assert!(
            device
                .join("driver")
                .canonicalize()
                .unwrap()
                .ends_with("sys/bus/pci/drivers/nvidia")
        );
        assert!(device.join("iommu_group/devices").join(&address).exists());
    }
}
