//! What the crate promises, over the corpus and over files made at random.

use gpu_runtime_config::{Cdi, Plan, Receipt, Runtime, Settings, Snapshot, containerd, docker, revert};
use proptest::prelude::*;

use crate::{
    corpus::{CONTAINERD, DOCKER},
    meaning::{toml, without_empty_tables},
};

fn meaning(text: &str) -> serde_json::Value {
    without_empty_tables(&toml(text))
}

const MAIN: &str = "/etc/containerd/config.toml";
const DROP_IN: &str = "/etc/containerd/conf.d/99-nvidia.toml";

fn files(text: &str) -> containerd::Files {
    containerd::Files {
        main: Snapshot::new(MAIN, text),
        drop_in: Snapshot::absent(DROP_IN),
        imported: vec![],
        other: vec![],
    }
}

fn variants() -> Vec<Settings> {
    let vendor = |default| Settings::vendor("/usr/local/nvidia/toolkit", "nvidia", default);
    let cdi = Some(Cdi {
        spec_dirs: vec!["/etc/cdi".into(), "/run/cdi".into()],
    });
    vec![
        vendor(false),
        Settings {
            cdi: Some(Cdi::default()),
            ..vendor(true)
        },
        Settings {
            cdi,
            container_annotations: vec!["cdi.k8s.io/*".into()],
            ..vendor(false)
        },
        Settings {
            cdi: Some(Cdi::default()),
            ..Settings::default()
        },
        Settings {
            runtimes: vec![Runtime::new("gpu", "/opt/\"odd\" name")],
            ..Settings::default()
        },
    ]
}

fn after(found: &containerd::Files, plan: &Plan) -> containerd::Files {
    let text = |snapshot: &Snapshot| {
        let change = plan.changes.iter().find(|change| change.path == snapshot.path);
        change.map_or(snapshot.text.clone(), |change| change.after.clone())
    };
    containerd::Files {
        main: Snapshot {
            path: MAIN.into(),
            text: text(&found.main),
        },
        drop_in: Snapshot {
            path: DROP_IN.into(),
            text: text(&found.drop_in),
        },
        ..found.clone()
    }
}

fn revert_all(now: &containerd::Files, receipt: Option<&Receipt>) -> containerd::Files {
    match receipt {
        Some(receipt) => after(
            now,
            &revert(&[now.main.clone(), now.drop_in.clone()], receipt).expect("reverts"),
        ),
        None => now.clone(),
    }
}

/// Every promise that concerns one file of containerd.
#[track_caller]
fn check(text: &str, daemon: Option<containerd::Version>, placement: containerd::Placement, settings: &Settings) {
    let found = files(text);
    let configure =
        |files: &_, receipt: Option<&Receipt>| containerd::configure(files, daemon, placement, settings, receipt);
    let plan = match configure(&found, None) {
        Ok(plan) => plan,
        Err(error) => panic!("{error}\n{text}"),
    };
    let configured = after(&found, &plan);
    let main = configured.main.text.clone().unwrap_or_default();

    // Nothing of the old text is lost or moved but values that had to change.
    assert_kept(text, &main);
    // Twice changes nothing, with the receipt or without.
    let again = configure(&configured, plan.receipt.as_ref()).expect("twice");
    assert_eq!(
        (again.changes, again.receipt),
        (vec![], plan.receipt.clone()),
        "twice:\n{main}"
    );
    assert_eq!(
        configure(&configured, None).expect("twice").changes,
        vec![],
        "twice without receipt:\n{main}"
    );
    // The receipt survives being kept.
    let receipt = plan
        .receipt
        .map(|receipt| Receipt::from_json(&receipt.to_json()).expect("reads back"));
    assert_eq!(revert_all(&configured, receipt.as_ref()), found, "reverted");

    // With an edit of somebody else in between, only ours goes.
    let edit = |text: &str| format!("{text}{}[somebody.s]\nsetting = 1 # theirs\n", newline_if_missing(text));
    let mut edited = configured.clone();
    edited.main.text = Some(edit(&main));
    let back = revert_all(&edited, receipt.as_ref());
    let back = back.main.text.unwrap_or_default();
    assert_eq!(meaning(&back), meaning(&edit(text)), "reverted after an edit:\n{back}");
    assert_kept(text, &back);
}

