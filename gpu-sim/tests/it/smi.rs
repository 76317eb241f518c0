use std::{path::Path, process::Command};

use gpu_sim::NodeSpec;

use crate::{Simulated, output};

/// What the node's own `nvidia-smi` prints, what it says on stderr, and its exit code.
fn smi(node: &Simulated, arguments: &str) -> (String, String, i32) {
    run(
        &node.node.root().join("usr/bin/nvidia-smi"),
        &node.node.folder().join("lib"),
        arguments,
    )
}

fn run(program: &Path, libraries: &Path, arguments: &str) -> (String, String, i32) {
    let mut command = Command::new(program);
    command
        .args(arguments.split_whitespace())
        .env("LD_LIBRARY_PATH", libraries)
        .env_remove("GPU_SIM_DIR");
    let output = output(&mut command);
    let text = |bytes| String::from_utf8(bytes).expect("nvidia-smi prints UTF-8");
    (
        text(output.stdout),
        text(output.stderr),
        output.status.code().expect("nvidia-smi ends by itself"),
    )
}

/// The real one's output for the same board, with the temperature and power that the simulated one idles at.
const H200: &str = "\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 580.159.04             Driver Version: 580.159.04     CUDA Version: 13.0     |
+-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA H200                    On  |   00000000:00:06.0 Off |                    0 |
| N/A   41C    P0            108W /  700W |       0MiB / 143771MiB |      0%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|  No running processes found                                                             |
+-----------------------------------------------------------------------------------------+
";

#[test]
fn the_table_of_an_h200_is_the_real_ones() {
    let (out, err, code) = smi(&Simulated::new(&NodeSpec::new("h200-vm")), "");
    let (date, table) = out.split_once('\n').unwrap();
    assert_eq!((table, err.as_str(), code), (H200, "", 0));
    assert_eq!((date.len(), &date[24..]), (31, "       "), "{date}");
}

#[test]
fn a_list_has_one_line_per_gpu() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(2));
    let line = |index: usize| {
        format!(
            "GPU {index}: NVIDIA H100 80GB HBM3 (UUID: {})\n",
            node.node.gpus()[index].uuid
        )
    };
    assert_eq!(smi(&node, "-L"), (line(0) + &line(1), String::new(), 0));
}

#[test]
fn a_query_answers_as_the_real_one() {
    let node = Simulated::new(&NodeSpec::new("h200-vm"));
    let uuid = &node.node.gpus()[0].uuid;
    let fields = "--query-gpu=index,uuid,name,pci.bus_id,memory.total,driver_version";
    let header = "index, uuid, name, pci.bus_id, memory.total [MiB], driver_version\n";
    let values = format!("0, {uuid}, NVIDIA H200, 00000000:00:06.0, 143771 MiB, 580.159.04\n");
    let ok = |text: String| (text, String::new(), 0);
    assert_eq!(
        smi(&node, &format!("{fields} --format=csv")),
        ok(format!("{header}{values}"))
    );
    assert_eq!(
        smi(&node, &format!("{fields} --format=csv,noheader")),
        ok(values.clone())
    );
    assert_eq!(
        smi(&node, &format!("{fields} --format=csv,noheader,nounits")),
        ok(values.replace(" MiB", ""))
    );

    let fields = "--query-gpu=memory.used,memory.reserved,fan.speed,pstate,mig.mode.current,compute_cap,power.draw";
    let expected = "memory.used [MiB], memory.reserved [MiB], fan.speed [%], pstate, mig.mode.current, compute_cap, power.draw [W]\n\
                    0 MiB, 616 MiB, [N/A], P0, Disabled, 9.0, 108.87 W\n";
    assert_eq!(smi(&node, &format!("{fields} --format=csv")), ok(expected.to_owned()));
}

#[test]
fn gpus_are_chosen_by_index_uuid_or_address() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(3));
    let (uuid, address) = (&node.node.gpus()[1].uuid, node.node.gpus()[1].pci);
    for id in ["1", uuid, &address.to_string(), &address.nvml()] {
        let (out, _, code) = smi(&node, &format!("--query-gpu=index --format=csv,noheader -i {id}"));
        assert_eq!((out.as_str(), code), ("1\n", 0), "{id}");
    }
    assert_eq!(
        smi(&node, "-i 7"),
        (String::new(), "No devices were found\n".to_owned(), 6)
    );
}

#[test]
fn a_lost_gpu_is_named_and_hides_no_other() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(3));
    node.node.lose(1).unwrap();
    let (out, err, code) = smi(&node, "--query-gpu=index --format=csv,noheader");
    assert_eq!((out.as_str(), code), ("0\n2\n", 15));
    assert_eq!(err, "Unable to determine the device handle for GPU 1: GPU is lost\n");
}

#[test]
fn without_a_driver_the_exit_code_is_nvmls() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(1));
    node.node.set_init_error(Some(18)).unwrap();
    let expected = "Failed to initialize NVML: Driver/library version mismatch\n".to_owned();
    assert_eq!(smi(&node, "-L"), (String::new(), expected, 18));

    let (_, err, code) = run(&node.node.root().join("usr/bin/nvidia-smi"), Path::new("/absent"), "-L");
    assert_eq!(code, 12);
    assert!(err.contains("libnvidia-ml.so.1"), "{err}");
}

#[test]
fn an_unknown_option_is_refused() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(1));
    let (out, err, code) = smi(&node, "--bad");
    assert_eq!((out.as_str(), code), ("", 255));
    assert_eq!(
        err.trim_end(),
        "ERROR: Option --bad is not recognized. Please run 'nvidia-smi -h'."
    );
}
