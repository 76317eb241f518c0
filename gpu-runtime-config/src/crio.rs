//! CRI-O: a drop-in that is wholly ours; the main file is never touched.
//!
//! CRI-O reads its main file and then every file of its drop-in directory in alphabetical order, the last one winning;
//! a runtime that two files name is the later file's alone. CDI needs no switch there, only its directories are set.

use std::path::Path;

use crate::{
    drop_in_path,
    edit::{Format, parse},
    error::{Error, Result},
    plan::{Notice, Plan, Snapshot, draft, plan},
    receipt::{Receipt, drafts},
    runtime::{Settings, low_level, missing_directories, template_names},
    toml_text::block,
    value::{Table, Value},
};

/// The files of one CRI-O, as found on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// The main file, by default `/etc/crio/crio.conf`.
    pub main: Snapshot,
    /// The drop-in that is ours, by default `/etc/crio/crio.conf.d/99-nvidia.toml`.
    pub drop_in: Snapshot,
    /// All files of the drop-in directory in alphabetical order. The drop-in may be among them.
    pub dropped_in: Vec<Snapshot>,
    /// Files that the receipt names and that are none of the above.
    pub other: Vec<Snapshot>,
}

/// Plans what makes CRI-O offer the runtimes, each with the options of its own default runtime.
///
/// # Errors
/// When a file cannot be read, when the drop-in's path holds something else, and when a later drop-in would undo the change.
pub fn configure(files: &Files, settings: &Settings, receipt: Option<&Receipt>) -> Result<Plan> {
    settings.check(true)?;
    drop_in_path::check(&files.drop_in.path, &files.main.path)?;
    let mut found = vec![files.drop_in.clone(), files.main.clone()];
    found.extend(files.dropped_in.iter().chain(&files.other).cloned());
    let (mut drafts, mut notices) = drafts(&found, receipt, Format::Toml)?;

    let mut read = Vec::new();
    for snapshot in std::iter::once(&files.main).chain(&files.dropped_in) {
        let base = drafts
            .iter()
            .find(|draft| draft.path == snapshot.path)
            .and_then(|draft| draft.base.clone());
        if let Some(text) = base.filter(|_| snapshot.path != files.drop_in.path) {
            read.push((snapshot.path.as_path(), parse(Format::Toml, &snapshot.path, &text)?));
        }
    }
    let desired = desired(&merge(read.iter().map(|(_, value)| value)), settings, &mut notices);
    let runtime = Value::nested(&["crio", "runtime"], Value::Table(desired));
    let wanted = runtime
        .missing_from(Some(&merge(read.iter().map(|(_, value)| value))))
        .is_some();

    if let Some(draft) = draft(&mut drafts, &files.drop_in.path) {
        let foreign = draft.base.clone().filter(|text| !text.starts_with(HEADER));
        if let Some(text) = &foreign {
            check_replaceable(&draft.path, &parse(Format::Toml, &draft.path, text)?)?;
            notices.extend(wanted.then(|| Notice::DropInReplaced {
                path: draft.path.clone(),
            }));
        } else {
            // One of ours whose receipt was lost is no state to go back to.
            draft.base = None;
            draft.wanted = None;
        }
        if wanted && let Some(table) = runtime.get(&["crio", "runtime"]).and_then(Value::as_table) {
            draft.wanted = Some(format!("{HEADER}{}\n", block(&["crio", "runtime"], table).join("\n")));
            check_effect(&runtime, settings, &read, &draft.path)?;
        }
    }
    plan(drafts, notices)
}

/// The programs behind the runtimes that options are copied from, the node's own default first, then `runc` and `crun`.
///
/// # Errors
/// When a file cannot be read.
pub fn low_level_runtimes(files: &Files, settings: &Settings) -> Result<Vec<String>> {
    let mut read = Vec::new();
    for file in std::iter::once(&files.main).chain(&files.dropped_in) {
        read.push(parse(
            Format::Toml,
            &file.path,
            file.text.as_deref().unwrap_or_default(),
        )?);
    }
    let merged = merge(&read);
    let default = merged
        .get(&["crio", "runtime", "default_runtime"])
        .and_then(Value::as_str);
    let program = |name: &String| {
        merged
            .get(&["crio", "runtime", "runtimes", name, "runtime_path"])?
            .as_str()
    };
    Ok(low_level(default, settings, program))
}