fn newline_if_missing(text: &str) -> &'static str {
    if text.is_empty() || text.ends_with('\n') {
        ""
    } else {
        "\n"
    }
}

/// Whether all characters of a line are in another, in order.
fn is_within(line: &str, other: &str) -> bool {
    let mut characters = other.chars();
    line.chars().all(|wanted| characters.any(|found| found == wanted))
}

/// All characters of the old text are in the new one, in order, but for those of values that are replaced.
#[track_caller]
fn assert_kept(old: &str, new: &str) {
    let mut lines = new.lines().peekable();
    for line in old.lines() {
        if lines.any(|other| other == line) {
            continue;
        }
        // The line was changed: all of it but a value must be in one of the new lines, its comment above all.
        let key = line.split('=').next().unwrap_or(line);
        let comment = line.rsplit_once(" #").map_or("", |(_, comment)| comment);
        let kept = |other: &str| is_within(line, other) || (other.starts_with(key) && other.ends_with(comment));
        assert!(new.lines().any(kept), "lost `{line}` of\n{old}\nin\n{new}");
        lines = new.lines().peekable();
        while lines.peek().is_some_and(|other| !kept(other)) {
            lines.next();
        }
    }
    assert_eq!(old.contains("\r\n"), new.contains("\r\n"));
}

#[test]
fn every_file_of_the_corpus_keeps_its_promises() {
    for sample in CONTAINERD {
        for daemon in sample
            .daemons
            .iter()
            .map(|daemon| {
                daemon
                    .parse()
                    .unwrap_or_else(|error| panic!("{}: {error}", sample.name))
            })
            .map(Some)
            .chain([None])
        {
            for placement in [
                containerd::Placement::Auto,
                containerd::Placement::InPlace,
                containerd::Placement::DropIn,
            ] {
                for settings in &variants() {
                    check(sample.text, daemon, placement, settings);
                }
            }
        }
    }
}

#[test]
fn every_daemon_json_keeps_its_promises() {
    for text in DOCKER {
        for settings in &variants() {
            check_docker(text, settings);
        }
    }
}

#[track_caller]
fn check_docker(text: &str, settings: &Settings) {
    let main = Snapshot::new("/etc/docker/daemon.json", text);
    let configure = |text: &str, receipt: Option<&Receipt>| {
        docker::configure(&Snapshot::new("/etc/docker/daemon.json", text), &[], settings, receipt).expect("configures")
    };
    let plan = configure(text, None);
    let new = plan
        .changes
        .first()
        .map_or(text.to_owned(), |change| change.after.clone().unwrap_or_default());
    assert!(configure(&new, plan.receipt.as_ref()).is_empty(), "twice");
    assert!(configure(&new, None).is_empty(), "twice without receipt");
    let Some(receipt) = plan.receipt else { return };
    let back = revert(&[Snapshot::new(&main.path, &*new)], &receipt).expect("reverts");
    assert_eq!(back.changes[0].after.as_deref(), Some(text), "reverted");

    // With another key of somebody else, only ours goes.
    let open = new.find('{').expect("an object") + 1;
    let edited = format!("{}\"somebody\":[true],{}", &new[..open], &new[open..]);
    let back = revert(&[Snapshot::new(&main.path, edited)], &receipt).expect("reverts");
    let back: serde_json::Value = serde_json::from_str(back.changes[0].after.as_ref().expect("stays")).expect("JSON");
    let mut expected: serde_json::Value =
        serde_json::from_str(if text.is_empty() { "{}" } else { text }).expect("JSON");
    expected["somebody"] = serde_json::json!([true]);
    for section in ["runtimes", "features"] {
        if expected.get(section).is_none() {
            assert!(
                back.get(section)
                    .is_none_or(|value| value.as_object().is_some_and(serde_json::Map::is_empty))
            );
        }
    }
    let mut back = back;
    for section in ["runtimes", "features"] {
        if back.get(section) == Some(&serde_json::json!({})) && expected.get(section).is_none() {
            back.as_object_mut().expect("an object").remove(section);
        }
    }
    assert_eq!(back, expected);
}

