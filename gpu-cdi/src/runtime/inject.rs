use std::{
    io,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use serde_json::{Map, Value, json};

use super::{
    Error, Result,
    object::{list, object},
};
use crate::{ContainerEdits, DeviceNode, Hook, HookStage, Mount};

/// Makes edits to a container's OCI configuration, as the CDI library does (`pkg/cdi/container-edits.go` of v1.1.0).
///
/// A variable, a mount or a device node takes the place of one that was there for the same name or path; mounts are
/// ordered by depth. What a spec does not say of a device node is read from the host's. A hook that is there already, since
/// the engine has made the same edits, is not added again.
///
/// # Errors
/// [`Error::Device`], [`Error::DeviceType`] and [`Error::Malformed`]; the configuration is then of no use.
pub fn inject(config: &mut Value, edits: &[&ContainerEdits]) -> Result<()> {
    edits.iter().try_for_each(|edits| inject_one(config, edits))
}

fn inject_one(config: &mut Value, edits: &ContainerEdits) -> Result<()> {
    for variable in &edits.env {
        set_variable(list(config, "process.env")?, variable);
    }
    for node in &edits.device_nodes {
        add_device(config, node)?;
    }
    for device in &edits.net_devices {
        let devices = object(config, "linux.netDevices")?;
        devices.insert(device.host_interface_name.clone(), json!({ "name": device.name }));
    }
    if !edits.mounts.is_empty() {
        let mounts = list(config, "mounts")?;
        for mount in &edits.mounts {
            mounts.retain(|other| other["destination"] != mount.container_path.as_str());
            mounts.push(oci_mount(mount));
        }
        mounts.sort_by_key(|mount| mount["destination"].as_str().map_or(0, depth));
    }
    for hook in &edits.hooks {
        let hooks = list(config, &format!("hooks.{}", stage(hook.hook_name)))?;
        let hook = oci_hook(hook);
        if !hooks.contains(&hook) {
            hooks.push(hook);
        }
    }
    if let Some(rdt) = &edits.intel_rdt {
        let rdt = serde_json::to_value(rdt).unwrap_or_default(); // strings and a flag always serialise
        object(config, "linux")?.insert("intelRdt".to_owned(), rdt);
    }
    for gid in edits.additional_gids.iter().filter(|gid| **gid != 0) {
        let gids = list(config, "process.user.additionalGids")?;
        if !gids.iter().any(|other| other == gid) {
            gids.push(json!(gid));
        }
    }
    Ok(())
}

fn set_variable(variables: &mut Vec<Value>, variable: &str) {
    let name = variable.split_once('=').map_or(variable, |(name, _)| name);
    let same = |other: &Value| {
        let other = other.as_str().and_then(|other| other.split_once('='));
        other.is_some_and(|(other, _)| other == name)
    };
    let mut first = true;
    variables.retain_mut(|other| {
        if !same(other) {
            return true;
        }
        *other = Value::from(variable);
        std::mem::take(&mut first)
    });
    if first {
        variables.push(Value::from(variable));
    }
}

fn add_device(config: &mut Value, node: &DeviceNode) -> Result<()> {
    let node = complete(node)?;
    let owner = |key: &str, own: Option<u32>| {
        let of_process = config["process"]["user"][key].as_u64().filter(|id| *id > 0);
        own.map(u64::from).or(of_process)
    };
    let ids = [("uid", owner("uid", node.uid)), ("gid", owner("gid", node.gid))];
    let mut device = Map::from_iter([
        ("path".to_owned(), json!(node.path)),
        ("type".to_owned(), json!(node.node_type)),
        ("major".to_owned(), json!(node.major)),
        ("minor".to_owned(), json!(node.minor)),
    ]);
    if let Some(mode) = node.file_mode {
        device.insert("fileMode".to_owned(), json!(mode));
    }
    for (key, id) in ids {
        device.extend(id.map(|id| (key.to_owned(), json!(id))));
    }
    let devices = list(config, "linux.devices")?;
    devices.retain(|other| other["path"] != node.path.as_str());
    devices.push(Value::Object(device));
    if let Some(kind @ ("b" | "c")) = node.node_type.as_deref() {
        let access = node
            .permissions
            .as_deref()
            .filter(|access| !access.is_empty())
            .unwrap_or("rwm");
        let rule = json!({
            "allow": true, "type": kind, "major": node.major, "minor": node.minor, "access": access,
        });
        let rules = list(config, "linux.resources.devices")?;
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    Ok(())
}

/// A device node with what a spec leaves to the host's.
fn complete(node: &DeviceNode) -> Result<DeviceNode> {
    let mut node = node.clone();
    let is_fifo = node.node_type.as_deref() == Some("p");
    if node.node_type.as_deref().is_some_and(|kind| !kind.is_empty()) && (node.major != 0 || is_fifo) {
        return Ok(node);
    }
    let path = PathBuf::from(node.host_path.as_ref().unwrap_or(&node.path));
    let (kind, major, minor) = host_device(&path)?;
    match node.node_type.as_deref() {
        None | Some("") => node.node_type = Some(kind.to_owned()),
        Some(expected) if expected == kind || (expected == "u" && kind == "c") => {}
        Some(expected) => {
            return Err(Error::DeviceType {
                path,
                expected: expected.to_owned(),
            });
        }
    }
    if node.major == 0 && kind != "p" {
        (node.major, node.minor) = (major, minor);
    }
    Ok(node)
}

fn host_device(path: &Path) -> Result<(&'static str, i64, i64)> {
    let error = |source| Error::Device {
        path: path.to_owned(),
        source,
    };
    let status = path.symlink_metadata().map_err(error)?;
    let kind = match status.file_type() {
        kind if kind.is_char_device() => "c",
        kind if kind.is_block_device() => "b",
        kind if kind.is_fifo() => "p",
        _ => return Err(error(io::Error::new(io::ErrorKind::InvalidInput, "not a device node"))),
    };
    let number = status.rdev();
    Ok((kind, rustix::fs::major(number).into(), rustix::fs::minor(number).into()))
}

fn oci_mount(mount: &Mount) -> Value {
    let mut entry = Map::from_iter([
        ("destination".to_owned(), json!(mount.container_path)),
        ("source".to_owned(), json!(mount.host_path)),
    ]);
    if let Some(kind) = &mount.mount_type {
        entry.insert("type".to_owned(), json!(kind));
    }
    if !mount.options.is_empty() {
        entry.insert("options".to_owned(), json!(mount.options));
    }
    Value::Object(entry)
}

fn oci_hook(hook: &Hook) -> Value {
    let mut entry = Map::from_iter([("path".to_owned(), json!(hook.path))]);
    for (key, words) in [("args", &hook.args), ("env", &hook.env)] {
        if !words.is_empty() {
            entry.insert(key.to_owned(), json!(words));
        }
    }
    entry.extend(hook.timeout.map(|timeout| ("timeout".to_owned(), json!(timeout))));
    Value::Object(entry)
}

fn stage(stage: HookStage) -> &'static str {
    match stage {
        HookStage::Prestart => "prestart",
        HookStage::CreateRuntime => "createRuntime",
        HookStage::CreateContainer => "createContainer",
        HookStage::StartContainer => "startContainer",
        HookStage::Poststart => "poststart",
        HookStage::Poststop => "poststop",
    }
}

fn depth(path: &str) -> usize {
    path.split('/').filter(|part| !part.is_empty() && *part != ".").count()
}
