//! The vendor's recorded runs, replayed: the engine must end up with the same meaning.

use std::{collections::BTreeSet, fs, path::Path};

use gpu_runtime_config::{Cdi, Plan, Runtime, Settings, Snapshot, containerd, crio, docker, toolkit};
use serde_json::{Map, Value};

use crate::meaning::{toml, without_empty_tables};

#[derive(serde::Deserialize)]
struct Case {
    engine: String,
    main: String,
    drop_in: Option<String>,
    name: String,
    path: String,
    set_as_default: bool,
    cdi: bool,
    before: Option<String>,
    main_after: Option<String>,
    drop_in_after: Option<String>,
}

impl Case {
    fn settings(&self) -> Settings {
        Settings {
            runtimes: vec![Runtime::new(&self.name, &self.path)],
            default_runtime: self.set_as_default.then(|| self.name.clone()),
            cdi: self.cdi.then(Cdi::default),
            container_annotations: vec![],
        }
    }

    fn main(&self) -> Snapshot {
        Snapshot {
            path: self.main.clone().into(),
            text: self.before.clone(),
        }
    }
}

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/upstream/nvidia-ctk-1.20"))
}

/// All cases of an engine by name.
fn cases(engine: &str) -> Vec<(String, Case)> {
    let mut cases = Vec::new();
    for entry in fs::read_dir(folder()).expect("the recorded cases") {
        let path = entry.expect("a recorded case").path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let text = fs::read_to_string(&path).expect("a recorded case");
            let case: Case = serde_json::from_str(&text).expect("a recorded case");
            if case.engine == engine {
                cases.push((
                    path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
                    case,
                ));
            }
        }
    }
    cases.sort_by(|(left, _), (right, _)| left.cmp(right));
    cases
}

/// The text of a file after a plan.
fn after(plan: &Plan, found: &Snapshot) -> Option<String> {
    let change = plan.changes.iter().find(|change| change.path == found.path);
    change.map_or(found.text.clone(), |change| change.after.clone())
}

/// What is not Go's zero value, which is the same as nothing for every key that these files hold.
fn without_zeros(value: &Value) -> Value {
    match value {
        Value::Object(table) => {
            let kept = table.iter().map(|(key, value)| (key.clone(), without_zeros(value)));
            Value::Object(
                kept.filter(|(_, value)| !matches!(value, Value::Bool(false)) && value != "")
                    .collect(),
            )
        }
        other => other.clone(),
    }
}

/// The CRI plugin's table of a main file and a drop-in, merged as containerd 1 does (the later table replaces).
fn merged(main: &str, drop_in: Option<&str>, replaces: bool) -> Value {
    let plugins = |text: &str| {
        let value = toml(text);
        let plugins = value
            .get("plugins")
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default();
        assert!(plugins.len() <= 1, "only the CRI plugin is in these files");
        plugins
            .into_iter()
            .next()
            .map_or(Value::Object(Map::new()), |(_, cri)| cri)
    };
    let mut cri = plugins(main);
    if let Some(drop_in) = drop_in {
        if replaces {
            cri = plugins(drop_in);
        } else {
            overlay(&mut cri, plugins(drop_in));
        }
    }
    without_zeros(&cri)
}

fn overlay(under: &mut Value, over: Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                overlay(under.entry(key).or_insert(Value::Null), value);
            }
        }
        (under, over) => *under = over,
    }
}

/// The dotted keys of all leaves.
fn leaves(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value.as_object() {
        Some(table) => table
            .iter()
            .for_each(|(key, value)| leaves(value, &format!("{path}/{key}"), found)),
        None => drop(found.insert(format!("{path} = {value}"))),
    }
}

/// Compares two meanings; `better` are the leaves that only ours has, on purpose.
#[track_caller]
fn same(case: &str, ours: &Value, theirs: &Value, better: &[&str]) {
    let (mut left, mut right) = (BTreeSet::new(), BTreeSet::new());
    leaves(ours, "", &mut left);
    leaves(theirs, "", &mut right);
    let only_ours: Vec<_> = left.difference(&right).map(String::as_str).collect();
    let only_theirs: Vec<_> = right.difference(&left).collect();
    assert_eq!(only_ours, better, "{case}: only ours");
    assert!(only_theirs.is_empty(), "{case}: only theirs: {only_theirs:?}");
}

