//! Time slices and resets: what `nvidia-smi` asks of the library beyond NVML.

use gpu_sim::{Load, NodeSpec};

use super::smi;
use crate::Simulated;

fn ok(text: &str) -> (String, String, i32) {
    (text.to_owned(), String::new(), 0)
}

#[test]
fn a_time_slice_is_set_for_the_gpus_named_and_listed() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(2));
    let uuid = &node.node.gpus()[1].uuid;
    assert_eq!(
        smi(&node, &format!("compute-policy -i {uuid} --set-timeslice=3")),
        ok("Set timeslice to Long for GPU 00000000:1B:00.0.\nAll done.\n")
    );
    let line = "+-------------------------------------+\n";
    let head = "| GPU compute policies:               |\n\
                | GPU     Name               Value    |\n\
                |=====================================|\n";
    let row = |index: u32, value: &str| format!("|   {index}     Timeslice          {value:<9}|\n{line}");
    assert_eq!(
        smi(&node, "compute-policy --list"),
        ok(&format!("{line}{head}{}{}", row(0, "Default"), row(1, "Long")))
    );
    node.node.reboot().unwrap();
    let (list, _, _) = smi(&node, "compute-policy -l -i 1");
    assert_eq!(list, format!("{line}{head}{}", row(1, "Default")));
    assert_eq!(smi(&node, "compute-policy --set-timeslice=4").2, 2);
    assert_eq!(smi(&node, "compute-policy").2, 2);
    assert_eq!(smi(&node, "compute-policy --bad").2, 255);
}

#[test]
fn a_reset_puts_a_mode_in_force_and_waits_for_processes() {
    let node = Simulated::new(&NodeSpec::new("a100-vm"));
    let (out, _, code) = smi(&node, "-mig 1");
    assert!(out.contains("in pending enable state") && code == 0, "{out}");
    assert_eq!(node.node.mig_mode(0).unwrap(), (false, true));
    let address = node.node.gpus()[0].pci.nvml();
    let pid = node.node.load(0, Load::default()).unwrap();
    let refused = format!("Unable to change GPU {address}: In use by another client\n");
    assert_eq!(smi(&node, "-r"), (String::new(), refused, 19));
    node.node.unload(0, Some(pid)).unwrap();
    assert_eq!(
        smi(&node, &format!("--gpu-reset -i {address}")),
        ok(&format!("GPU {address} was successfully reset.\nAll done.\n"))
    );
    assert_eq!(node.node.mig_mode(0).unwrap(), (true, true));
}