/// How a drop-in of ours begins.
const HEADER: &str = "# Written by gpu-runtime-config. Changes made here are lost when it is written again.\n";

/// What CRI-O makes of several files: tables are merged, but each runtime is one file's.
fn merge<'v>(files: impl IntoIterator<Item = &'v Value>) -> Value {
    let mut merged = Value::Table(Table::new());
    for file in files {
        let runtimes = file.get(&["crio", "runtime", "runtimes"]).and_then(Value::as_table);
        if let Some(Value::Table(existing)) = runtimes_mut(&mut merged) {
            existing.retain(|name, _| runtimes.is_none_or(|runtimes| !runtimes.contains_key(name)));
        }
        merged.overlay(file);
    }
    merged
}

fn runtimes_mut(value: &mut Value) -> Option<&mut Value> {
    ["crio", "runtime", "runtimes"]
        .iter()
        .try_fold(value, |value, key| match value {
            Value::Table(table) => table.get_mut(*key),
            _ => None,
        })
}

/// What `[crio.runtime]` must hold.
fn desired(merged: &Value, settings: &Settings, notices: &mut Vec<Notice>) -> Table {
    let in_force = |key: &str| merged.get(&["crio", "runtime", key]);
    let mut table = Table::new();
    let default = in_force("default_runtime").and_then(Value::as_str);
    match &settings.default_runtime {
        Some(name) => drop(table.insert("default_runtime".to_owned(), Value::string(name))),
        None => {
            if let Some(name) = default.filter(|name| settings.names(name)) {
                notices.push(Notice::DefaultKept { name: name.to_owned() });
            }
        }
    }
    // Options of a virtual machine's runtime would not fit a wrapper of runc.
    let is_oci = |runtime: &&Value| {
        let kind = runtime
            .get(&["runtime_type"])
            .and_then(Value::as_str)
            .unwrap_or_default();
        runtime.as_table().is_some() && matches!(kind, "" | "oci")
    };
    let named = template_names(default, settings);
    let template = named
        .iter()
        .find_map(|name| in_force("runtimes")?.get(&[name]).filter(is_oci));
    let runtimes: Table = settings
        .runtimes
        .iter()
        .map(|runtime| {
            let mut value = template.cloned().unwrap_or_else(|| Value::Table(Table::new()));
            value.overlay(&Value::nested(&["runtime_path"], Value::string(&runtime.path)));
            value.overlay(&Value::nested(&["runtime_type"], Value::string("oci")));
            (runtime.name.clone(), value)
        })
        .collect();
    if !runtimes.is_empty() {
        table.insert("runtimes".to_owned(), Value::Table(runtimes));
    }
    if let Some(cdi) = &settings.cdi {
        let directories = in_force("cdi_spec_dirs").and_then(Value::as_array);
        let directories = directories.map(|list| list.iter().filter_map(Value::as_str).map(str::to_owned).collect());
        if let Some(directories) = missing_directories(cdi, directories) {
            table.insert("cdi_spec_dirs".to_owned(), Value::strings(directories));
        }
    }
    table
}

/// Refuses to replace a file that configures more than runtimes.
fn check_replaceable(path: &Path, value: &Value) -> Result<()> {
    let foreign = |key: String| {
        Err(Error::ForeignDropIn {
            path: path.to_owned(),
            key,
        })
    };
    let sections = [(vec![], vec!["crio"]), (vec!["crio"], vec!["runtime"])];
    for (at, allowed) in sections {
        if let Some(other) = value
            .get(&at)
            .and_then(Value::as_table)
            .and_then(|table| table.keys().find(|key| !allowed.contains(&key.as_str())))
        {
            return foreign([&at[..], &[other.as_str()]].concat().join("."));
        }
    }
    let allowed = ["runtimes", "default_runtime", "cdi_spec_dirs"];
    match value.get(&["crio", "runtime"]).and_then(Value::as_table) {
        Some(runtime) => match runtime.keys().find(|key| !allowed.contains(&key.as_str())) {
            Some(other) => foreign(format!("crio.runtime.{other}")),
            None => Ok(()),
        },
        None => Ok(()),
    }
}

