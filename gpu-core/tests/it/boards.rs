//! What sets kinds of boards and nodes apart.

use gpu_core::{CommonAncestor, FabricState, Inventory, NvLinkRemote};
use gpu_sim::NodeSpec;

use crate::Simulated;

fn inventory(spec: &NodeSpec) -> Inventory {
    let simulated = Simulated::exactly(spec);
    let inventory = simulated.library().inventory(&simulated.node.root());
    let inventory = inventory.expect("the node is read");
    assert_eq!(inventory.problems, []);
    inventory
}

fn profiles(inventory: &Inventory) -> Vec<String> {
    let mig = inventory.gpus[0].mig.as_ref().expect("the board has MIG");
    mig.profiles.iter().map(|profile| profile.name.to_string()).collect()
}

#[test]
fn a_compute_tray_is_in_a_fabric() {
    let inventory = inventory(&NodeSpec::new("gb200-nvl72"));
    for gpu in &inventory.gpus {
        let fabric = gpu.fabric.as_ref().unwrap();
        assert_eq!((fabric.state, fabric.error), (FabricState::Completed, None));
        assert!(fabric.clique.is_some() && fabric.cluster_uuid.is_some(), "{fabric:?}");
        assert!(
            gpu.nvlinks
                .iter()
                .all(|link| link.active && link.remote == Some(NvLinkRemote::Switch))
        );
        assert!(!gpu.nvlinks.is_empty());
    }
}

#[test]
fn gpus_on_one_switch_board_are_related_in_pairs() {
    let inventory = inventory(&NodeSpec::new("h100").gpus(4));
    let pairs: Vec<_> = inventory.topology.iter().map(|pair| pair.gpus).collect();
    assert_eq!(pairs, [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]);
    assert!(inventory.topology.iter().all(|pair| pair.common_ancestor.is_some()));
    assert_eq!(inventory.pair(3, 1).unwrap().gpus, [1, 3]);
    let link = &inventory.gpus[0].nvlinks[0];
    assert_eq!(
        (link.remote, link.remote_pci.is_some()),
        (Some(NvLinkRemote::Switch), true)
    );
}

#[test]
fn bridged_pairs_are_linked_to_each_other() {
    let inventory = inventory(&NodeSpec::new("pcie-pairs"));
    for gpu in &inventory.gpus {
        let peers: Vec<_> = gpu.nvlinks.iter().filter_map(|link| link.remote_pci).collect();
        assert!(
            !peers.is_empty() && peers.windows(2).all(|pair| pair[0] == pair[1]),
            "{peers:?}"
        );
        let peer = inventory
            .gpus
            .iter()
            .find(|other| other.pci.address == peers[0])
            .unwrap();
        assert_ne!(peer.index, gpu.index);
        assert!(gpu.nvlinks.iter().all(|link| link.remote == Some(NvLinkRemote::Gpu)));
    }
    let ancestors = inventory.topology.iter().filter_map(|pair| pair.common_ancestor);
    assert!(ancestors.clone().any(|ancestor| ancestor == CommonAncestor::System));
    assert!(ancestors.clone().any(|ancestor| ancestor < CommonAncestor::System));
}

#[test]
fn a_gpu_that_shares_the_machines_memory_has_none_of_its_own() {
    let inventory = inventory(&NodeSpec::new("gb10"));
    assert_eq!(inventory.gpus[0].memory, None);
}

#[test]
fn a_board_without_mig_has_none() {
    for profile in ["t4", "l4", "rtx-4090"] {
        assert_eq!(
            inventory(&NodeSpec::new(profile).gpus(1)).gpus[0].mig,
            None,
            "{profile}"
        );
    }
}

#[test]
fn profiles_that_draw_or_lack_engines_are_named_for_it() {
    let names = profiles(&inventory(&NodeSpec::new("rtx-pro-6000").gpus(1)));
    for name in [
        "1g.24gb",
        "1g.24gb+gfx",
        "1g.24gb-me",
        "1g.24gb+me.all",
        "2g.48gb",
        "4g.96gb+gfx",
    ] {
        assert!(names.iter().any(|known| known == name), "{name} in {names:?}");
    }
}

#[test]
fn a_board_of_other_memory_has_other_names() {
    let names = profiles(&inventory(&NodeSpec::new("a30").gpus(1)));
    assert_eq!(names[..3], ["1g.6gb", "2g.12gb", "4g.24gb"]);
}

#[test]
fn gpus_reach_each_others_memory_over_nvlink_or_within_a_numa_node() {
    use gpu_core::P2pStatus::{NotSupported, Ok};
    let switched = inventory(&NodeSpec::new("h100"));
    for pair in &switched.topology {
        let ways = [pair.p2p_read, pair.p2p_write, pair.p2p_nvlink];
        assert_eq!(ways, [Some(Ok); 3], "{:?}", pair.gpus);
    }
    let bridged = inventory(&NodeSpec::new("pcie-pairs"));
    for pair in &bridged.topology {
        let [one, other] = pair.gpus.map(|index| &bridged.gpus[index as usize]);
        let linked = one.nvlinks[0].remote_pci == Some(other.pci.address);
        let near = one.numa_node == other.numa_node;
        let status = |reached| Some(if reached { Ok } else { NotSupported });
        let expected = [status(linked || near), status(linked || near), status(linked)];
        assert_eq!(
            [pair.p2p_read, pair.p2p_write, pair.p2p_nvlink],
            expected,
            "{:?}",
            pair.gpus
        );
    }
    assert!(bridged.topology.iter().any(|pair| pair.p2p_read == Some(NotSupported)));
}
