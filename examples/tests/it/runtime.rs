//! What `gpuctl runtime` says that it does.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::Stdio,
};

use tempfile::TempDir;

use super::{program, run, stderr, stdout};

/// What a command prints and says of this host, which is `HOST` in it.
#[track_caller]
fn says(host: &Path, arguments: &[&str]) -> (String, String) {
    let mut gpuctl = program(env!("CARGO_BIN_EXE_gpuctl"));
    gpuctl.arg("runtime").args(arguments).arg("--host-root").arg(host);
    let output = run(&mut gpuctl);
    assert!(output.status.success(), "{}", stderr(&output));
    let here = |text: &str| text.replace(&host.display().to_string(), "HOST");
    (here(stdout(&output)), here(stderr(&output)))
}

#[test]
fn another_program_is_waited_for_and_that_is_said() {
    let host = TempDir::new().unwrap();
    fs::create_dir_all(host.path().join("etc/docker")).unwrap();
    let root = fs::File::open(host.path()).unwrap();
    root.lock().unwrap();
    let mut gpuctl = program(env!("CARGO_BIN_EXE_gpuctl"));
    gpuctl.args(["runtime", "configure", "--host-root"]).arg(host.path());
    let mut running = gpuctl.stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(running.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert_eq!(
        line,
        "another program is changing the files of the engines: waiting for it\n"
    );
    assert_eq!(fs::read_dir(host.path().join("etc/docker")).unwrap().count(), 0);
    root.unlock().unwrap();
    assert!(running.wait().unwrap().success());
    assert!(host.path().join("etc/docker/daemon.json").exists());
}

const CONTAINERD: [&str; 2] = ["--runtime=containerd", "--containerd-version=2.1"];

#[test]
fn what_is_made_written_and_removed_is_named_as_seen_from_here() {
    let host = TempDir::new().unwrap();
    let says = |command, more: &[&str]| says(host.path(), &[&[command], &CONTAINERD[..], more].concat());
    let new_folder = "warning: there is no folder `HOST/etc/containerd`: is this where containerd reads its file?\n";
    let template = "note: no runtime to copy options from: if the kubelet uses systemd cgroups, give `runc` the option \
                    `SystemdCgroup = true` and configure again\n";
    let (main, drop_in) = (
        "HOST/etc/containerd/config.toml",
        "HOST/etc/containerd/conf.d/99-nvidia.toml",
    );

    let (shown, said) = says("configure", &["--dry-run"]);
    let would = format!("{template}{new_folder}Would make `{drop_in}`\nWould make `{main}`\n");
    assert_eq!(said, would);
    let named = [format!("# {drop_in}\n"), format!("\n# {main}\n")];
    assert!(shown.starts_with(&named[0]) && shown.contains(&named[1]), "{shown}");
    assert_eq!(fs::read_dir(host.path()).unwrap().count(), 0);

    let restart = "It is recommended that containerd be restarted.\n";
    let made = format!("{template}{new_folder}Made `{drop_in}`\nMade `{main}`\n{restart}");
    assert_eq!(says("configure", &[]), (String::new(), made));
    assert_eq!(
        says("configure", &[]),
        (String::new(), "Nothing to change\n".to_owned())
    );
    let wrote = format!("Wrote `{drop_in}`\n{restart}");
    let said = says("configure", &["--nvidia-runtime-path=/opt/nv"]).1;
    assert_eq!(said, format!("{template}{wrote}"));

    let revert = |more: &[&str]| super::runtime::says(host.path(), &[&["revert", CONTAINERD[0]], more].concat());
    let would = format!("Would remove `{drop_in}`\nWould remove `{main}`\n");
    assert_eq!(revert(&["--dry-run"]), (String::new(), would));
    let removed = format!("Removed `{drop_in}`\nRemoved `{main}`\n{restart}");
    assert_eq!(revert(&[]), (String::new(), removed));
    assert_eq!(
        fs::read_dir(host.path()).unwrap().count(),
        0,
        "no folder of ours is left"
    );
    let nothing = format!("`{main}` was not configured by gpuctl: nothing to do\n");
    assert_eq!(revert(&[]), (String::new(), nothing));
}

#[test]
fn what_is_doubtful_is_warned_of_by_a_diff_too() {
    let host = TempDir::new().unwrap();
    let unknown = "warning: the version of containerd cannot be told: what is written suits all of them; say it by \
                   `--containerd-version`\n";
    let folder = "warning: there is no folder `HOST/etc/containerd`: is this where containerd reads its file?\n";
    for command in ["diff", "configure"] {
        let (_, said) = says(host.path(), &[command, "--runtime=containerd"]);
        assert!(said.contains(&format!("{unknown}{folder}")), "{command}: {said}");
    }
    let (_, said) = says(
        host.path(),
        &["diff", "--runtime=containerd", "--containerd-version=2.1"],
    );
    assert!(!said.contains("warning"), "{said}");
}

#[test]
fn who_restarts_containerd_is_said_of_a_distribution_that_is_named() {
    for (preset, expected) in [
        (
            "rke2",
            "It is recommended that containerd be restarted, by restarting `rke2-server.service` or `rke2-agent.service`.\n",
        ),
        ("k0s", "No restart is needed: k0s watches the files of containerd.\n"),
    ] {
        let host = TempDir::new().unwrap();
        // A preset is of containerd: that need not be said.
        let preset = format!("--preset={preset}");
        for command in [
            &["configure", &preset, "--containerd-version=2.1"][..],
            &["revert", &preset],
        ] {
            let (_, said) = says(host.path(), command);
            assert!(said.ends_with(expected), "{command:?}: {said}");
        }
    }
}

#[test]
fn what_a_revert_would_leave_of_a_file_is_printed() {
    let host = TempDir::new().unwrap();
    fs::create_dir_all(host.path().join("etc/containerd")).unwrap();
    let main = host.path().join("etc/containerd/config.toml");
    fs::write(&main, "version = 3 # mine\n").unwrap();
    says(host.path(), &[&["configure"], &CONTAINERD[..]].concat());
    let (shown, said) = says(host.path(), &["revert", "--runtime=containerd", "--dry-run"]);
    assert_eq!(shown, "# HOST/etc/containerd/config.toml\nversion = 3 # mine\n");
    assert!(
        said.contains("Would write `HOST/etc/containerd/config.toml`\n"),
        "{said}"
    );
    assert!(
        said.contains("Would remove `HOST/etc/containerd/conf.d/99-nvidia.toml`\n"),
        "{said}"
    );
    assert!(
        fs::read_to_string(main).unwrap().contains("imports"),
        "nothing is changed"
    );
}

#[test]
fn the_note_on_systemds_cgroups_is_for_containerd_alone() {
    for (engine, folder) in [("crio", "etc/crio"), ("docker", "etc/docker")] {
        let host = TempDir::new().unwrap();
        fs::create_dir_all(host.path().join(folder)).unwrap();
        let flag = format!("--runtime={engine}");
        let (_, said) = says(host.path(), &["configure", &flag]);
        assert!(said.starts_with("Made `HOST/etc/"), "{said}");
        let (shown, said) = says(host.path(), &["revert", &flag, "--dry-run"]);
        assert_eq!(shown, "");
        assert!(said.starts_with("Would remove `HOST/etc/"), "{said}");
        says(host.path(), &["revert", &flag]);
        let left = fs::read_dir(host.path().join(folder)).unwrap().count();
        assert_eq!(left, 0, "{engine}: the folder was there, what is in it was not");
    }
}

#[test]
fn dockers_file_is_printed_as_json_alone() {
    let host = TempDir::new().unwrap();
    let (shown, said) = says(host.path(), &["configure", "--dry-run"]);
    serde_json::from_str::<serde_json::Value>(&shown).unwrap();
    assert!(said.ends_with("Would make `HOST/etc/docker/daemon.json`\n"), "{said}");
}

#[test]
fn a_folder_that_is_not_there_is_warned_of_also_where_the_main_file_is_not_made() {
    let host = TempDir::new().unwrap();
    let (_, said) = says(
        host.path(),
        &["configure", "--runtime=crio", "--config=/etc/crioo/crio.conf"],
    );
    let expected =
        "warning: there is no folder `HOST/etc/crioo`: is this where crio reads its file?\nMade `HOST/etc/crio/";
    assert!(said.starts_with(expected), "{said}");
}

#[test]
fn notes_name_paths_from_here_and_errors_say_whose_they_are() {
    let host = TempDir::new().unwrap();
    let write = |path: &str, text: &str| {
        let path = host.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let others = "[crio.runtime.runtimes.nvidia]\nruntime_path = '/usr/bin/nvidia'\n";
    write("etc/crio/crio.conf.d/99-nvidia.toml", others);
    let (_, said) = says(host.path(), &["diff", "--runtime=crio"]);
    let note = "note: `HOST/etc/crio/crio.conf.d/99-nvidia.toml` of another program is replaced\n";
    assert_eq!(said, note);

    write("etc/containerd/config.toml", "x = [");
    let mut gpuctl = program(env!("CARGO_BIN_EXE_gpuctl"));
    let output = run(gpuctl
        .args(["runtime", "diff"])
        .args(CONTAINERD)
        .arg("--host-root")
        .arg(host.path()));
    let said = stderr(&output).replace(&host.path().display().to_string(), "HOST");
    let expected = "note: paths are the host's, whose `/` is `HOST` here\nerror: `/etc/containerd/config.toml:1:";
    assert!(said.starts_with(expected), "{said}");
}