/// How the CRI plugin's table is written.
fn cri_table() -> impl Strategy<Value = String> {
    let nested = (any::<bool>(), any::<bool>(), any::<bool>(), 0usize..3).prop_map(|(default, cdi, nvidia, step)| {
        let pad = |level: usize| " ".repeat(level * step);
        let base = "plugins.\"io.containerd.grpc.v1.cri\"";
        let mut text = vec![format!("[{base}] # t1\n{}sandbox_image = 'p' # t2\n", pad(1))];
        if cdi {
            text.push(format!("{}enable_cdi = false # t3\n", pad(1)));
        }
        if default {
            text.push(format!(
                "{p}[{base}.containerd]\n{p}# t4\n{p}default_runtime_name = \"runc\" # t5\n",
                p = pad(1)
            ));
        }
        text.push(format!(
            "{p}[{base}.containerd.runtimes.runc]\n{q}runtime_type = \"io.containerd.runc.v2\"\n{q}# t6\n",
            p = pad(2),
            q = pad(3)
        ));
        if nvidia {
            text.push(format!(
                "\n{p}[{base}.containerd.runtimes.nvidia.options] # t7\n{q}BinaryName = '/old' # t8\n",
                p = pad(2),
                q = pad(3)
            ));
        }
        text.concat()
    });
    let dotted = any::<bool>().prop_map(|nvidia| {
        let old = if nvidia { "'io.containerd.grpc.v1.cri'.containerd.runtimes.nvidia.options.BinaryName = '/old' # d2\n" } else { "" };
        format!("[plugins]\n'io.containerd.grpc.v1.cri'.containerd.runtimes.runc.options.SystemdCgroup = true # d1\n{old}# d3\n")
    });
    let inline = any::<bool>().prop_map(|dotted| {
        let runc = if dotted {
            "runc.runtime_type = 'x'"
        } else {
            "runc = { runtime_type = 'x' }"
        };
        format!("[plugins.'io.containerd.grpc.v1.cri']\ncontainerd = {{ runtimes = {{ {runc} }} }} # i1\n")
    });
    prop_oneof![4 => nested, 1 => dotted, 1 => inline, 1 => Just(String::new())]
}

/// The keys before the first header.
fn root() -> impl Strategy<Value = String> {
    let imports = prop_oneof![
        Just(""),
        Just("imports = []\n"),
        Just("imports = ['/etc/containerd/conf.d/*.toml'] # r1\n"),
        Just("imports = [\n  '/a', # r2\n  # r3\n  '/b' # r4\n]\n"),
        Just("imports = [ # r5\n  '/a',\n]\n"),
    ];
    let head = prop_oneof![
        Just(""),
        Just("# h1\n"),
        Just("# h2\n\n"),
        Just("\n"),
        Just("\u{feff}# h3\n")
    ];
    (head, imports, any::<bool>()).prop_map(|(head, imports, first)| {
        if first {
            format!("{head}version = 2 # r6\n{imports}")
        } else {
            format!("{head}{imports}\nversion = 2\n# r7\n")
        }
    })
}

/// Tables of no interest.
fn other() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just("\n# o1\n[debug]\n  level = 'info' # o2\n".to_owned()),
        Just("[[things]]\nx = 1\n[[things]]\n[things.sub]\ny = [ 1, # o3\n 2 ]\n".to_owned()),
        Just("[timeouts]\n'a.b' = \"\"\"\n[fake]\n\"\"\"\n# o4\n\n".to_owned()),
        Just("[plugins.'io.containerd.gc.v1.scheduler']\npause = 0.02\n# o5\n".to_owned()),
        "[a-z]{1,6}".prop_map(|key| format!("[x.{key}]\n{key} = 1979-05-27T07:32:00Z # o6\n")),
    ]
}

