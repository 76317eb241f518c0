mod log;
mod policy;

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

/// Both as the real one printed them for the same board.
#[test]
fn mig_profiles_and_placements_of_an_h200_are_the_real_ones() {
    let node = Simulated::new(&NodeSpec::new("h200-vm"));
    let expected = include_str!("../upstream/nvidia-smi-580.159.04/mig-lgip.txt");
    assert_eq!(smi(&node, "mig -lgip"), (expected.to_owned(), String::new(), 0));
    let expected = include_str!("../upstream/nvidia-smi-580.159.04/mig-lgipp.txt");
    assert_eq!(smi(&node, "mig -lgipp"), (expected.to_owned(), String::new(), 0));
    assert_eq!(smi(&node, "mig -lci").1, "No MIG-enabled devices found.\n");
}

#[test]
fn instances_are_made_listed_and_removed() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(2));
    let ok = |text: &str| (text.to_owned(), String::new(), 0);
    assert_eq!(
        smi(&node, "-i 1 -mig 1"),
        ok("Enabled MIG Mode for GPU 00000000:1B:00.0\nAll done.\n")
    );
    assert_eq!(smi(&node, "mig -lgi").1, "No GPU instances found: Not Found\n");
    assert_eq!(
        smi(&node, "mig -cgi 9,1g.10gb:2 -C -i 1"),
        ok(
            "Successfully created GPU instance ID  1 on GPU  1 using profile MIG 3g.40gb (ID  9)\n\
            Successfully created compute instance ID  0 on GPU  1 GPU instance ID  1 using profile MIG 3g.40gb (ID  2)\n\
            Successfully created GPU instance ID 13 on GPU  1 using profile MIG 1g.10gb (ID 19)\n\
            Successfully created compute instance ID  0 on GPU  1 GPU instance ID 13 using profile MIG 1g.10gb (ID  0)\n"
        )
    );
    let (list, _, _) = smi(&node, "mig -lgi");
    assert!(
        list.contains("\n|   1  MIG 3g.40gb          9        1          4:4     |\n"),
        "{list}"
    );
    assert!(
        list.contains("\n|   1  MIG 1g.10gb         19       13          2:1     |\n"),
        "{list}"
    );
    let widths: Vec<usize> = list.lines().map(|line| line.chars().count()).collect();
    assert!(widths.iter().all(|width| *width == 57), "{list}");
    let (list, _, _) = smi(&node, "mig -lci");
    assert!(
        list.contains("\n|   1     13       MIG 1g.10gb          0         0          0:1     |\n"),
        "{list}"
    );
    let (list, _, _) = smi(&node, "-L");
    let uuid = &node.node.mig(1).unwrap()[1].devices[0].2;
    assert!(
        list.ends_with(&format!("  MIG 1g.10gb     Device  1: (UUID: {uuid})\n")),
        "{list}"
    );

    let (out, err, code) = smi(&node, "mig -cgi 5 -i 1");
    assert_eq!((out.as_str(), code), ("", 23));
    assert_eq!(
        err,
        "Unable to create a GPU instance on GPU  1 using profile 5: Insufficient Resources\n\
         Failed to create GPU instances: Insufficient Resources\n"
    );
    let (_, err, code) = smi(&node, "mig -dgi -gi 13");
    assert_eq!(code, 19, "{err}");
    let gone = "Successfully destroyed compute instance ID  0 from GPU  1 GPU instance ID 13\n";
    assert_eq!(smi(&node, "mig -dci -gi 13"), ok(gone));
    assert_eq!(
        smi(&node, "mig -dgi -gi 13"),
        ok("Successfully destroyed GPU instance ID 13 from GPU  1\n")
    );
    assert_eq!(node.node.mig(1).unwrap().len(), 1);
}

#[test]
fn modes_are_changed_for_the_gpus_named() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(2));
    let (out, _, code) = smi(&node, "-i 1 -c EXCLUSIVE_PROCESS");
    let expected = "Set compute mode to EXCLUSIVE_PROCESS for GPU 00000000:1B:00.0.\nAll done.\n";
    assert_eq!((out.as_str(), code), (expected, 0));
    let (out, _, _) = smi(&node, "--query-gpu=compute_mode --format=csv,noheader");
    assert_eq!(out, "Default\nExclusive_Process\n");
    let (out, _, _) = smi(&node, "-i 0 -pm 0");
    assert_eq!(out, "Disabled persistence mode for GPU 00000000:1A:00.0.\nAll done.\n");
    assert_eq!(smi(&node, "-c SOMETIMES").2, 2);
}

#[test]
fn compute_instance_profiles_are_those_of_each_gpu_instance() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(1));
    node.node.set_mig_mode(0, true).unwrap();
    assert_eq!(
        smi(&node, "mig -lcip").1,
        "No compute instance profiles found: Not Found\n"
    );
    let made = node.node.create_mig(0, "3g.40gb", None).unwrap();
    let (list, err, code) = smi(&node, "mig -lcip");
    assert_eq!((err.as_str(), code), ("", 0));
    let row = |name: &str, id: u32, star: &str, free: &str, multiprocessors: u32| {
        format!(
            "\n|   0{:>7}       {name:<19}{id:>3}{star:<1}     {free}{multiprocessors:>13}",
            made.id
        )
    };
    // Its one compute instance takes all of it.
    for row in [
        row("MIG 1c.3g.40gb", 0, "", "0/3", 16),
        row("MIG 2c.3g.40gb", 1, "", "0/1", 32),
        row("MIG 3g.40gb", 2, "*", "0/1", 48),
    ] {
        assert!(list.contains(&row), "{row} in {list}");
    }
    assert!(list.lines().all(|line| line.chars().count() == 88), "{list}");
}

/// The one GPU's matrix is as recorded, but for the CPUs, which are not simulated.
#[test]
fn a_matrix_shows_how_gpus_are_connected() {
    let rows = |profile: &str, gpus: usize| {
        let node = Simulated::new(&NodeSpec::new(profile).gpus(gpus));
        let (out, err, code) = smi(&node, "topo -m");
        assert_eq!((err.as_str(), code), ("", 0));
        let (matrix, legend) = out.split_once("\n\n").unwrap();
        assert!(legend.starts_with("Legend:\n\n  X    = Self\n"), "{legend}");
        matrix.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        rows("h200-vm", 1),
        [
            "\t\u{1b}[4mGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\u{1b}[0m",
            "GPU0\t X \tN/A\t0\t\tN/A",
        ]
    );
    let switched = rows("hgx-h100", 2);
    assert_eq!(
        switched[1..],
        ["GPU0\t X \tNV18\tN/A\t0\t\tN/A", "GPU1\tNV18\t X \tN/A\t0\t\tN/A"]
    );
    let pairs = rows("pcie-pairs", 4);
    let cells: Vec<&str> = pairs[1].split('\t').collect();
    assert!(cells[2].starts_with("NV") && !cells[3].starts_with("NV"), "{pairs:#?}");
    assert_eq!(
        smi(&Simulated::new(&NodeSpec::new("h100").gpus(1)), "topo --bad").2,
        255
    );
}
