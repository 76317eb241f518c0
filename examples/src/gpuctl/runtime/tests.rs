use std::{fs, path::Path};

use clap::Parser;
use gpu_runtime_config::Preset;

use super::*;

#[derive(Debug, Parser)]
struct Program {
    #[command(subcommand)]
    runtime: Runtime,
}

fn run(root: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let root = format!("--host-root={}", root.display());
    let arguments = ["x"].iter().chain(arguments).copied().chain([root.as_str()]);
    Program::try_parse_from(arguments)?.runtime.run()
}

#[test]
fn configure_writes_and_revert_gives_every_byte_back() {
    let main = "version = 2 # mine\n";
    let host = tempfile::tempdir().unwrap();
    fs::create_dir_all(host.path().join("etc/containerd")).unwrap();
    let path = host.path().join("etc/containerd/config.toml");
    fs::write(&path, main).unwrap();
    let configure = |command, more: &[&str]| {
        let flags = [
            "--runtime=containerd",
            "--containerd-version=2.1",
            "--cdi.enabled",
            "--set-as-default",
        ];
        run(host.path(), &[&[command], flags.as_slice(), more].concat()).unwrap();
    };
    let drop_in = host.path().join("etc/containerd/conf.d/99-nvidia.toml");
    configure("diff", &[]);
    configure("configure", &["--dry-run"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), main);

    configure("configure", &["--nvidia-runtime-path=/opt/nv/runtime"]);
    let text = fs::read_to_string(&drop_in).unwrap();
    assert!(
        text.contains("/opt/nv/runtime") && text.contains("default_runtime_name = \"nvidia\""),
        "{text}"
    );
    run(host.path(), &["revert", "--runtime=containerd"]).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), main);
    assert!(!drop_in.exists());
    run(host.path(), &["revert", "--runtime=containerd"]).unwrap();
}

