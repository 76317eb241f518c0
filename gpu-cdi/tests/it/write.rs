use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
};

use expect_test::expect;
use gpu_cdi::{Error, Format, Spec};

fn spec(name: &str) -> Spec {
    let json = format!(
        r#"{{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{{"name": "{name}", "containerEdits": {{
            "deviceNodes": [{{"path": "/dev/nvidia0", "major": 195, "fileMode": 438, "permissions": "rwm"}}]}}}}],
            "containerEdits": {{"hooks": [{{"hookName": "createContainer", "path": "/usr/bin/nvidia-cdi-hook",
            "args": ["nvidia-cdi-hook", "create-symlinks", "--link",
            "libnvidia-ptxjitcompiler.so.550.163.01::/usr/lib/x86_64-linux-gnu/libnvidia-ptxjitcompiler.so.1"],
            "env": ["NVIDIA_CTK_DEBUG=false"]}}]}}}}"#
    );
    Spec::from_text(&json, Format::Json).expect("a spec")
}

fn entries(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"));
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

#[test]
fn a_spec_is_written_whole_for_everyone_to_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("var/run/cdi/nvidia.yaml");
    spec("0").write(&path).unwrap();
    spec("1").write(&path).unwrap();
    assert_eq!(
        Spec::from_text(&fs::read_to_string(&path).unwrap(), Format::Yaml).unwrap(),
        spec("1")
    );
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o644);
    assert_eq!(entries(path.parent().unwrap()), ["nvidia.yaml"]);
}

#[test]
fn an_invalid_spec_touches_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cdi/nvidia.json");
    let mut spec = spec("0");
    spec.devices.clear();
    assert!(matches!(spec.write(&path), Err(Error::Invalid(_))));
    assert_eq!(entries(dir.path()), [""; 0]);
}

#[test]
fn a_file_that_no_reader_would_look_at_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let error = spec("0").write(&dir.path().join("nvidia.yml")).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("nvidia.yml` is neither a .json nor a .yaml file"),
        "{error}"
    );
    assert_eq!(entries(dir.path()), [""; 0]);
}

#[test]
fn a_failure_leaves_the_old_file_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("nvidia.json");
    fs::create_dir(&path).unwrap();
    let error = spec("0").write(&path).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("cannot write the CDI spec `{}`", path.display())
    );
    assert_eq!(entries(dir.path()), ["nvidia.json"]);

    fs::write(dir.path().join("file"), "").unwrap();
    let error = spec("0").write(&dir.path().join("file/nvidia.json")).unwrap_err();
    assert!(matches!(error, Error::CreateDir { .. }));
}

#[test]
fn a_folder_that_others_may_change_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let owner = fs::metadata(dir.path()).unwrap().uid();
    for mode in [0o777, 0o775, 0o757, 0o1777] {
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(mode)).unwrap();
        let error = spec("0").write(&dir.path().join("nvidia.json")).unwrap_err();
        let expected = format!(
            "the CDI folder `{}` can be changed by others: it belongs to user {owner} and has mode {mode:04o}",
            dir.path().display()
        );
        assert_eq!(error.to_string(), expected);
        assert_eq!(entries(dir.path()), [""; 0]);
    }
    for mode in [0o755, 0o700] {
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(mode)).unwrap();
        spec("0").write(&dir.path().join("nvidia.json")).unwrap();
    }
}

#[test]
#[ignore = "needs root"]
fn a_folder_of_another_user_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let cdi = dir.path().join("cdi");
    fs::create_dir(&cdi).unwrap();
    std::os::unix::fs::chown(&cdi, Some(12345), None).unwrap();
    let error = spec("0").write(&cdi.join("nvidia.json")).unwrap_err();
    assert!(matches!(error, Error::UnsafeDir { owner: 12345, .. }), "{error}");
    assert_eq!(entries(&cdi), [""; 0]);
}

#[test]
fn yaml_reads_as_people_write_it() {
    expect![[r#"
        ---
        cdiVersion: "0.5.0"
        kind: nvidia.com/gpu
        devices:
          - name: "0"
            containerEdits:
              deviceNodes:
                - path: /dev/nvidia0
                  major: 195
                  fileMode: 438
                  permissions: rwm
        containerEdits:
          hooks:
            - hookName: createContainer
              path: /usr/bin/nvidia-cdi-hook
              args:
                - nvidia-cdi-hook
                - create-symlinks
                - --link
                - libnvidia-ptxjitcompiler.so.550.163.01::/usr/lib/x86_64-linux-gnu/libnvidia-ptxjitcompiler.so.1
              env:
                - NVIDIA_CTK_DEBUG=false
    "#]]
    .assert_eq(&spec("0").to_text(Format::Yaml).unwrap());
}

#[test]
fn unknown_keys_and_values_are_refused_with_their_place() {
    #[track_caller]
    fn check(text: &str, format: Format, expected: &str) {
        let error = Spec::from_text(text, format).unwrap_err().to_string();
        assert_eq!(error, format!("not a CDI spec: {expected}"));
    }
    let json = r#"{"cdiVersion": "0.5.1", "kind": "a/b", "devices": []}"#;
    check(
        json,
        Format::Json,
        "`0.5.1` is not a CDI version: the newest known is 1.1.0 at line 1 column 22",
    );
    check(
        r#"{"cdiVersion": "0.5.0", "kind": "a/b", "device": []}"#,
        Format::Json,
        "unknown field `device`, expected one of `cdiVersion`, `kind`, `annotations`, `devices`, `containerEdits` \
         at line 1 column 47",
    );
    check(
        "cdiVersion: 0.5.0\nkind: a/b\ndevice: []\n",
        Format::Yaml,
        "unknown field `device`, expected one of cdiVersion, kind, annotations, devices, containerEdits \
         at line 3, column 1",
    );
    check(
        "cdiVersion: 0.5.0\nkind: a\n",
        Format::Yaml,
        "`a` is not a CDI kind: expected `vendor/class` at line 2, column 7",
    );
}
