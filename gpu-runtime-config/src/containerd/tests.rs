use expect_test::{Expect, expect};

use super::*;
use crate::{Cdi, Runtime, revert};

const MAIN: &str = "/etc/containerd/config.toml";
const DROP_IN: &str = "/etc/containerd/conf.d/99-nvidia.toml";
const GRPC: &str = "plugins.\"io.containerd.grpc.v1.cri\"";

fn files(main: Option<&str>) -> Files {
    Files {
        main: Snapshot {
            path: MAIN.into(),
            text: main.map(str::to_owned),
        },
        drop_in: Snapshot::absent(DROP_IN),
        imported: vec![],
        other: vec![],
    }
}

fn nvidia() -> Settings {
    Settings {
        runtimes: vec![Runtime::new("nvidia", "/t/nvidia-container-runtime")],
        ..Settings::default()
    }
}

fn daemon(version: &str) -> Version {
    version.parse().unwrap()
}

/// The files after a plan.
fn after(files: &Files, plan: &Plan) -> Files {
    let mut files = files.clone();
    for change in &plan.changes {
        for snapshot in [&mut files.main, &mut files.drop_in]
            .into_iter()
            .chain(&mut files.imported)
        {
            if snapshot.path == change.path {
                snapshot.text.clone_from(&change.after);
            }
        }
    }
    files
}

/// Configures, checks that doing it again changes nothing and that reverting gives every byte back.
#[track_caller]
fn check(files: &Files, version: &str, placement: Placement, settings: &Settings, expected: &Expect) {
    let plan = configure(files, Some(daemon(version)), placement, settings, None).unwrap();
    // A context line that is empty would be white space at the end of a line here.
    expected.assert_eq(&plan.diff().replace("\n \n", "\n\n"));
    let configured = after(files, &plan);
    let again = |receipt| configure(&configured, Some(daemon(version)), placement, settings, receipt).unwrap();
    assert_eq!(again(plan.receipt.as_ref()).changes, [], "twice");
    assert_eq!(again(plan.receipt.as_ref()).receipt, plan.receipt, "twice, the receipt");
    assert_eq!(again(None).changes, [], "twice, with the receipt lost");
    if let Some(receipt) = plan.receipt {
        let found = [configured.main.clone(), configured.drop_in.clone()];
        let back = revert(&found, &receipt).unwrap();
        assert_eq!(after(&configured, &back), *files, "reverted");
    }
}

#[track_caller]
fn refuse(files: &Files, version: &str, placement: Placement, settings: &Settings, expected: &str) {
    let error = configure(files, Some(daemon(version)), placement, settings, None).unwrap_err();
    assert_eq!(error.to_string(), expected);
}

