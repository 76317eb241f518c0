//! What the CRI plugin's table must hold.

use super::{Version, file::ConfigFile, merged::Merged};
use crate::{
    error::{Error, Result},
    plan::Notice,
    runtime::{Runtime, Settings, missing_directories, template_names},
    value::{Table, Value},
};

/// The shim that all supported daemons have.
const RUNC_SHIM: &str = "io.containerd.runc.v2";

/// All that must be in the table, whether it is already or not.
pub(super) fn desired(
    merged: &Merged<'_>,
    settings: &Settings,
    main: &ConfigFile,
    daemon: Option<Version>,
    notices: &mut Vec<Notice>,
) -> Result<Value> {
    let legacy_default = merged
        .containerd("default_runtime")
        .and_then(|table| table.get(&["runtime_type"]));
    let is_old = !daemon.is_some_and(Version::merges_deeply);
    let mut containerd = Table::new();
    match &settings.default_runtime {
        Some(_) if is_old && legacy_default.is_some_and(|kind| !kind.is_zero()) => {
            return Err(Error::LegacyDefaultRuntime {
                path: main.path.clone(),
            });
        }
        Some(name) => drop(containerd.insert("default_runtime_name".to_owned(), Value::string(name))),
        None => {
            let default = merged.containerd("default_runtime_name").and_then(Value::as_str);
            if let Some(name) = default.filter(|name| settings.names(name)) {
                notices.push(Notice::DefaultKept { name: name.to_owned() });
            }
        }
    }
    let runtimes = runtimes(merged, settings, main.version, is_old, notices);
    if !runtimes.is_empty() {
        containerd.insert("runtimes".to_owned(), Value::Table(runtimes));
    }
    let mut cri = Table::new();
    if !containerd.is_empty() {
        cri.insert("containerd".to_owned(), Value::Table(containerd));
    }
    cdi(merged, settings, daemon, &mut cri, notices);
    Ok(Value::Table(cri))
}

fn runtimes(
    merged: &Merged<'_>,
    settings: &Settings,
    file_version: u32,
    is_old: bool,
    notices: &mut Vec<Notice>,
) -> Table {
    let existing = merged.containerd("runtimes").and_then(Value::as_table);
    let template = template(merged, settings);
    if template.is_none() && !settings.runtimes.is_empty() {
        notices.push(Notice::NoTemplate);
    }
    let template = template.unwrap_or_default();
    let mut runtimes = Table::new();
    for runtime in &settings.runtimes {
        let existing = existing.and_then(|existing| existing.get(&runtime.name));
        runtimes.insert(
            runtime.name.clone(),
            table(runtime, &template, existing, settings, file_version),
        );
    }
    // containerd 1 loses its built-in runc as soon as a file names a runtime.
    if is_old && existing.is_none() && !runtimes.is_empty() {
        runtimes.insert(
            "runc".to_owned(),
            Value::nested(&["runtime_type"], Value::string(RUNC_SHIM)),
        );
    }
    runtimes
}

/// The runtime whose options are copied.
fn template(merged: &Merged<'_>, settings: &Settings) -> Option<Table> {
    let default = merged.containerd("default_runtime_name").and_then(Value::as_str);
    let named = template_names(default, settings)
        .into_iter()
        .find_map(|name| merged.cri.get(&["containerd", "runtimes", &name]));
    named
        .or_else(|| merged.containerd("default_runtime"))
        .and_then(Value::as_table)
        .cloned()
}

fn table(
    runtime: &Runtime,
    template: &Table,
    existing: Option<&Value>,
    settings: &Settings,
    file_version: u32,
) -> Value {
    let mut table = template.clone();
    if table.get("runtime_type").is_none_or(Value::is_zero) {
        table.insert("runtime_type".to_owned(), Value::string(RUNC_SHIM));
    }
    let mut table = Value::Table(table);
    let path = Value::string(&runtime.path);
    table.overlay(&Value::nested(&["options", "BinaryName"], path.clone()));
    if file_version == 1 {
        // The shim of version 1 reads another option.
        table.overlay(&Value::nested(&["options", "Runtime"], path));
    }
    if !settings.container_annotations.is_empty() {
        let mut annotations: Vec<Value> = settings.container_annotations.iter().map(Value::string).collect();
        for source in [Some(&table), existing] {
            let present = source
                .and_then(|table| table.get(&["container_annotations"]))
                .and_then(Value::as_array);
            for annotation in present.unwrap_or_default() {
                if !annotations.contains(annotation) {
                    annotations.push(annotation.clone());
                }
            }
        }
        table.overlay(&Value::nested(&["container_annotations"], Value::Array(annotations)));
    }
    table
}

fn cdi(merged: &Merged<'_>, settings: &Settings, daemon: Option<Version>, cri: &mut Table, notices: &mut Vec<Notice>) {
    let Some(cdi) = &settings.cdi else { return };
    if let Some(daemon) = daemon.filter(|daemon| !daemon.has_cdi()) {
        notices.push(Notice::CdiUnsupported { daemon });
        return;
    }
    // From 2.0 on it is on unless a file says otherwise, and from 2.3 on naming it is deprecated.
    let on_by_default = daemon.is_some_and(Version::cdi_by_default);
    if !(on_by_default && merged.cri.get(&["enable_cdi"]).is_none()) {
        cri.insert("enable_cdi".to_owned(), Value::Bool(true));
    }
    let in_force = merged
        .cri
        .get(&["cdi_spec_dirs"])
        .and_then(Value::as_array)
        .map(|directories| {
            directories
                .iter()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect()
        });
    if let Some(directories) = missing_directories(cdi, in_force) {
        cri.insert("cdi_spec_dirs".to_owned(), Value::strings(directories));
    }
}
