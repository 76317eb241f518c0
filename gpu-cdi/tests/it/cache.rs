use std::{fs, path::Path};

use gpu_cdi::{Cache, LiveCache, QualifiedName};

/// A spec with one variable for each of its devices, and one for all.
fn spec(kind: &str, mark: &str, devices: &[&str]) -> String {
    let devices: Vec<_> = devices
        .iter()
        .map(|name| format!(r#"{{"name": "{name}", "containerEdits": {{"env": ["{mark}={name}"]}}}}"#))
        .collect();
    format!(
        r#"{{"cdiVersion": "0.5.0", "kind": "{kind}", "devices": [{}], "containerEdits": {{"env": ["ALL={mark}"]}}}}"#,
        devices.join(", ")
    )
}

struct Dirs {
    dir: tempfile::TempDir,
}

impl Dirs {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("the test's own files and names");
        for name in ["etc", "run"] {
            fs::create_dir(dir.path().join(name)).expect("the test's own files and names");
        }
        Self { dir }
    }

    fn write(&self, path: &str, text: &str) {
        fs::write(self.dir.path().join(path), text).expect("the test's own files and names");
    }

    fn read(&self) -> Cache {
        Cache::read(&["etc", "run", "absent"].map(|name| self.dir.path().join(name)))
    }
}

fn names(names: &[&str]) -> Vec<QualifiedName> {
    names
        .iter()
        .map(|name| name.parse().expect("the test's own files and names"))
        .collect()
}

fn env(cache: &Cache, devices: &[&str]) -> Vec<String> {
    let edits = cache.edits(&names(devices)).expect("the test's own files and names");
    edits.iter().flat_map(|edits| edits.env.clone()).collect()
}

#[test]
fn a_later_folder_goes_before_an_earlier_one() {
    let dirs = Dirs::new();
    dirs.write("etc/a.json", &spec("v.com/gpu", "etc", &["0", "1"]));
    dirs.write("run/z.json", &spec("v.com/gpu", "run", &["0"]));
    let cache = dirs.read();
    assert!(cache.problems().is_empty());
    assert_eq!(
        cache.devices().cloned().collect::<Vec<_>>(),
        names(&["v.com/gpu=0", "v.com/gpu=1"])
    );
    assert_eq!(env(&cache, &["v.com/gpu=0"]), ["ALL=run", "run=0"]);
    assert_eq!(
        cache.file_of(&names(&["v.com/gpu=1"])[0]),
        Some(&*dirs.dir.path().join("etc/a.json"))
    );
}

#[test]
fn a_folder_that_is_there_twice_counts_once_where_it_comes_last() {
    let dirs = Dirs::new();
    dirs.write("etc/a.json", &spec("v.com/gpu", "etc", &["0"]));
    dirs.write("run/z.json", &spec("v.com/gpu", "run", &["0"]));
    std::os::unix::fs::symlink("etc", dirs.dir.path().join("link")).expect("a new link");
    let folders = ["etc", "link", "run", "etc/"];
    let cache = Cache::read(&folders.map(|name| dirs.dir.path().join(name)));
    assert_eq!(cache.specs().count(), 2);
    assert_eq!(env(&cache, &["v.com/gpu=0"]), ["ALL=etc", "etc=0"]);
}

#[test]
fn what_all_of_a_spec_get_is_given_once() {
    let dirs = Dirs::new();
    dirs.write("run/a.json", &spec("v.com/gpu", "a", &["0", "1"]));
    dirs.write("run/b.json", &spec("v.com/nic", "b", &["0"]));
    let cache = dirs.read();
    let expected = ["ALL=a", "a=1", "ALL=b", "b=0", "a=0"];
    assert_eq!(env(&cache, &["v.com/gpu=1", "v.com/nic=0", "v.com/gpu=0"]), expected);
}

#[test]
fn a_device_of_two_files_of_one_folder_cannot_be_used() {
    let dirs = Dirs::new();
    dirs.write("etc/a.json", &spec("v.com/gpu", "etc", &["0"]));
    dirs.write("run/a.json", &spec("v.com/gpu", "a", &["0", "1"]));
    dirs.write("run/b.json", &spec("v.com/gpu", "b", &["0", "2"]));
    let cache = dirs.read();
    assert_eq!(
        cache.devices().cloned().collect::<Vec<_>>(),
        names(&["v.com/gpu=1", "v.com/gpu=2"])
    );
    let [problem] = cache.problems() else {
        panic!("{:?}", cache.problems())
    };
    let file = |name: &str| dirs.dir.path().join(name).display().to_string();
    assert_eq!(
        problem.to_string(),
        format!(
            "`{}`: `v.com/gpu=0` is described by `{}` too, so that it cannot be used",
            file("run/b.json"),
            file("run/a.json")
        )
    );
    let error = cache
        .edits(&names(&["v.com/gpu=1", "v.com/gpu=0", "v.com/gpu=7"]))
        .unwrap_err();
    assert_eq!(error.to_string(), "unresolvable CDI devices v.com/gpu=0, v.com/gpu=7");
}

#[test]
fn a_bad_file_is_named_and_the_others_are_read() {
    let dirs = Dirs::new();
    let good = spec("v.com/gpu", "a", &["0"]);
    dirs.write("run/good.yaml", &good);
    dirs.write("run/passed-over.yml", "nonsense");
    fs::create_dir(dirs.dir.path().join("run/folder.json")).unwrap();
    for (name, text) in [
        ("1-key", good.replace("cdiVersion", "cdiVersionn")),
        ("2-version", good.replace("0.5.0", "0.5.1")),
        ("3-old", good.replace("0.5.0", "0.3.0")),
        ("4-empty", spec("v.com/gpu", "a", &[])),
        ("5-twice", spec("v.com/gpu", "a", &["x", "x"])),
        ("6-text", "{".to_owned()),
    ] {
        dirs.write(&format!("run/{name}.json"), &text);
    }
    let cache = dirs.read();
    assert_eq!(cache.devices().count(), 1);
    let problems: Vec<_> = cache.problems().iter().map(ToString::to_string).collect();
    assert_eq!(problems.len(), 6, "{problems:#?}");
    for (problem, (name, expected)) in problems.iter().zip([
        ("1-key", "unknown field `cdiVersionn`"),
        ("2-version", "`0.5.1` is not a CDI version"),
        ("3-old", "must be at least 0.5.0"),
        ("4-empty", "`devices` is empty"),
        ("5-twice", "`x` is there twice"),
        ("6-text", "not a CDI spec: EOF"),
    ]) {
        let named = format!("`{}/run/{name}.json`: ", dirs.dir.path().display());
        assert!(
            problem.starts_with(&named) && problem.contains(expected),
            "{problem}: {expected}"
        );
    }
}

#[test]
fn annotations_that_are_no_kubernetes_names_are_read_all_the_same() {
    let dirs = Dirs::new();
    let text = spec("v.com/gpu", "a", &["0"]).replace("0.5.0\",", "0.6.0\", \"annotations\": {\"a b/c/d\": \"x\"},");
    dirs.write("run/a.json", &text);
    let cache = dirs.read();
    assert_eq!(
        (cache.devices().count(), cache.problems().len()),
        (1, 0),
        "{:?}",
        cache.problems()
    );
    assert!(
        cache.specs().next().unwrap().1.validate().is_err(),
        "and are not written"
    );
}

#[test]
fn a_folder_that_is_none_is_a_problem() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let cache = Cache::read(&[file.path(), Path::new("/nonexistent")]);
    assert_eq!(cache.problems().len(), 1);
    assert!(
        cache.problems()[0]
            .to_string()
            .contains("cannot read it: Not a directory"),
        "{}",
        cache.problems()[0]
    );
}