/// Refuses a change that a file which is read later would undo.
fn check_effect(ours: &Value, settings: &Settings, read: &[(&Path, Value)], drop_in: &Path) -> Result<()> {
    let mut keys = vec![vec!["default_runtime"]];
    keys.extend(
        settings
            .runtimes
            .iter()
            .map(|runtime| vec!["runtimes", runtime.name.as_str(), "runtime_path"]),
    );
    for (path, value) in read.iter().skip(1).filter(|(path, _)| *path > drop_in) {
        for key in &keys {
            let key = [&["crio", "runtime"], &key[..]].concat();
            if let (Some(wanted), Some(later)) = (ours.get(&key), value.get(&key))
                && wanted != later
            {
                return Err(Error::Overridden {
                    path: (*path).to_owned(),
                    key: key.join("."),
                });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::{Cdi, Runtime, revert};

    const MAIN: &str = "[crio.runtime]\ndefault_runtime = \"crun\"\n[crio.runtime.runtimes.crun]\nruntime_path = \"/usr/bin/crun\"\nmonitor_path = \"/usr/bin/conmon\"\n";

    fn files(dropped_in: Vec<Snapshot>) -> Files {
        Files {
            main: Snapshot::new("/etc/crio/crio.conf", MAIN),
            drop_in: Snapshot::absent("/etc/crio/crio.conf.d/99-nvidia.toml"),
            dropped_in,
            other: vec![],
        }
    }

    fn settings() -> Settings {
        Settings {
            runtimes: vec![Runtime::new("nvidia", "/t/nvidia-container-runtime")],
            default_runtime: Some("nvidia".into()),
            cdi: Some(Cdi {
                spec_dirs: vec!["/run/cdi".into()],
            }),
            ..Settings::default()
        }
    }

    #[test]
    fn the_drop_in_copies_the_default_runtimes_options() {
        let plan = configure(&files(vec![]), &settings(), None).unwrap();
        expect![[r#"
            # Written by gpu-runtime-config. Changes made here are lost when it is written again.
            [crio.runtime]
              cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi", "/run/cdi"]
              default_runtime = "nvidia"
              [crio.runtime.runtimes.nvidia]
                monitor_path = "/usr/bin/conmon"
                runtime_path = "/t/nvidia-container-runtime"
                runtime_type = "oci"
        "#]]
        .assert_eq(plan.changes[0].after.as_deref().unwrap());

        let written = Snapshot::new(
            "/etc/crio/crio.conf.d/99-nvidia.toml",
            plan.changes[0].after.clone().unwrap(),
        );
        let again = Files {
            drop_in: written.clone(),
            ..files(vec![written.clone()])
        };
        assert!(
            configure(&again, &settings(), plan.receipt.as_ref())
                .unwrap()
                .is_empty()
        );
        assert!(
            configure(&again, &settings(), None).unwrap().is_empty(),
            "without the receipt"
        );
        let back = revert(&[written], &plan.receipt.unwrap()).unwrap();
        assert_eq!(back.changes[0].after, None);
    }

    #[test]
    fn a_later_drop_in_that_wins_is_named() {
        let later = Snapshot::new(
            "/etc/crio/crio.conf.d/99-z.conf",
            "[crio.runtime]\ndefault_runtime = \"runc\"\n",
        );
        let error = configure(&files(vec![later]), &settings(), None).unwrap_err();
        let expected = "`crio.runtime.default_runtime` would not take effect: `/etc/crio/crio.conf.d/99-z.conf` is merged later and sets it otherwise";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn a_drop_in_with_more_than_runtimes_is_left_alone() {
        let taken = Snapshot::new(
            "/etc/crio/crio.conf.d/99-nvidia.toml",
            "[crio.image]\npause_image = \"x\"\n",
        );
        let error = configure(
            &Files {
                drop_in: taken,
                ..files(vec![])
            },
            &settings(),
            None,
        )
        .unwrap_err();
        assert!(matches!(error, Error::ForeignDropIn { key, .. } if key == "crio.image"));
    }
}
