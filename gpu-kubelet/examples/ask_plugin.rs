//! Starts a device plugin under a kubelet double, asks it what is on standard input, and prints what it said.
//!
//! `ask_plugin FOLDER PROGRAM [ARGUMENT…]`: FOLDER is where the program puts its sockets, usually
//! `/var/lib/kubelet/device-plugins`. Standard input is JSON: `{"resource": NAME, "allocate": [[[ID…]…]…], "repeat": N,
//! "preferred": [{"available": [ID…], "must": [ID…], "size": N}…], "watch_seconds": N}`; standard output likewise. The first
//! Allocate is asked `repeat` times more, and `repeated` has how long that took. At the end the
//! plugin is left alone for `watch_seconds`; `watched` has what it sent meanwhile and the processor time it took.

#![expect(clippy::print_stdout, reason = "it is what the program is for")]

use std::{
    env, fs, io,
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant},
};

use gpu_kubelet::{
    connect,
    device_plugin::{
        AllocateRequest, ContainerAllocateRequest, ContainerAllocateResponse, ContainerPreferredAllocationRequest,
        Device, DevicePluginClient, PreferredAllocationRequest,
    },
    double::{Config, EventKind, Kubelet},
};
use serde_json::{Value, json};
use tonic::transport::Channel;

const WITHIN: Duration = Duration::from_secs(20);

type Failure = Box<dyn std::error::Error>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let mut arguments = env::args_os().skip(1);
    let usage = "usage: ask_plugin FOLDER PROGRAM [ARGUMENT…]";
    let folder = PathBuf::from(arguments.next().ok_or(usage)?);
    let program = arguments.next().ok_or(usage)?;
    let questions: Value = serde_json::from_reader(io::stdin())?;
    let resource = questions["resource"].as_str().ok_or("no `resource` is named")?;

    let kubelet = Kubelet::start(Config {
        device_plugin_dir: folder.clone(),
        pod_resources_socket: folder.join("pod-resources.sock"),
        ..Config::in_dir(&folder)
    })
    .await?;
    let start = Instant::now();
    let mut plugin = tokio::process::Command::new(program)
        .args(arguments)
        // For a plugin that names itself after the kubelet's path when it calls: this server takes no path, as few do.
        .current_dir(&folder)
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let listed = tokio::select! {
        listed = kubelet.wait_until("the devices", WITHIN, |kubelet| kubelet.capacity(resource).is_some()) => listed.map_err(Failure::from),
        ended = plugin.wait() => Err(format!("the plugin ended: {}", ended?).into()),
    };
    listed?;
    let process = plugin.id().ok_or("the plugin has ended")?;
    let first_list = kubelet.events().into_iter().find_map(|event| match event.kind {
        EventKind::Listed { resource: name, .. } if name == resource => Some(event.at - start),
        _ => None,
    });
    let request = kubelet.events().into_iter().find_map(|event| match event.kind {
        EventKind::Registered {
            resource: name,
            request,
            ..
        } if name == resource => Some(request),
        _ => None,
    });
    let request = request.ok_or("the plugin has not registered")?;
    let mut client = DevicePluginClient::new(connect(folder.join(&request.endpoint)).await?);
    let mut allocated = Vec::new();
    for containers in list(&questions["allocate"]) {
        allocated.push(allocate(&mut client, containers).await);
    }
    let repeated = match (list(&questions["allocate"]), questions["repeat"].as_u64()) {
        ([first, ..], Some(times @ 1..)) => repeat(&mut client, first, times).await?,
        _ => Value::Null,
    };
    let mut preferred = Vec::new();
    for question in list(&questions["preferred"]) {
        preferred.push(prefer(&mut client, question).await);
    }
    let watched = match questions["watch_seconds"].as_u64() {
        Some(seconds) => watch(&kubelet, process, Duration::from_secs(seconds)).await?,
        None => Value::Null,
    };
    let answer = json!({
        "first_list_ms": first_list.map(|time| time.as_secs_f64() * 1e3),
        "memory_kib": memory(process),
        "watched": watched,
        "register": { "endpoint": request.endpoint, "resourceName": request.resource_name, "version": request.version },
        "devices": kubelet.devices(resource).iter().map(device).collect::<Vec<_>>(),
        "allocate": allocated,
        "repeated": repeated,
        "preferred": preferred,
    });
    println!("{answer}");
    kubelet.stop().await;
    Ok(())
}

