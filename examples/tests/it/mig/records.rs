//! Against what the vendor's program was recorded to do.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use gpu_sim::Node;

use super::{
    super::{run, stderr, stdout},
    Bench, succeeds,
};

const RECORDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/upstream/mig-parted-0.15.0");

/// One run of the vendor's program.
struct Record {
    profile: String,
    gpus: Option<usize>,
    command: String,
    before: Vec<(Vec<usize>, String)>,
    files: BTreeMap<String, String>,
    out: String,
}

impl Record {
    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).expect("the record can be read");
        let (head, out) = text.split_once("\nout:\n").expect("a record has output");
        let mut record = Self {
            profile: String::new(),
            gpus: None,
            command: String::new(),
            before: Vec::new(),
            files: BTreeMap::new(),
            out: out.to_owned(),
        };
        let mut file = String::new();
        for line in head.lines().filter(|line| !line.starts_with('#')) {
            if let Some(line) = line.strip_prefix("  ") {
                let text = record.files.get_mut(&file).expect("a file was named");
                text.push_str(line);
                text.push('\n');
                continue;
            }
            let (key, value) = line.split_once(':').expect("a key and a value");
            let value = value.trim();
            match key {
                "profile" => value.clone_into(&mut record.profile),
                "gpus" => record.gpus = value.parse().ok(),
                "command" => value.clone_into(&mut record.command),
                "before" => {
                    let (gpus, layout) = value.split_once('=').expect("GPUs and their layout");
                    let gpus = gpus
                        .trim()
                        .split(',')
                        .map(|gpu| gpu.parse().expect("an index"))
                        .collect();
                    record.before.push((gpus, layout.trim().to_owned()));
                }
                key => {
                    key.strip_prefix("file ").expect("a known key").clone_into(&mut file);
                    record.files.insert(file.clone(), String::new());
                }
            }
        }
        record
    }

    /// What is there before the run, as a checkpoint.
    fn checkpoint(&self, node: &Node) -> String {
        let devices = self
            .before
            .iter()
            .flat_map(|(gpus, layout)| gpus.iter().map(move |gpu| (*gpu, layout)));
        let devices: Vec<_> = devices
            .map(|(gpu, layout)| {
                let instances = layout.split_whitespace().map(|instance| {
                    let (place, compute) = instance.split_once('/').expect("compute instances");
                    let (profile, at) = place.split_once('@').expect("a place");
                    let (start, size) = at.split_once(':').expect("start and size");
                    let compute = compute.split(',').map(|profile| {
                        serde_json::json!({ "ProfileID": profile.parse::<u32>().expect("a number"), "EngProfileID": 0 })
                    });
                    serde_json::json!({
                        "ProfileID": profile.parse::<u32>().expect("a number"),
                        "Placement": { "Start": start.parse::<u32>().expect("a number"), "Size": size.parse::<u32>().expect("a number") },
                        "ComputeInstances": compute.collect::<Vec<_>>(),
                    })
                });
                let instances: Vec<_> = instances.collect();
                serde_json::json!({ "UUID": node.gpus()[gpu].uuid, "MigMode": 1, "GpuInstances": instances })
            })
            .collect();
        serde_json::json!({ "Version": "v1", "MigState": { "Devices": devices } }).to_string()
    }
}

/// Where the vendor's program is wrong, what ours prints.
fn corrected(name: &str, recorded: &str) -> String {
    let untouched =
        "rc=1\nversion: v1\nmig-configs:\n  current:\n  - devices: all\n    mig-enabled: false\n    mig-devices: {}\n";
    match name {
        // It turns MIG mode on and leaves the GPUs empty.
        "a100-apply-impossible-from-disabled" => format!("{untouched}assert rc=1\n"),
        "a100-bad-toomany" | "a100-bad-wronggb" => untouched.to_owned(),
        // It says that GPUs which cannot be divided were.
        "t4-apply-disabled" => "MIG configuration applied successfully\nrc=0\nrc=1\n".to_owned(),
        _ => recorded.to_owned(),
    }
}

/// What the vendor's program says of a mistake (its `.err` files), and ours has to say as well.
fn words(name: &str) -> &'static [&'static str] {
    match name {
        "a100-apply-absent-config-from-balanced" | "a100-apply-absent-config-from-disabled" => &["absent-config"],
        "a100-bad-badprofile" => &["mig-devices", "9z.5gb"],
        "a100-bad-badversion" => &["unknown version: v9"],
        "a100-bad-disabledwithdevs" => &["MIG devices included when 'mig-enabled' is false"],
        "a100-bad-unknownfield" => &["unexpected field", "foo"],
        _ => &[],
    }
}

/// Replays one record.
#[track_caller]
fn check(name: &str, record: &Record) {
    let usual = match record.profile.as_str() {
        "t4" | "gb200" => 4,
        _ => 8,
    };
    let bench = Bench::new(&record.profile, record.gpus.unwrap_or(usual));
    if !record.before.is_empty() {
        let checkpoint = bench.file("before.json", &record.checkpoint(&bench.node));
        succeeds(&bench.mig(&["restore", "-f", checkpoint.to_str().expect("text")]));
    }
    let gold = bench.dir.path().to_str().expect("text");
    let configurations = fs::read_to_string(format!("{RECORDS}/c.yaml")).expect("a file");
    bench.file("c.yaml", &configurations);
    for (file, text) in &record.files {
        bench.file(file, &text.replace("GOLD", gold));
    }
    let script = format!(
        "nvidia-mig-parted() {{ \"$GPUCTL\" mig \"$@\"; }}; {}",
        record.command.replace("GOLD", gold)
    );
    let mut bash = Command::new("bash");
    bash.env_clear().env("PATH", "/usr/bin:/bin").envs(bench.node.env());
    let output = run(bash.env("GPUCTL", env!("CARGO_BIN_EXE_gpuctl")).arg("-c").arg(script));
    let said = stderr(&output);
    let expected = corrected(name, &record.out).replace("GOLD", gold);
    assert_eq!(stdout(&output), expected, "{name}\n{said}");
    for word in words(name) {
        assert!(said.replace('`', "'").contains(word), "{name}: {word}\n{said}");
    }
}

#[test]
fn commands_print_what_the_vendors_program_prints() {
    let entries = fs::read_dir(RECORDS).expect("records");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("a file").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    paths.sort();
    assert_eq!(paths.len(), 32);
    for path in paths {
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name");
        check(name, &Record::read(&path));
    }
}

#[test]
fn the_files_of_a_real_h200_are_the_vendors() {
    let bench = Bench::new("h200", 1);
    for (command, record) in [
        ("generate-config", "h200-generate.yaml"),
        ("export", "h200-export.yaml"),
    ] {
        let output = bench.mig(&[command]);
        assert_eq!(
            stdout(&output),
            fs::read_to_string(format!("{RECORDS}/{record}")).expect("a record")
        );
    }
}