#[test]
fn dockers_runtime_is_found_by_its_name() {
    let host = tempfile::tempdir().unwrap();
    run(host.path(), &["configure"]).unwrap();
    let text = fs::read_to_string(host.path().join("etc/docker/daemon.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["runtimes"]["nvidia"]["path"], "nvidia-container-runtime");
}

#[test]
fn a_distributions_drop_in_is_where_and_what_its_containerd_reads() {
    #[track_caller]
    fn check(preset: &str, main: Option<&str>, version: Option<&str>, expected: Result<(&str, &str), &str>) {
        let host = tempfile::tempdir().unwrap();
        let here = |path: &str| host.path().join(path.trim_start_matches('/'));
        let preset: Preset = preset.parse().unwrap();
        if let Some(text) = main {
            fs::create_dir_all(here(preset.main()).parent().unwrap()).unwrap();
            fs::write(here(preset.main()), text).unwrap();
        }
        let flags = [format!("--preset={preset}")];
        let version = version.map(|version| format!("--containerd-version={version}"));
        let flags: Vec<&str> = flags.iter().chain(&version).map(String::as_str).collect();
        let result = run(
            host.path(),
            &[&["configure", "--runtime=containerd"], &flags[..]].concat(),
        );
        match expected {
            Ok((path, line)) => {
                result.unwrap();
                let text = fs::read_to_string(here(path)).unwrap();
                assert!(text.lines().any(|found| found == line), "{text}");
            }
            Err(expected) => {
                let error = crate::program::chain(&result.unwrap_err());
                assert!(error.starts_with(expected), "{error}");
                assert_eq!(fs::read_dir(host.path()).unwrap().count(), usize::from(main.is_some()));
            }
        }
    }
    let folder = "/var/lib/rancher/k3s/agent/etc/containerd";
    let old = format!("{folder}/config.toml.d/99-nvidia.toml");
    let new = format!("{folder}/config-v3.toml.d/99-nvidia.toml");
    let unknown = "start it, or say which it is by `--executable-path` or `--containerd-version`: there is no";
    check("k3s", None, Some("2.1"), Ok((&new, "version = 3")));
    check("k3s", None, Some("1.7"), Ok((&old, "version = 2")));
    check("k3s", None, None, Err(unknown));
    let rendered = |version: u32, folder: &str| format!("version = {version}\nimports = [\"{folder}/*.toml\"]\n");
    let main = rendered(2, &format!("{folder}/config.toml.d"));
    check("k3s", Some(&main), None, Ok((&old, "version = 2")));
    check("k3s", Some(&main), Some("2.1"), Ok((&old, "version = 2")));
    let main = rendered(3, &format!("{folder}/config-v3.toml.d"));
    check("k3s", Some(&main), None, Ok((&new, "version = 3")));
    check("rke2", None, None, Err(unknown));
    check("k0s", None, None, Err(unknown));
    check(
        "microk8s",
        None,
        None,
        Err("there is no `/var/snap/microk8s/current/args/containerd-template.toml`: this is no microk8s"),
    );
}

#[test]
fn a_drop_in_of_no_name_is_the_usual_one() {
    for (runtime, written) in [
        ("docker", "etc/docker/daemon.json"),
        ("crio", "etc/crio/crio.conf.d/99-nvidia.toml"),
    ] {
        let host = tempfile::tempdir().unwrap();
        let runtime = format!("--runtime={runtime}");
        run(host.path(), &["configure", &runtime, "--drop-in-config="]).unwrap();
        assert!(host.path().join(written).exists(), "{written}");
        run(host.path(), &["revert", &runtime, "--drop-in-config="]).unwrap();
        assert!(!host.path().join(written).exists(), "{written}");
    }
}

#[test]
fn a_hosts_root_that_is_no_folder_is_refused() {
    let host = tempfile::tempdir().unwrap();
    let typo = host.path().join("typo");
    for command in ["configure", "diff", "revert"] {
        let error = run(&typo, &[command]).unwrap_err().to_string();
        assert_eq!(error, format!("cannot find the host's root `{}`", typo.display()));
    }
    assert!(!typo.exists());
}

#[test]
fn what_cannot_be_done_is_refused() {
    let host = tempfile::tempdir().unwrap();
    let error = |arguments: &[&str]| run(host.path(), arguments).unwrap_err().to_string();
    for runtime in ["containerd", "crio"] {
        let main = if runtime == "crio" {
            "/etc/crio/crio.conf"
        } else {
            "/etc/containerd/config.toml"
        };
        assert_eq!(
            error(&[
                "configure",
                &format!("--runtime={runtime}"),
                &format!("--drop-in-config={main}")
            ]),
            format!("`{main}` cannot be a drop-in: it is the main file")
        );
    }
    assert_eq!(
        error(&["configure", "--drop-in-config=/x.toml"]),
        "Docker reads no drop-in files"
    );
    assert_eq!(
        error(&["configure", "--runtime=containerd", "--preset=talos"]),
        "the files of talos cannot be edited"
    );
    assert_eq!(
        error(&["configure", "--runtime=crio", "--nvidia-runtime-path=runtime"]),
        "cannot add runtime `nvidia`: its path is not absolute"
    );
    for arguments in [["--config-mode=hook"], ["--preset=x"], ["--runtime=podman"]] {
        assert!(Program::try_parse_from(["x", "configure"].iter().chain(&arguments)).is_err());
    }
}

#[test]
fn wrong_values_are_answered_with_right_ones() {
    let error = |flag: &str| {
        let error = Program::try_parse_from(["x", "configure", flag]).unwrap_err();
        error.to_string()
    };
    for preset in Preset::ALL {
        assert!(error("--preset=nope").contains(preset.name()), "{preset}");
    }
    assert!(error("--containerd-version=abc").contains("such as `1.7` or `2.1`"));
}

#[test]
fn a_difference_is_no_dry_run() {
    for (command, has_it) in [("configure", true), ("revert", true), ("diff", false)] {
        assert_eq!(Program::try_parse_from(["x", command, "--dry-run"]).is_ok(), has_it);
    }
}
