//! `nvidia-smi -q -x`.

use gpu_sim::{Load, NodeSpec};

use super::smi;
use crate::Simulated;

/// What the real one printed for the same board, idle.
const H200: &str = include_str!("../../upstream/nvidia-smi-580.159.04/query.xml");

/// Elements that are of the moment or of the one board.
const VARIES: [&str; 9] = [
    "timestamp",
    "serial",
    "uuid",
    "pdi",
    "gpu_temp_tlimit",
    "average_power_draw",
    "instant_power_draw",
    "graphics_clock",
    "sm_clock",
];

/// Elements that are not simulated, where they are first: `N/A` here, and something on hardware.
const UNSIMULATED: &[&str] = &[
    "gpu_part_number",
    "oem_object",
    "ecc_object",
    "gpu_recovery_action",
    "pci_base_class",
    "pci_sub_class",
    "replay_rollover_counter",
    "tx_util",
    "rx_util",
    "clocks_event_reasons_counters_sw_power_cap",
    "clocks_event_reasons_counters_sync_boost",
    "clocks_event_reasons_counters_sw_therm_slowdown",
    "clocks_event_reasons_counters_hw_therm_slowdown",
    "clocks_event_reasons_counters_hw_power_brake",
    "sparse_operation_mode",
    "total",
    "used",
    "free",
    "session_count",
    "average_fps",
    "average_latency",
    "sram_correctable",
    "sram_uncorrectable_parity",
    "sram_uncorrectable_secded",
    "sram_threshold_exceeded",
    "sram_l2",
    "sram_sm",
    "sram_microcontroller",
    "sram_pcie",
    "sram_other",
    "channel_repair_pending",
    "tpc_repair_pending",
    "unrepairable_memory",
    "remapped_row_corr_inactive",
    "remapped_row_unc_inactive",
    "gpu_temp_max_tlimit_threshold",
    "gpu_temp_slow_tlimit_threshold",
    "gpu_temp_max_gpu_tlimit_threshold",
    "memory_temp",
    "gpu_temp_max_mem_tlimit_threshold",
    "average_power_draw",
    "graphics_clock",
    "mem_clock",
    "egm",
];

/// The element that a line begins, and what stands in it.
fn parts(line: &str) -> (&str, &str) {
    let inner = line.trim_start().trim_start_matches('<');
    let (name, rest) = inner.split_once('>').unwrap_or((inner, ""));
    (name, rest.split_once("</").map_or("", |(value, _)| value))
}

/// Without the list of clocks.
fn lines(text: &str) -> Vec<&str> {
    let mut within = false;
    let keep = |line: &&str| {
        within |= line.contains("<supported_clocks>");
        let keep = !within;
        within &= !line.contains("</supported_clocks>");
        keep
    };
    text.lines().filter(keep).collect()
}

#[test]
fn everything_of_an_h200_is_what_the_real_one_prints_or_said_not_to_be_known() {
    let (out, err, code) = smi(&Simulated::new(&NodeSpec::new("h200-vm")), "-q -x");
    assert_eq!((err.as_str(), code), ("", 0));
    let (ours, real) = (lines(&out), lines(H200));
    let mut unsimulated = Vec::new();
    for (ours, real) in ours.iter().zip(&real) {
        let ((name, value), (real_name, _)) = (parts(ours), parts(real));
        assert_eq!(name, real_name, "{ours} in the place of {real}");
        if ours != real && value == "N/A" {
            if !unsimulated.contains(&name) {
                unsimulated.push(name);
            }
        } else {
            assert!(ours == real || VARIES.contains(&name), "{ours} in the place of {real}");
        }
    }
    assert_eq!(ours.len(), real.len());
    assert_eq!(unsimulated, UNSIMULATED);
}

#[test]
fn mig_devices_and_processes_are_in_it() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(2));
    node.node.set_mig_mode(1, true).unwrap();
    let made = node.node.create_mig(1, "3g.40gb", None).unwrap();
    let load = Load {
        memory_mib: 100,
        pid: Some(std::process::id()),
        ..Load::default()
    };
    node.node.load(0, load).unwrap();
    let (out, _, code) = smi(&node, "-q -x");
    assert_eq!(code, 0);
    let gpus: Vec<&str> = out.split("<gpu id=").skip(1).collect();
    assert_eq!(gpus.len(), 2);
    let program = std::env::current_exe().unwrap();
    let process = format!(
        "<pid>{}</pid>\n\t\t\t\t<type>C</type>\n\t\t\t\t<process_name>{}</process_name>\n\t\t\t\t<used_memory>100 MiB</used_memory>",
        std::process::id(),
        program.display()
    );
    assert!(gpus[0].contains(&process), "{}", gpus[0]);
    assert!(gpus[0].contains("<mig_devices>\n\t\t\tNone\n"), "{}", gpus[0]);
    let device = format!(
        "<index>0</index>\n\t\t\t\t<gpu_instance_id>{}</gpu_instance_id>\n\t\t\t\t<compute_instance_id>0</compute_instance_id>\n\t\t\t\t<uuid>{}</uuid>",
        made.id, made.devices[0].2
    );
    assert!(gpus[1].contains(&device), "{}", gpus[1]);
    assert!(gpus[1].contains("<current_mig>Enabled</current_mig>"), "{}", gpus[1]);
    assert!(smi(&node, "-q -x -i 1").0.matches("<gpu id=").count() == 1);
}

#[test]
fn only_xml_is_simulated_and_it_is_said() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(1));
    let only = "ERROR: Only -q and -x together are simulated, XML.\n";
    assert_eq!(smi(&node, "-q"), (String::new(), only.to_owned(), 2));
    assert_eq!(smi(&node, "-x").2, 2);
    assert_eq!(smi(&node, "-q -x -L").2, 2);
}