#[test]
fn containerd_2_gets_a_minimal_drop_in_of_the_files_version() {
    let main = "version = 2 # AKS keeps it\n\n[plugins.\"io.containerd.grpc.v1.cri\"]\n  sandbox_image = \"pause\"\n  [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n    runtime_type = \"io.containerd.runc.v2\"\n    [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]\n      SystemdCgroup = true\n";
    let settings = Settings {
        default_runtime: Some("nvidia".into()),
        cdi: Some(Cdi::default()),
        ..nvidia()
    };
    check(
        &files(Some(main)),
        "2.3.2",
        Placement::Auto,
        &settings,
        &expect![[r#"
            --- /dev/null
            +++ /etc/containerd/conf.d/99-nvidia.toml
            @@ -0,0 +1,10 @@
            +# Written by gpu-runtime-config. Changes made here are lost when it is written again.
            +version = 2
            +
            +[plugins."io.containerd.grpc.v1.cri".containerd]
            +  default_runtime_name = "nvidia"
            +  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
            +    runtime_type = "io.containerd.runc.v2"
            +    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
            +      BinaryName = "/t/nvidia-container-runtime"
            +      SystemdCgroup = true
            --- /etc/containerd/config.toml
            +++ /etc/containerd/config.toml
            @@ -1,4 +1,5 @@
             version = 2 # AKS keeps it
            +imports = ["/etc/containerd/conf.d/*.toml"]
 
             [plugins."io.containerd.grpc.v1.cri"]
               sandbox_image = "pause"
        "#]],
    );
}

#[test]
fn containerd_1_is_edited_in_place() {
    let main = "# mine\nversion = 2\n[plugins]\n  [plugins.\"io.containerd.grpc.v1.cri\"]\n    [plugins.\"io.containerd.grpc.v1.cri\".containerd]\n      default_runtime_name = \"runc\" # keep\n      [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n        runtime_type = \"io.containerd.runc.v2\"\n        [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]\n          SystemdCgroup = true\n";
    let settings = Settings {
        default_runtime: Some("nvidia".into()),
        cdi: Some(Cdi {
            spec_dirs: vec!["/run/cdi".into()],
        }),
        container_annotations: vec!["cdi.k8s.io/*".into()],
        ..nvidia()
    };
    check(
        &files(Some(main)),
        "1.7.24",
        Placement::Auto,
        &settings,
        &expect![[r#"
            --- /etc/containerd/config.toml
            +++ /etc/containerd/config.toml
            @@ -2,9 +2,17 @@
             version = 2
             [plugins]
               [plugins."io.containerd.grpc.v1.cri"]
            +    cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi", "/run/cdi"]
            +    enable_cdi = true
                 [plugins."io.containerd.grpc.v1.cri".containerd]
            -      default_runtime_name = "runc" # keep
            +      default_runtime_name = "nvidia" # keep
                   [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
                     runtime_type = "io.containerd.runc.v2"
                     [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
                       SystemdCgroup = true
            +      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
            +        container_annotations = ["cdi.k8s.io/*"]
            +        runtime_type = "io.containerd.runc.v2"
            +        [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
            +          BinaryName = "/t/nvidia-container-runtime"
            +          SystemdCgroup = true
        "#]],
    );
}

#[test]
fn containerd_1_keeps_its_built_in_runc() {
    check(
        &files(None),
        "1.7.24",
        Placement::Auto,
        &nvidia(),
        &expect![[r#"
            --- /dev/null
            +++ /etc/containerd/config.toml
            @@ -0,0 +1,8 @@
            +version = 2
            +
            +[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
            +runtime_type = "io.containerd.runc.v2"
            +[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
            +BinaryName = "/t/nvidia-container-runtime"
            +[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
            +runtime_type = "io.containerd.runc.v2"
        "#]],
    );
}

#[test]
fn options_that_somebody_gives_runc_are_copied_and_stay() {
    let configure =
        |files: &Files, receipt| configure(files, Some(daemon("1.7")), Placement::Auto, &nvidia(), receipt).unwrap();
    let plan = configure(&files(Some("version = 2\n")), None);
    assert_eq!(plan.notices, [Notice::NoTemplate]);
    let mut found = after(&files(Some("version = 2\n")), &plan);
    let theirs = format!("[{GRPC}.containerd.runtimes.runc.options]\nSystemdCgroup = true # the kubelet's\n");
    found.main.text.as_mut().unwrap().push_str(&theirs);

    let runc = Notice::ChangedSince {
        path: MAIN.into(),
        key: format!("{}.containerd.runtimes.runc", GRPC.replace('"', "")),
    };
    let again = configure(&found, plan.receipt.as_ref());
    assert_eq!(again.notices, std::slice::from_ref(&runc));
    let configured = after(&found, &again);
    let text = configured.main.text.as_deref().unwrap();
    assert_eq!(text.matches("SystemdCgroup = true").count(), 2, "{text}");
    assert!(text.contains("# the kubelet's"), "{text}");
    assert_eq!(configure(&configured, again.receipt.as_ref()).changes, []);

    for (files, receipt, notices) in [(&configured, again.receipt, vec![]), (&found, plan.receipt, vec![runc])] {
        let back = revert(&[files.main.clone(), files.drop_in.clone()], &receipt.unwrap()).unwrap();
        let expected = format!("[{GRPC}.containerd.runtimes.runc]\nruntime_type = \"io.containerd.runc.v2\"\n{theirs}");
        let main = after(files, &back).main.text.unwrap();
        assert_eq!(main, format!("version = 2\n{expected}"));
        assert_eq!(back.notices, notices);
    }
}

#[test]
fn a_runtime_of_ours_that_somebody_changed_goes_and_that_is_said() {
    let plan = configure(
        &files(Some("version = 2\n")),
        Some(daemon("2.1")),
        Placement::InPlace,
        &nvidia(),
        None,
    )
    .unwrap();
    let mut found = after(&files(Some("version = 2\n")), &plan);
    found.main.text.as_mut().unwrap().push_str("SystemdCgroup = true\n");
    let back = revert(&[found.main.clone()], &plan.receipt.unwrap()).unwrap();
    assert_eq!(after(&found, &back).main.text.as_deref(), Some("version = 2\n"));
    let key = format!("{}.containerd.runtimes.nvidia", GRPC.replace('"', ""));
    assert_eq!(back.notices, [Notice::RuntimeRemoved { path: MAIN.into(), key }]);
}

#[test]
fn a_main_file_that_has_to_be_made_gets_the_daemons_version() {
    for (version, expected) in [("2.0.5", "version = 3\n"), ("2.3.4", "version = 4\n")] {
        let plan = configure(&files(None), Some(daemon(version)), Placement::Auto, &nvidia(), None).unwrap();
        for change in &plan.changes {
            assert!(change.after.as_ref().unwrap().contains(expected), "{}", plan.diff());
        }
        assert_eq!(plan.changes.len(), 2);
        assert_eq!(plan.notices, [Notice::NoTemplate]);
    }
    let unknown = configure(&files(Some("# empty\n")), None, Placement::DropIn, &nvidia(), None).unwrap();
    assert!(unknown.diff().contains("+version = 2\n"), "{}", unknown.diff());
}

#[test]
fn version_1_is_edited_in_place_with_cdi_at_the_right_level() {
    let main = "[plugins.cri.containerd]\n  default_runtime_name = \"runc\"\n  [plugins.cri.containerd.runtimes.runc]\n    runtime_type = \"io.containerd.runc.v1\"\n";
    let settings = Settings {
        cdi: Some(Cdi::default()),
        ..nvidia()
    };
    check(
        &files(Some(main)),
        "1.7.0",
        Placement::DropIn,
        &settings,
        &expect![[r#"
            --- /etc/containerd/config.toml
            +++ /etc/containerd/config.toml
            @@ -2,3 +2,11 @@
               default_runtime_name = "runc"
               [plugins.cri.containerd.runtimes.runc]
                 runtime_type = "io.containerd.runc.v1"
            +  [plugins.cri.containerd.runtimes.nvidia]
            +    runtime_type = "io.containerd.runc.v1"
            +    [plugins.cri.containerd.runtimes.nvidia.options]
            +      BinaryName = "/t/nvidia-container-runtime"
            +      Runtime = "/t/nvidia-container-runtime"
            +
            +[plugins.cri]
            +  enable_cdi = true
        "#]],
    );
}

#[test]
fn where_imports_replace_tables_the_drop_in_holds_all_of_it() {
    let main = format!("version = 2\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n[{GRPC}]\nsandbox_image = \"a\"\n");
    let other = format!(
        "version = 2\n[{GRPC}]\nsandbox_image = \"b\"\n[{GRPC}.containerd.runtimes.runc]\nruntime_type = \"io.containerd.runc.v2\"\n"
    );
    let other = Snapshot::new("/etc/containerd/conf.d/10-other.toml", other);
    let files = Files {
        imported: vec![other],
        ..files(Some(&main))
    };
    check(
        &files,
        "1.7.24",
        Placement::Auto,
        &nvidia(),
        &expect![[r#"
            --- /dev/null
            +++ /etc/containerd/conf.d/99-nvidia.toml
            @@ -0,0 +1,11 @@
            +# Written by gpu-runtime-config. Changes made here are lost when it is written again.
            +version = 2
            +
            +[plugins."io.containerd.grpc.v1.cri"]
            +  sandbox_image = "b"
            +  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
            +    runtime_type = "io.containerd.runc.v2"
            +    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
            +      BinaryName = "/t/nvidia-container-runtime"
            +  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
            +    runtime_type = "io.containerd.runc.v2"
        "#]],
    );
    refuse(
        &files,
        "1.7.24",
        Placement::InPlace,
        &nvidia(),
        "`containerd.runtimes.nvidia.runtime_type` would not take effect: `/etc/containerd/conf.d/10-other.toml` is merged later and sets it otherwise",
    );
}

#[test]
fn what_is_there_already_is_not_written_again() {
    let main = "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd]\ndefault_runtime_name = 'nvidia'\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia]\nruntime_type = 'io.containerd.runc.v2'\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia.options]\nBinaryName = '/t/nvidia-container-runtime'\n";
    let settings = Settings {
        cdi: Some(Cdi::default()),
        ..nvidia()
    };
    let plan = configure(
        &files(Some(main)),
        Some(daemon("2.1")),
        Placement::Auto,
        &settings,
        None,
    )
    .unwrap();
    assert_eq!((plan.changes, plan.receipt), (vec![], None));
    assert_eq!(
        plan.notices,
        [Notice::DefaultKept { name: "nvidia".into() }, Notice::NoTemplate]
    );
}

#[test]
fn a_drop_in_of_too_high_a_version_is_healed_and_comes_back_on_revert() {
    let main = "version = 2\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n";
    let vendor = "version = 4\n[plugins.\"io.containerd.cri.v1.runtime\"]\nenable_cdi = true\n";
    let files = Files {
        drop_in: Snapshot::new(DROP_IN, vendor),
        ..files(Some(main))
    };
    let plan = configure(&files, Some(daemon("2.3.2")), Placement::Auto, &nvidia(), None).unwrap();
    assert!(plan.changes[0].after.as_ref().unwrap().contains("\nversion = 2\n"));
    assert!(plan.notices.contains(&Notice::DropInReplaced { path: DROP_IN.into() }));
    let configured = after(&files, &plan);
    let back = revert(
        &[configured.drop_in.clone(), configured.main.clone()],
        &plan.receipt.unwrap(),
    )
    .unwrap();
    assert_eq!(after(&configured, &back), files);
}

#[test]
fn what_somebody_changed_since_stays() {
    let main = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd]\ndefault_runtime_name = \"runc\"\n";
    let settings = Settings {
        default_runtime: Some("nvidia".into()),
        ..nvidia()
    };
    let plan = configure(
        &files(Some(main)),
        Some(daemon("1.7")),
        Placement::Auto,
        &settings,
        None,
    )
    .unwrap();
    let edited = after(&files(Some(main)), &plan).main.text.unwrap();
    let edited = edited
        .replace("name = \"nvidia\"", "name = \"kata\" # now")
        .replace("version = 2\n", "version = 2\n# new\nroot = \"/x\"\n");
    let edited = edited.replace(
        "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.nvidia]\n",
        "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.nvidia]\nsnapshotter = \"x\"\n",
    );
    let back = revert(&[Snapshot::new(MAIN, edited)], &plan.receipt.unwrap()).unwrap();
    let expected = "version = 2\n# new\nroot = \"/x\"\n[plugins.\"io.containerd.grpc.v1.cri\".containerd]\ndefault_runtime_name = \"kata\" # now\n";
    assert_eq!(back.changes[0].after.as_deref(), Some(expected));
    let key = |last: &str| format!("plugins.io.containerd.grpc.v1.cri.containerd.{last}");
    let expected = [
        Notice::ChangedSince {
            path: MAIN.into(),
            key: key("default_runtime_name"),
        },
        Notice::RuntimeRemoved {
            path: MAIN.into(),
            key: key("runtimes.nvidia"),
        },
    ];
    assert_eq!(back.notices, expected);
}

#[test]
fn other_settings_take_back_what_the_earlier_ones_did() {
    let main = "version = 3\n";
    let first = configure(
        &files(Some(main)),
        Some(daemon("2.1")),
        Placement::Auto,
        &Settings::vendor("/t", "nvidia", true),
        None,
    )
    .unwrap();
    let configured = after(&files(Some(main)), &first);
    let second = configure(
        &configured,
        Some(daemon("2.1")),
        Placement::InPlace,
        &nvidia(),
        first.receipt.as_ref(),
    )
    .unwrap();
    let reconfigured = after(&configured, &second);
    assert_eq!(reconfigured.drop_in.text, None);
    assert!(
        !reconfigured.main.text.as_ref().unwrap().contains("imports"),
        "{}",
        second.diff()
    );
    let back = revert(
        &[reconfigured.main.clone(), reconfigured.drop_in.clone()],
        &second.receipt.unwrap(),
    )
    .unwrap();
    assert_eq!(after(&reconfigured, &back), files(Some(main)));
}

#[test]
fn a_file_that_the_node_cannot_run_from_is_refused() {
    let bad = |text: &str, version: &str, expected: &str| {
        refuse(&files(Some(text)), version, Placement::Auto, &nvidia(), expected);
    };
    bad(
        "version = 2\ndisabled_plugins = [\n  \"cri\"\n]\n",
        "1.7",
        "`disabled_plugins` at `/etc/containerd/config.toml:3:3` disables `cri`: Kubernetes cannot use this containerd",
    );
    bad(
        "version = 5\n",
        "2.3",
        "`version = 5` at `/etc/containerd/config.toml:1:11` is newer than 4, the newest known",
    );
    bad(
        "version = 4\n",
        "2.2",
        "`version = 4` of `/etc/containerd/config.toml` is more than containerd 2.2 reads",
    );
    bad(
        "version = \"2\"\n",
        "2.2",
        "`version` at `/etc/containerd/config.toml:1:11` is a string, not a version number",
    );
    bad(
        "# {{ x }}\n",
        "2.2",
        "`/etc/containerd/config.toml:1:3` holds `{{`: it is a template, not a configuration",
    );
    bad(
        "version = 2\n[plugins]\n\"io.containerd.grpc.v1.cri\" = 1\n",
        "1.7",
        "`plugins.io.containerd.grpc.v1.cri` at `/etc/containerd/config.toml:3:31` is a number, not a table",
    );
    bad(
        "imports = \"x\"\nversion = 3",
        "2.2",
        "`imports` at `/etc/containerd/config.toml:1:11` is a string, not an array",
    );
}

#[test]
fn a_main_file_of_a_distribution_is_never_edited() {
    let only = Placement::DropInOnly;
    refuse(
        &files(Some("version = 3\n")),
        "2.1",
        only,
        &nvidia(),
        "`/etc/containerd/config.toml` does not import `/etc/containerd/conf.d/99-nvidia.toml` and is not ours to edit",
    );
    refuse(
        &files(Some("root = '/'\n")),
        "2.1",
        only,
        &nvidia(),
        "`/etc/containerd/config.toml` has version 1, which takes no drop-ins, and is not ours to edit",
    );
    let plan = configure(
        &files(Some("version = 3\nimports = ['conf.d/*.toml']\n")),
        Some(daemon("2.1")),
        only,
        &nvidia(),
        None,
    )
    .unwrap();
    assert_eq!(plan.changes.len(), 1);
}

#[test]
fn a_main_file_that_is_yet_to_be_rendered_has_the_version_of_its_daemon() {
    let only = Placement::DropInOnly;
    let error = configure(&files(None), None, only, &nvidia(), None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no `/etc/containerd/config.toml` yet, and the version of its containerd is not known: what it could read \
         cannot be told"
    );
    let plan = configure(&files(None), Some(daemon("2.1")), only, &nvidia(), None).unwrap();
    let text = plan.changes[0].after.as_deref().unwrap();
    assert!(text.contains("version = 3\n"), "{text}");
    assert!(configure(&files(None), None, Placement::Auto, &nvidia(), None).is_ok());
}

#[test]
fn a_drop_ins_version_is_that_of_the_main_file_before_that_of_the_daemon() {
    #[track_caller]
    fn check(main: Option<&str>, version: Option<&str>, expected: Option<u32>) {
        let main = files(main).main;
        assert_eq!(drop_in_version(&main, version.map(daemon)).unwrap(), expected);
    }
    check(Some("version = 2\n"), Some("2.1"), Some(2));
    check(Some("version = 3\n"), None, Some(3));
    check(Some("# nothing\n"), Some("1.7"), Some(2));
    check(None, Some("2.3"), Some(4));
    check(None, None, None);
}

#[test]
fn a_drop_in_takes_the_place_of_no_main_file() {
    let mut files = files(Some("version = 3\nroot = '/data'\n"));
    files.drop_in.path = "/etc/containerd/conf.d/../config.toml".into();
    refuse(
        &files,
        "2.1",
        Placement::Auto,
        &nvidia(),
        "`/etc/containerd/conf.d/../config.toml` cannot be a drop-in: it is the main file",
    );
}

#[test]
fn a_default_that_the_old_table_overrides_is_refused() {
    let main = format!("version = 2\n[{GRPC}.containerd.default_runtime]\nruntime_type = \"io.containerd.runc.v2\"\n");
    let settings = Settings {
        default_runtime: Some("nvidia".into()),
        ..nvidia()
    };
    refuse(
        &files(Some(&main)),
        "1.7",
        Placement::Auto,
        &settings,
        "`/etc/containerd/config.toml` sets the deprecated table `default_runtime`, which overrides `default_runtime_name`",
    );
}

#[test]
fn containerd_1_6_has_no_cdi() {
    let settings = Settings {
        cdi: Some(Cdi::default()),
        ..nvidia()
    };
    let plan = configure(
        &files(Some("version = 2\n")),
        Some(daemon("1.6.20")),
        Placement::Auto,
        &settings,
        None,
    )
    .unwrap();
    assert!(!plan.diff().contains("enable_cdi"));
    assert!(plan.notices.contains(&Notice::CdiUnsupported {
        daemon: Version { major: 1, minor: 6 }
    }));
}

#[test]
fn a_later_import_that_wins_is_named() {
    let main = "version = 3\nimports = ['/etc/containerd/conf.d/*.toml']\n";
    let later = Snapshot::new(
        "/etc/containerd/conf.d/99-z.toml",
        "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd]\ndefault_runtime_name = 'runc'\n",
    );
    let files = Files {
        imported: vec![later],
        ..files(Some(main))
    };
    let settings = Settings {
        default_runtime: Some("nvidia".into()),
        ..nvidia()
    };
    refuse(
        &files,
        "2.1",
        Placement::Auto,
        &settings,
        "`containerd.default_runtime_name` would not take effect: `/etc/containerd/conf.d/99-z.toml` is merged later and sets it otherwise",
    );
}

#[test]
fn a_byte_order_mark_is_for_containerd_1_only() {
    let files = files(Some("\u{feff}version = 2\n"));
    let expected = "`/etc/containerd/config.toml:1:1` is not valid TOML: containerd 2 does not read a byte order mark";
    refuse(&files, "2.3", Placement::Auto, &nvidia(), expected);
    assert!(configure(&files, Some(daemon("1.6")), Placement::Auto, &nvidia(), None).is_ok());
}

#[test]
fn the_programs_of_the_nodes_own_runtimes_are_found() {
    let main = r#"
        version = 3
        [plugins."io.containerd.cri.v1.runtime".containerd]
        default_runtime_name = "kata"
        [plugins."io.containerd.cri.v1.runtime".containerd.runtimes]
        kata = { options = { BinaryName = "/opt/kata" } }
        runc = { options = { BinaryName = "/opt/runc" } }
        nvidia = { options = { BinaryName = "/x/nvidia-container-runtime" } }
    "#;
    let files = Files {
        main: Snapshot::new("/etc/containerd/config.toml", main),
        drop_in: Snapshot::absent("/etc/containerd/conf.d/99-nvidia.toml"),
        imported: vec![],
        other: vec![],
    };
    let found = low_level_runtimes(&files, None, &Settings::vendor("/x", "nvidia", true)).unwrap();
    assert_eq!(found, ["/opt/kata", "/opt/runc", "runc", "crun"]);
}
