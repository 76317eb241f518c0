//! `gpuctl runtime` on the files of the vendor's recorded runs: what is on disk in the end is what the library plans, whose
//! meaning is held against the records by the library's own tests.
#![cfg(feature = "gpuctl")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use gpu_runtime_config::{
    Cdi, Plan, Runtime, Settings, Snapshot,
    apply::{read_containerd, read_crio, read_file},
    containerd::{self, Placement},
    crio, docker,
};

#[derive(serde::Deserialize)]
struct Case {
    engine: String,
    main: PathBuf,
    drop_in: Option<PathBuf>,
    name: String,
    path: String,
    set_as_default: bool,
    cdi: bool,
    before: Option<String>,
    main_after: Option<String>,
}

impl Case {
    fn all() -> Vec<(String, Self)> {
        let folder = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../gpu-runtime-config/tests/upstream/nvidia-ctk-1.20"
        );
        let entries = fs::read_dir(folder).expect("the recorded cases");
        let paths = entries.map(|entry| entry.expect("a case").path());
        let paths = paths.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
        let case = |path: PathBuf| {
            let text = fs::read_to_string(&path).expect("a case");
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            (name, serde_json::from_str(&text).expect("a case"))
        };
        paths.map(case).collect()
    }

    fn host(&self) -> tempfile::TempDir {
        let host = tempfile::tempdir().expect("a temporary folder");
        for path in std::iter::once(&self.main).chain(&self.drop_in) {
            let folder = here(host.path(), path);
            fs::create_dir_all(folder.parent().expect("a folder")).expect("a new folder");
        }
        if let Some(text) = &self.before {
            fs::write(here(host.path(), &self.main), text).expect("a new file");
        }
        host
    }

    fn gpuctl(&self, host: &Path, command: &str, more: &[&str]) -> Output {
        let mut program = Command::new(env!("CARGO_BIN_EXE_gpuctl"));
        program
            .env_clear()
            .args(["runtime", command, "--runtime", &self.engine])
            .arg("--host-root")
            .arg(host)
            .arg("--config")
            .arg(&self.main)
            .args(more);
        if let Some(drop_in) = &self.drop_in {
            program.arg("--drop-in-config").arg(drop_in);
        }
        if command != "revert" {
            program
                .args(["--nvidia-runtime-name", &self.name, "--nvidia-runtime-path", &self.path])
                .arg(format!("--nvidia-set-as-default={}", self.set_as_default))
                .arg(format!("--enable-cdi={}", self.cdi));
            if self.engine == "containerd" {
                program.args(["--containerd-version", VERSION]);
            }
        }
        program.output().expect("the program runs")
    }

    fn plan(&self, host: &Path) -> Plan {
        let settings = Settings {
            runtimes: vec![Runtime::new(&self.name, &self.path)],
            default_runtime: self.set_as_default.then(|| self.name.clone()),
            cdi: self.cdi.then(Cdi::default),
            container_annotations: vec![],
        };
        let drop_in = self.drop_in.clone().unwrap_or_default();
        match self.engine.as_str() {
            "containerd" => {
                let files = read_containerd(host, &self.main, &drop_in, None).expect("files");
                let version = VERSION.parse().expect("a version");
                containerd::configure(&files, Some(version), Placement::Auto, &settings, None)
            }
            "crio" => crio::configure(
                &read_crio(host, &self.main, &drop_in, None).expect("files"),
                &settings,
                None,
            ),
            _ => docker::configure(&read_file(host, &self.main).expect("a file"), &[], &settings, None),
        }
        .expect("a plan")
    }
}

const VERSION: &str = "2.1";

fn here(host: &Path, path: &Path) -> PathBuf {
    host.join(path.strip_prefix("/").expect("an absolute path"))
}

#[track_caller]
fn succeeds(case: &str, output: &Output) -> String {
    assert!(
        output.status.success(),
        "{case}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_vendors_recorded_runs_are_made_shown_and_taken_back() {
    let cases = Case::all();
    assert_eq!(cases.len(), 31);
    for (name, case) in cases {
        let host = case.host();
        let plan = case.plan(host.path());
        let read = |path: &Path| fs::read_to_string(here(host.path(), path)).ok();
        let before: Vec<Snapshot> = plan
            .changes
            .iter()
            .map(|change| Snapshot {
                path: change.path.clone(),
                text: read(&change.path),
            })
            .collect();
        assert!(!plan.changes.is_empty(), "{name}");

        let diff = succeeds(&name, &case.gpuctl(host.path(), "diff", &[]));
        assert_eq!(diff, plan.diff(), "{name}");
        let shown = succeeds(&name, &case.gpuctl(host.path(), "configure", &["--dry-run"]));
        for change in &plan.changes {
            let text = change.after.as_deref().expect("a file that is written");
            assert!(shown.contains(text.trim_end()), "{name}: {shown}");
        }
        for found in &before {
            assert_eq!(read(&found.path), found.text, "{name}: a dry run writes nothing");
        }
        if case.engine == "docker" {
            let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
            let after = case.main_after.as_deref().expect("a file");
            assert_eq!(json(&shown), json(after), "{name}: as the vendor's dry run prints it");
        }

        succeeds(&name, &case.gpuctl(host.path(), "configure", &[]));
        for change in &plan.changes {
            assert_eq!(read(&change.path), change.after, "{name}");
        }
        if case.engine == "docker" {
            let json = |text: Option<&String>| -> serde_json::Value {
                serde_json::from_str(text.expect("a file")).expect("JSON")
            };
            assert_eq!(
                json(read(&case.main).as_ref()),
                json(case.main_after.as_ref()),
                "{name}"
            );
        }
        assert_eq!(
            succeeds(&name, &case.gpuctl(host.path(), "diff", &[])),
            "",
            "{name}: twice changes nothing"
        );

        succeeds(&name, &case.gpuctl(host.path(), "revert", &[]));
        for found in before {
            assert_eq!(read(&found.path), found.text, "{name}: reverted");
        }
    }
}