#[test]
fn containerd_ends_up_as_with_the_vendors_tool() {
    let cases = cases("containerd");
    assert_eq!(cases.len(), 18);
    for (name, case) in cases {
        let drop_in = Snapshot::absent(case.drop_in.clone().unwrap());
        let files = containerd::Files {
            main: case.main(),
            drop_in: drop_in.clone(),
            imported: vec![],
            other: vec![],
        };
        // A file of version 3 needs containerd 2; both ways of merging must come to the same.
        let daemons: &[&str] = if name.starts_with("containerd-v3") {
            &["2.1"]
        } else {
            &["1.7", "2.1"]
        };
        for daemon in daemons
            .iter()
            .map(|daemon| daemon.parse::<containerd::Version>().unwrap())
        {
            let replaces = !daemon.merges_deeply();
            let is_blank = case.before.as_deref().unwrap_or_default().is_empty();
            if is_blank && !replaces {
                continue; // a new file has version 3 there, where the vendor's tool cannot know better than 2
            }
            let plan = containerd::configure(
                &files,
                Some(daemon),
                containerd::Placement::DropIn,
                &case.settings(),
                None,
            );
            let plan = plan.unwrap();
            let main = after(&plan, &files.main).unwrap();
            let ours = merged(&main, after(&plan, &drop_in).as_deref(), replaces);
            let mut theirs = merged(
                case.main_after.as_ref().unwrap(),
                case.drop_in_after.as_deref(),
                replaces,
            );
            let mut better = vec![];
            if name.starts_with("containerd-v1") {
                // Upstream leaves the file of version 1 without `imports`, so that its drop-in has no effect; its
                // `enable_cdi` is at a level where nothing reads it.
                assert_eq!(after(&plan, &drop_in), None, "{name}");
                if theirs["containerd"]
                    .as_object_mut()
                    .unwrap()
                    .remove("enable_cdi")
                    .is_some()
                {
                    better.push("/enable_cdi = true");
                }
            }
            if case.cdi
                && !replaces
                && case.before.as_deref().is_some_and(|text| !text.contains("enable_cdi"))
                && !name.starts_with("containerd-v1")
            {
                // It is on by default from 2.0 on.
                theirs.as_object_mut().unwrap().remove("enable_cdi");
            }
            if case.cdi && !replaces && name.starts_with("containerd-v1") {
                better.clear();
            }
            if is_blank {
                // The built-in runc, which containerd 1 loses by the first runtime in a file.
                better.push("/containerd/runtimes/runc/runtime_type = \"io.containerd.runc.v2\"");
            }
            same(&name, &ours, &theirs, &better);
            // Upstream rewrites the main file; here every line of it stays.
            let mut lines = main.lines();
            for line in case.before.as_deref().unwrap_or_default().lines() {
                let changed = line.contains("default_runtime_name") || line.starts_with("imports");
                assert!(changed || lines.any(|other| other == line), "{name}: lost `{line}`");
            }
        }
    }
}

#[test]
fn crio_ends_up_as_with_the_vendors_tool() {
    let cases = cases("crio");
    assert_eq!(cases.len(), 6);
    for (name, case) in cases {
        let drop_in = Snapshot::absent(case.drop_in.clone().unwrap());
        let files = crio::Files {
            main: case.main(),
            drop_in: drop_in.clone(),
            dropped_in: vec![],
            other: vec![],
        };
        let plan = crio::configure(&files, &case.settings(), None).unwrap();
        same(
            &name,
            &toml(&after(&plan, &drop_in).unwrap()),
            &toml(case.drop_in_after.as_ref().unwrap()),
            &[],
        );
        assert_eq!(after(&plan, &files.main), case.before, "{name}");
    }
}

#[test]
fn docker_ends_up_as_with_the_vendors_tool() {
    let cases = cases("docker");
    assert_eq!(cases.len(), 7);
    for (name, case) in cases {
        let plan = docker::configure(&case.main(), &[], &case.settings(), None).unwrap();
        let json = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        let ours = after(&plan, &case.main()).unwrap();
        assert_eq!(json(&ours), json(case.main_after.as_ref().unwrap()), "{name}");
    }
}

#[test]
fn the_toolkits_default_configuration_is_the_vendors() {
    let recorded = fs::read_to_string(folder().join("config-default.toml")).unwrap();
    assert_eq!(toml(&toolkit::defaults()), without_empty_tables(&toml(&recorded)));
    toolkit::check("config.toml".as_ref(), &recorded).unwrap();
    // The comments too: which keys the default file shows without setting them.
    let comments = |text: &str| {
        text.lines()
            .filter(|line| line.starts_with('#'))
            .map(str::to_owned)
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(comments(&toolkit::defaults()), comments(&recorded));
}