/// Leaves the plugin alone for a while: what it sent, and the processor time it took.
async fn watch(kubelet: &Kubelet, process: u32, time: Duration) -> io::Result<Value> {
    let (events, used) = (kubelet.events().len(), processor_time(process)?);
    tokio::time::sleep(time).await;
    let sent: Vec<_> = kubelet
        .events()
        .drain(events..)
        .map(|event| format!("{:?}", event.kind))
        .collect();
    let used = processor_time(process)? - used;
    Ok(json!({ "seconds": time.as_secs(), "sent": sent, "cpu_ms": used }))
}

/// The processor time of a process and its threads in ms, from its scheduler's statistics, which know more than clock ticks.
fn processor_time(process: u32) -> io::Result<f64> {
    let mut nanoseconds = 0.0;
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        let text = fs::read_to_string(thread?.path().join("schedstat"))?;
        let first = text
            .split_whitespace()
            .next()
            .and_then(|number| number.parse::<f64>().ok());
        nanoseconds += first.ok_or_else(|| io::Error::other(format!("schedstat says {text:?}")))?;
    }
    Ok(nanoseconds / 1e6)
}

/// What `/proc/PID/status` tells of the memory of a process, in KiB; nothing where `/proc` is not this machine's.
fn memory(process: u32) -> Value {
    let Ok(status) = fs::read_to_string(format!("/proc/{process}/status")) else {
        return Value::Null;
    };
    let value = |key| {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim_matches([':', ' ', '\t'])
            .strip_suffix(" kB")?
            .parse::<u64>()
            .ok()
    };
    ["VmHWM", "VmRSS", "RssAnon", "RssFile"]
        .map(|key| (key.to_owned(), json!(value(key))))
        .into_iter()
        .collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn strings(value: &Value) -> Vec<String> {
    list(value)
        .iter()
        .filter_map(|text| text.as_str().map(ToOwned::to_owned))
        .collect()
}

fn device(device: &Device) -> Value {
    let nodes = device.topology.iter().flat_map(|topology| &topology.nodes);
    json!({ "id": device.id, "health": device.health, "numa_nodes": nodes.map(|node| node.id).collect::<Vec<_>>() })
}

/// How long it takes to be given the same devices again and again, in ms.
async fn repeat(client: &mut DevicePluginClient<Channel>, containers: &Value, times: u64) -> Result<Value, Failure> {
    let mut took = Vec::new();
    for _ in 0..times {
        let request = request(containers);
        let start = Instant::now();
        client.allocate(request).await?;
        took.push(start.elapsed().as_secs_f64() * 1e3);
    }
    took.sort_by(f64::total_cmp);
    let share = |percent: usize| took[(took.len() - 1) * percent / 100];
    Ok(json!({ "least_ms": share(0), "median_ms": share(50), "p99_ms": share(99) }))
}

fn request(containers: &Value) -> AllocateRequest {
    let container = |ids| ContainerAllocateRequest {
        device_ids: strings(ids),
    };
    AllocateRequest {
        container_requests: list(containers).iter().map(container).collect(),
    }
}

async fn allocate(client: &mut DevicePluginClient<Channel>, containers: &Value) -> Value {
    match client.allocate(request(containers)).await {
        Ok(answer) => {
            json!({ "response": answer.into_inner().container_responses.iter().map(container_answer).collect::<Vec<_>>() })
        }
        Err(status) => json!({ "error": status.message() }),
    }
}

fn container_answer(answer: &ContainerAllocateResponse) -> Value {
    json!({
        "envs": answer.envs,
        "cdi": answer.cdi_devices.iter().map(|device| &device.name).collect::<Vec<_>>(),
        "mounts": answer.mounts.iter().map(|mount| json!([mount.container_path, mount.host_path])).collect::<Vec<_>>(),
        "devices": answer.devices.iter().map(|device| json!([device.container_path, device.host_path])).collect::<Vec<_>>(),
    })
}

async fn prefer(client: &mut DevicePluginClient<Channel>, question: &Value) -> Value {
    let request = PreferredAllocationRequest {
        container_requests: vec![ContainerPreferredAllocationRequest {
            available_device_ids: strings(&question["available"]),
            must_include_device_ids: strings(&question["must"]),
            allocation_size: question["size"]
                .as_i64()
                .and_then(|size| i32::try_from(size).ok())
                .unwrap_or_default(),
        }],
    };
    match client.get_preferred_allocation(request).await {
        Ok(answer) => {
            json!({ "ids": answer.into_inner().container_responses.into_iter().flat_map(|one| one.device_ids).collect::<Vec<_>>() })
        }
        Err(status) => json!({ "error": status.message() }),
    }
}