fn document() -> impl Strategy<Value = String> {
    (root(), other(), cri_table(), other(), any::<bool>(), any::<bool>()).prop_filter_map(
        "valid TOML only",
        |(root, before, cri, after, crlf, cut)| {
            let mut text = format!("{root}{before}{cri}{after}");
            if crlf {
                text = text.replace('\n', "\r\n");
            }
            if cut {
                text.truncate(text.trim_end().len());
            }
            text.parse::<toml_edit::DocumentMut>().is_ok().then_some(text)
        },
    )
}

/// How often a comment occurs; every comment of the random files is there once.
fn comments(text: &str) -> Vec<&str> {
    let words = text.split_whitespace().collect::<Vec<_>>();
    let mut found: Vec<&str> = words
        .windows(2)
        .filter(|pair| pair[0] == "#")
        .map(|pair| pair[1])
        .collect();
    found.sort_unstable();
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_file_keeps_its_promises(text in document(), variant in 0usize..5, daemon in 0usize..5, placement in 0usize..3) {
        let daemon = [None, Some("1.6"), Some("1.7"), Some("2.1"), Some("2.3")][daemon].map(|daemon| daemon.parse().expect("a version"));
        let placement = [containerd::Placement::Auto, containerd::Placement::InPlace, containerd::Placement::DropIn][placement];
        // containerd 2 does not read a byte order mark.
        let daemon = daemon.filter(|daemon: &containerd::Version| daemon.major < 2 || !text.starts_with('\u{feff}'));
        let settings = &variants()[variant];
        check(&text, daemon, placement, settings);
        let plan = containerd::configure(&files(&text), daemon, placement, settings, None).expect("configures");
        let main = after(&files(&text), &plan).main.text.unwrap_or_default();
        prop_assert_eq!(comments(&main), comments(&text));
    }

    #[test]
    fn a_damaged_file_is_refused_or_kept(sample in 0..CONTAINERD.len(), at in any::<prop::sample::Index>(), with in "[\\[\\]{}=#\"'.,\\n a]{0,3}") {
        let mut text = CONTAINERD[sample].text.to_owned();
        let mut offset = at.index(text.len() + 1);
        while !text.is_char_boundary(offset) {
            offset -= 1;
        }
        text.insert_str(offset, &with);
        let settings = &variants()[1];
        for placement in [containerd::Placement::InPlace, containerd::Placement::DropIn] {
            if let Ok(plan) = containerd::configure(&files(&text), None, placement, settings, None) {
                let configured = after(&files(&text), &plan);
                prop_assert_eq!(revert_all(&configured, plan.receipt.as_ref()), files(&text));
            }
        }
    }

    #[test]
    fn any_text_is_answered(text in "\\PC{0,40}") {
        let _ = containerd::configure(&files(&text), None, containerd::Placement::InPlace, &variants()[0], None);
        let _ = docker::configure(&Snapshot::new("/d", &*text), &[], &variants()[0], None);
        let _ = Receipt::from_json(&text);
    }

    #[test]
    fn any_json_keeps_its_promises(value in json(), indent in 0usize..4) {
        let text = match indent {
            0 => serde_json::to_string(&value).expect("JSON"),
            1 => serde_json::to_string_pretty(&value).expect("JSON"),
            2 => serde_json::to_string_pretty(&value).expect("JSON").replace("  ", "\t") + "\n",
            _ => serde_json::to_string_pretty(&value).expect("JSON").replace('\n', "\r\n"),
        };
        check_docker(&text, &variants()[1]);
    }
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(serde_json::Value::from),
        any::<i64>().prop_map(serde_json::Value::from),
        "\\PC{0,6}".prop_map(serde_json::Value::from),
    ];
    let value = leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
            prop::collection::btree_map("[a-z]{1,4}", inner, 0..4).prop_map(|map| map.into_iter().collect()),
        ]
    });
    let features = prop::option::of(prop::collection::btree_map("[a-z]{1,3}", any::<bool>(), 0..3));
    (prop::collection::btree_map("[A-Z]{1,4}", value, 0..4), features).prop_map(|(map, features)| {
        let mut value: serde_json::Value = map.into_iter().collect();
        if let Some(features) = features {
            value["features"] = serde_json::json!(features);
        }
        value
    })
}
