use expect_test::{Expect, expect};
use gpu_core::Inventory;

use super::*;
use crate::config::{Config, ConfigFile, Flags, Options, Reading};

const GIB: u64 = 1 << 30;

/// A node of GPUs given as `model capability GiB [mig]`, one a line, with CUDA 12.4.
fn node(gpus: &str) -> Inventory {
    node_with(gpus, "12.4")
}

fn node_with(gpus: &str, cuda: &str) -> Inventory {
    let gpu = |(index, line): (usize, &str)| {
        let words: Vec<_> = line.split_whitespace().collect();
        let number = |text: &str| text.parse::<f64>().ok();
        let mut gpu = serde_json::json!({
            "index": index, "minor": index, "name": words[0], "uuid": format!("GPU-00000000-0000-4000-8000-00000000000{index}"),
            "pci": { "address": format!("0000:0{index}:00.0"), "id": "10de:0000" },
        });
        if number(words[1]).is_some() {
            gpu["compute_capability"] = words[1].into();
        }
        if let Ok(gib) = words[2].parse::<u64>() {
            gpu["memory"] = serde_json::json!({ "total_bytes": gib * GIB });
        }
        if words.get(3) == Some(&"mig") {
            gpu["mig"] = serde_json::json!({ "enabled": true, "pending_enabled": true });
        }
        gpu
    };
    let gpus: Vec<_> = gpus
        .lines()
        .filter(|line| !line.trim().is_empty())
        .enumerate()
        .map(gpu)
        .collect();
    let driver = serde_json::json!({ "version": "550.163.01", "cuda_version": cuda });
    serde_json::from_value(serde_json::json!({ "driver": driver, "gpus": gpus })).unwrap()
}

fn config(text: &str) -> Config {
    let (file, _) = ConfigFile::parse(text, Reading::Strict).unwrap();
    Config::resolve(file, Flags::default(), Options { naming: true }).0
}

fn mps(resources: &str) -> Config {
    config(&format!("sharing: {{ mps: {{ resources: [{resources}] }} }}"))
}

/// What the daemons are told, as the recording `mps/mps4` has it, and the remarks.
#[track_caller]
fn check(inventory: &Inventory, config: &Config, expected: &Expect) {
    let text = match plan(inventory, config) {
        Err(error) => {
            let error = anyhow_chain(&error);
            format!("error: {error}\n")
        }
        Ok(plan) => {
            let mut lines = Vec::new();
            for resource in &plan.resources {
                lines.push(resource.resource.to_string());
                let environment = resource.daemon_environment(&Root::default());
                lines.extend(environment.iter().map(|(name, value)| format!("  {name}={value}")));
                lines.extend(resource.limit_commands().iter().map(|command| format!("  {command}")));
            }
            lines.extend(plan.remarks.iter().map(ToString::to_string));
            if lines.is_empty() {
                String::new()
            } else {
                lines.join("\n") + "\n"
            }
        }
    };
    expected.assert_eq(&text);
}