#[test]
fn a_live_cache_sees_what_comes_changes_and_goes() {
    let dirs = Dirs::new();
    let mut live = LiveCache::new(["etc", "run", "later"].map(|name| dirs.dir.path().join(name)));
    let devices = |live: &LiveCache| live.cache().devices().map(ToString::to_string).collect::<Vec<_>>();
    assert!(!live.refresh());
    assert!(devices(&live).is_empty());

    dirs.write("run/a.json", &spec("x.com/gpu", "A", &["0"]));
    assert!(live.refresh());
    assert_eq!(devices(&live), ["x.com/gpu=0"]);
    assert!(!live.refresh());

    dirs.write("run/a.json", &spec("x.com/gpu", "A", &["0", "1"]));
    assert!(live.refresh());
    assert_eq!(devices(&live), ["x.com/gpu=0", "x.com/gpu=1"]);

    fs::create_dir(dirs.dir.path().join("later")).expect("a new folder");
    dirs.write("later/b.yaml", &spec("x.com/nic", "B", &["0"]));
    assert!(live.refresh());
    assert_eq!(devices(&live).len(), 3);

    fs::remove_file(dirs.dir.path().join("run/a.json")).expect("a file");
    assert!(live.refresh());
    assert_eq!(devices(&live), ["x.com/nic=0"]);
}

#[test]
fn a_pipe_in_the_place_of_a_spec_is_a_problem_and_nobody_waits_for_it() {
    let dirs = Dirs::new();
    dirs.write("etc/b.json", &spec("v.com/gpu", "b", &["0"]));
    let pipe = dirs.dir.path().join("etc/a.json");
    let mode = rustix::fs::Mode::RUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
    let cache = dirs.read();
    assert_eq!(cache.devices().count(), 1);
    let problem = cache.problems()[0].to_string();
    assert!(
        problem.ends_with("etc/a.json`: cannot read it: not a regular file"),
        "{problem}"
    );
}