fn anyhow_chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// The same commands in the same order as `mps/mps4.out`, which is two A100 of 40 GiB and four replicas.
#[test]
fn the_daemon_is_told_what_the_vendors_is() {
    check(
        &node("A100 8.0 40\nA100 8.0 40"),
        &mps("{ name: nvidia.com/gpu, replicas: 4 }"),
        &expect![[r"
            nvidia.com/gpu
              CUDA_DEVICE_ORDER=PCI_BUS_ID
              CUDA_MPS_LOG_DIRECTORY=/mps/nvidia.com/gpu/log
              CUDA_MPS_PIPE_DIRECTORY=/mps/nvidia.com/gpu/pipe
              set_default_device_pinned_mem_limit 0 10240M
              set_default_device_pinned_mem_limit 1 10240M
              set_default_active_thread_percentage 25
        "]],
    );
}

#[test]
fn shares_are_rounded_down_by_gpu() {
    let memory = |gib: u64, replicas: u32| {
        let inventory = node(&format!("X 9.0 {gib}"));
        let gpu = SharedGpu::new(&inventory.gpus[0], replicas, None).unwrap();
        (gpu.memory_limit_mib, gpu.thread_percentage)
    };
    assert_eq!(memory(16, 3), (Some(5461), Some(33)));
    assert_eq!(memory(80, 7), (Some(11702), Some(14)));
    assert_eq!(memory(80, 48), (Some(1706), Some(2)));
    assert_eq!(memory(141, 2), (Some(72192), Some(50)));
}

#[test]
fn how_many_clients_a_gpu_takes() {
    #[track_caller]
    fn check(capability: &str, cuda: &str, most: u32) {
        let inventory = node_with(&format!("X {capability} 16"), cuda);
        let share = |replicas| {
            SharedGpu::new(
                &inventory.gpus[0],
                replicas,
                inventory.driver.as_ref().unwrap().cuda_version,
            )
        };
        share(most).unwrap();
        let words = format!(
            "invalid MPS configuration: invalid device maximum allowed replicas exceeded: {} > {most} on GPU 0 ({})",
            most + 1,
            inventory.gpus[0].uuid
        );
        assert_eq!(share(most + 1).unwrap_err().to_string(), words);
    }
    check("6.1", "12.4", 16);
    check("7.0", "12.4", 48); // Volta, which the vendor's daemon takes for an older one
    check("7.5", "12.4", 48);
    check("9.0", "13.0", 48);
    check("9.0", "13.1", 60);
    check("6.1", "13.1", 16);
    check("-", "12.4", 16);
}

#[test]
fn what_is_renamed_goes_by_its_new_name() {
    let node = node("A100 8.0 40");
    check(
        &node,
        &config("sharing: { mps: { renameByDefault: true, resources: [{ name: gpu, replicas: 2 }] } }"),
        &expect![[r"
            nvidia.com/gpu.shared
              CUDA_DEVICE_ORDER=PCI_BUS_ID
              CUDA_MPS_LOG_DIRECTORY=/mps/nvidia.com/gpu.shared/log
              CUDA_MPS_PIPE_DIRECTORY=/mps/nvidia.com/gpu.shared/pipe
              set_default_device_pinned_mem_limit 0 20480M
              set_default_active_thread_percentage 50
        "]],
    );
}

#[test]
fn each_of_several_daemons_sees_its_own_gpus() {
    let text = "
resources: { gpus: [{ pattern: A100, name: a100 }, { pattern: '*', name: other }] }
sharing: { mps: { resources: [{ name: a100, replicas: 2 }, { name: other, replicas: 4, rename: small }] } }";
    check(
        &node("T4 7.5 16\nA100 8.0 40\nT4 7.5 16"),
        &config(text),
        &expect![[r"
            nvidia.com/a100
              CUDA_DEVICE_ORDER=PCI_BUS_ID
              CUDA_MPS_LOG_DIRECTORY=/mps/nvidia.com/a100/log
              CUDA_MPS_PIPE_DIRECTORY=/mps/nvidia.com/a100/pipe
              CUDA_VISIBLE_DEVICES=GPU-00000000-0000-4000-8000-000000000001
              set_default_device_pinned_mem_limit 0 20480M
              set_default_active_thread_percentage 50
            nvidia.com/small
              CUDA_DEVICE_ORDER=PCI_BUS_ID
              CUDA_MPS_LOG_DIRECTORY=/mps/nvidia.com/small/log
              CUDA_MPS_PIPE_DIRECTORY=/mps/nvidia.com/small/pipe
              CUDA_VISIBLE_DEVICES=GPU-00000000-0000-4000-8000-000000000000,GPU-00000000-0000-4000-8000-000000000002
              set_default_device_pinned_mem_limit 0 4096M
              set_default_device_pinned_mem_limit 1 4096M
              set_default_active_thread_percentage 25
        "]],
    );
}

#[test]
fn a_gpu_goes_by_the_first_entry_that_selects_it() {
    check(
        &node("A100 8.0 40\nA100 8.0 40\nA100 8.0 40"),
        &mps("{ name: gpu, replicas: 2, devices: [1] }, { name: gpu, replicas: 8 }"),
        &expect![[r"
            nvidia.com/gpu
              CUDA_DEVICE_ORDER=PCI_BUS_ID
              CUDA_MPS_LOG_DIRECTORY=/mps/nvidia.com/gpu/log
              CUDA_MPS_PIPE_DIRECTORY=/mps/nvidia.com/gpu/pipe
              set_default_device_pinned_mem_limit 0 5120M
              set_default_device_pinned_mem_limit 1 20480M
              set_default_device_pinned_mem_limit 2 5120M
              set_default_active_thread_percentage 50
        "]],
    );
}

#[test]
fn what_cannot_be_shared_is_an_error_that_names_the_gpu() {
    let gpu = "{ name: nvidia.com/gpu, replicas: 4 }";
    check(
        &node("A100 8.0 40\nA100 8.0 40 mig"),
        &mps(gpu),
        &expect![[r"
            error: sharing using MPS is not supported for MIG devices: GPU 1 (GPU-00000000-0000-4000-8000-000000000001) is in MIG mode
        "]],
    );
    check(
        &node("A100 8.0 40"),
        &mps("{ name: gpu, replicas: 49 }"),
        &expect![[r"
            error: invalid MPS configuration: invalid device maximum allowed replicas exceeded: 49 > 48 on GPU 0 (GPU-00000000-0000-4000-8000-000000000000)
        "]],
    );
}

#[test]
fn what_is_not_there_keeps_nothing_else_from_being_shared() {
    check(
        &node("A100 8.0 40\nA100 8.0 40"),
        &mps("{ name: gpu, replicas: 2, devices: [3, 1] }"),
        &expect![[r"
            nvidia.com/gpu
              CUDA_DEVICE_ORDER=PCI_BUS_ID
              CUDA_MPS_LOG_DIRECTORY=/mps/nvidia.com/gpu/log
              CUDA_MPS_PIPE_DIRECTORY=/mps/nvidia.com/gpu/pipe
              CUDA_VISIBLE_DEVICES=GPU-00000000-0000-4000-8000-000000000001
              set_default_device_pinned_mem_limit 0 20480M
              set_default_active_thread_percentage 50
            not all of `nvidia.com/gpu` can be shared: no matching device at index: 3
        "]],
    );
}

#[test]
fn what_cannot_be_limited_is_shared_with_a_remark() {
    check(
        &node("P100 6.0 16\nGB10 12.1 -"),
        &mps("{ name: gpu, replicas: 2 }, { name: mig-1g.5gb, replicas: 2 }"),
        &expect![[r"
            nvidia.com/gpu
              CUDA_DEVICE_ORDER=PCI_BUS_ID
              CUDA_MPS_LOG_DIRECTORY=/mps/nvidia.com/gpu/log
              CUDA_MPS_PIPE_DIRECTORY=/mps/nvidia.com/gpu/pipe
            GPU 0 (GPU-00000000-0000-4000-8000-000000000000) is older than Volta: its MPS clients are not limited in memory and threads
            the size of the memory of GPU 1 (GPU-00000000-0000-4000-8000-000000000001) is not known: its MPS clients are not limited in memory
            sharing.mps names `nvidia.com/mig-1g.5gb`, of which this node has no device
        "]],
    );
}

#[test]
fn nothing_is_served_where_mps_is_not_configured() {
    let node = node("A100 8.0 40");
    check(&node, &config(""), &expect![""]);
    check(
        &node,
        &config("sharing: { timeSlicing: { resources: [{ name: gpu, replicas: 2 }] } }"),
        &expect![""],
    );
}

/// Variables and mounts as in `mps/mps4.kubelet.json`, with the limits besides.
#[test]
fn a_container_gets_the_daemons_folders_and_its_limits() {
    let inventory = node("A100 8.0 40\nA100 8.0 40\nA100 8.0 80\nP100 6.0 16");
    let plan = plan(&inventory, &mps("{ name: gpu, replicas: 4 }")).unwrap();
    let resource = &plan.resources[0];
    let client = |gpus: &[usize]| {
        let uuids = gpus.iter().map(|gpu| inventory.gpus[*gpu].uuid.as_str());
        resource.client(uuids, "/run/nvidia/mps").unwrap()
    };
    let environment = |gpus| {
        let environment = client(gpus).environment;
        assert_eq!(environment[names::PIPE_DIRECTORY], "/mps/nvidia.com/gpu/pipe");
        let value = |name| environment.get(name).cloned().unwrap_or_default();
        (
            value(names::ACTIVE_THREAD_PERCENTAGE),
            value(names::PINNED_DEVICE_MEM_LIMIT),
        )
    };
    let limits = |threads: &str, memory: &str| (threads.to_owned(), memory.to_owned());
    assert_eq!(environment(&[0]), limits("25", "0=10240M"));
    assert_eq!(environment(&[2]), limits("25", "0=20480M"));
    assert_eq!(environment(&[1, 0, 1]), limits("25", "0=10240M,1=10240M"));
    assert_eq!(
        environment(&[0, 2]),
        limits("25", ""),
        "which of both is CUDA's first is not known"
    );
    assert_eq!(environment(&[3]), limits("", ""));
    assert_eq!(environment(&[]), limits("", ""));
    let mounts: Vec<_> = client(&[0])
        .mounts
        .into_iter()
        .map(|mount| format!("{} {}", mount.host_path, mount.container_path))
        .collect();
    assert_eq!(
        mounts,
        [
            "/run/nvidia/mps/nvidia.com/gpu/pipe /mps/nvidia.com/gpu/pipe",
            "/run/nvidia/mps/shm /dev/shm"
        ]
    );
    assert_eq!(resource.client(["GPU-of-another-node"], "/x"), None);
}

#[test]
fn plugin_and_daemon_agree_where_they_read_the_same() {
    let resource = |replicas: u32| {
        let config = mps(&format!("{{ name: gpu, replicas: {replicas} }}"));
        plan(&node("A100 8.0 40\nP100 6.0 16"), &config).unwrap().resources[0].clone()
    };
    let written = Agreement::Serves(resource(2)).to_text();
    let read = Agreement::parse(&written).unwrap();
    assert!(read.covers(&resource(2)));
    assert!(!read.covers(&resource(4)));
    assert!(
        Agreement::parse("").unwrap().covers(&resource(4)),
        "the vendor's file is empty"
    );
    Agreement::parse("{}").unwrap_err();
    Agreement::parse(&written.replace("v1", "v2")).unwrap_err();
}

#[test]
fn a_gpu_that_cannot_be_read_changes_nothing_for_the_daemons_of_the_others() {
    let whole = node("H100 9.0 80\nH100 9.0 80");
    let config =
        mps("{ name: gpu, rename: a, devices: [0], replicas: 2 }, { name: gpu, rename: b, devices: [1], replicas: 2 }");
    let [a, _] = plan(&whole, &config).unwrap().resources.try_into().unwrap();
    let mut lost = whole.clone();
    lost.gpus.truncate(1);
    let problem = |index, kind: &str| {
        serde_json::from_value(serde_json::json!({ "index": index, "kind": kind, "call": "c", "message": "m" }))
            .unwrap()
    };
    // Two of one GPU, and one of a GPU that was read.
    lost.problems = vec![problem(1, "lost"), problem(1, "unreadable"), problem(0, "incomplete")];
    assert_eq!(plan(&lost, &config).unwrap().resources, std::slice::from_ref(&a));
    assert!(a.partial, "it is to leave the other one alone");

    // One that was taken out, and the only one of a node, are not to be left alone.
    lost.problems.clear();
    assert!(!plan(&lost, &config).unwrap().resources[0].partial);
}
