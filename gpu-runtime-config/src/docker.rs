//! Docker's `daemon.json`, which is always edited itself: Docker has no drop-ins.

use std::path::Path;

use crate::{
    edit::{Format, Op, edit, parse},
    error::Result,
    plan::{Notice, Plan, Snapshot, draft, plan},
    receipt::{Receipt, drafts},
    runtime::{Settings, missing_directories},
    value::{Table, Value},
};

/// Plans what makes Docker offer the runtimes. Every other key keeps its value, place and indentation, those of `features` too.
///
/// `main` is usually `/etc/docker/daemon.json`; `other` are files that the receipt names besides, usually none.
///
/// # Errors
/// When the file is not valid JSON, or a key that must change has another type than Docker expects or is there twice.
///
/// # Example
/// ```
/// use gpu_runtime_config::{Cdi, Settings, Snapshot, docker};
///
/// let main = Snapshot::new("/etc/docker/daemon.json", r#"{"features": {"buildkit": true}}"#);
/// let settings = Settings { cdi: Some(Cdi::default()), ..Settings::default() };
/// let plan = docker::configure(&main, &[], &settings, None)?;
/// assert_eq!(plan.changes[0].after.as_deref(), Some(r#"{"features": {"buildkit": true, "cdi": true}}"#));
/// # Ok::<(), gpu_runtime_config::Error>(())
/// ```
pub fn configure(main: &Snapshot, other: &[Snapshot], settings: &Settings, receipt: Option<&Receipt>) -> Result<Plan> {
    settings.check(false)?;
    let mut found = vec![main.clone()];
    found.extend(other.iter().cloned());
    let (mut drafts, mut notices) = drafts(&found, receipt, Format::Json)?;
    if let Some(draft) = draft(&mut drafts, &main.path) {
        let text = draft.base.clone().unwrap_or_default();
        if let Some(wanted) = edited(&main.path, &text, settings, &mut notices)? {
            draft.wanted = Some(wanted);
        }
    }
    plan(drafts, notices)
}

/// The new text; `None` if the file holds all that is asked for.
fn edited(path: &Path, text: &str, settings: &Settings, notices: &mut Vec<Notice>) -> Result<Option<String>> {
    let present = parse(Format::Json, path, text)?;
    let mut desired = Table::new();
    let runtimes: Table = settings
        .runtimes
        .iter()
        .map(|runtime| {
            let keys = [
                ("args".to_owned(), Value::Array(vec![])),
                ("path".to_owned(), Value::string(&runtime.path)),
            ];
            (runtime.name.clone(), Value::Table(Table::from(keys)))
        })
        .collect();
    if !runtimes.is_empty() {
        desired.insert("runtimes".to_owned(), Value::Table(runtimes));
    }
    let default = present.get(&["default-runtime"]).and_then(Value::as_str);
    if let Some(name) = &settings.default_runtime {
        desired.insert("default-runtime".to_owned(), Value::string(name));
    } else if let Some(name) = default.filter(|name| settings.names(name)) {
        notices.push(Notice::DefaultKept { name: name.to_owned() });
    }
    if let Some(cdi) = &settings.cdi {
        desired.insert("features".to_owned(), Value::nested(&["cdi"], Value::Bool(true)));
        let in_force = present.get(&["cdi-spec-dirs"]).and_then(Value::as_array);
        let in_force = in_force.map(|list| list.iter().filter_map(Value::as_str).map(str::to_owned).collect());
        if let Some(directories) = missing_directories(cdi, in_force) {
            desired.insert("cdi-spec-dirs".to_owned(), Value::strings(directories));
        }
    }
    match Value::Table(desired).missing_from(Some(&present)) {
        Some(Value::Table(missing)) => edit(Format::Json, path, text, &[Op::Merge(missing)]).map(Some),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::{Cdi, Runtime, revert};

    fn nvidia() -> Settings {
        Settings {
            runtimes: vec![Runtime::new("nvidia", "nvidia-container-runtime")],
            ..Settings::default()
        }
    }

    fn plan_for(text: &str, settings: &Settings, receipt: Option<&Receipt>) -> Plan {
        configure(&Snapshot::new("/d.json", text), &[], settings, receipt).unwrap()
    }

    #[test]
    fn nothing_but_what_is_asked_for_changes() {
        let settings = Settings {
            default_runtime: Some("nvidia".into()),
            cdi: Some(Cdi::default()),
            ..nvidia()
        };
        let plan = plan_for(
            "{\n  \"log-driver\": \"json-file\",\n  \"features\": {\n    \"buildkit\": true\n  },\n  \"data-root\": \"/x\"\n}\n",
            &settings,
            None,
        );
        expect![[r#"
            --- /d.json
            +++ /d.json
            @@ -1,7 +1,15 @@
             {
               "log-driver": "json-file",
               "features": {
            -    "buildkit": true
            +    "buildkit": true,
            +    "cdi": true
               },
            -  "data-root": "/x"
            +  "data-root": "/x",
            +  "default-runtime": "nvidia",
            +  "runtimes": {
            +    "nvidia": {
            +      "args": [],
            +      "path": "nvidia-container-runtime"
            +    }
            +  }
             }
        "#]]
        .assert_eq(&plan.diff());
        let after = plan.changes[0].after.clone().unwrap();
        assert!(plan_for(&after, &settings, plan.receipt.as_ref()).is_empty(), "twice");
    }

    #[test]
    fn a_default_of_someone_else_comes_back() {
        let text = "{\"default-runtime\":\"foo\",\"runtimes\":{\"foo\":{\"path\":\"/foo\"}}}";
        let settings = Settings {
            default_runtime: Some("nvidia".into()),
            ..nvidia()
        };
        let configured = plan_for(text, &settings, None);
        let after = configured.changes[0].after.clone().unwrap();
        let receipt = configured.receipt.unwrap();

        let back = revert(&[Snapshot::new("/d.json", &*after)], &receipt).unwrap();
        assert_eq!(back.changes[0].after.as_deref(), Some(text));
        assert_eq!(back.receipt, None);

        let edited = after.replace("{\"default", "{ \"debug\": true, \"default");
        let back = revert(&[Snapshot::new("/d.json", edited)], &receipt).unwrap();
        let expected = "{ \"debug\": true, \"default-runtime\":\"foo\",\"runtimes\":{\"foo\":{\"path\":\"/foo\"}}}";
        assert_eq!(back.changes[0].after.as_deref(), Some(expected));

        // Asked again without a default, it gives the old one back.
        let again = plan_for(&after, &nvidia(), Some(&receipt));
        assert!(
            again.changes[0]
                .after
                .as_ref()
                .unwrap()
                .contains("\"default-runtime\":\"foo\"")
        );
    }

    #[test]
    fn spec_directories_are_added_to_those_in_force() {
        let cdi = |dir: &str| Settings {
            cdi: Some(Cdi {
                spec_dirs: vec![dir.into()],
            }),
            ..Settings::default()
        };
        assert!(plan_for("{\"features\":{\"cdi\":true}}", &cdi("/etc/cdi"), None).is_empty());
        let plan = plan_for(
            "{\"features\":{\"cdi\":true},\"cdi-spec-dirs\":[\"/a\"]}",
            &cdi("/b"),
            None,
        );
        let expected = "{\"features\":{\"cdi\":true},\"cdi-spec-dirs\":[\"/a\", \"/b\"]}";
        assert_eq!(plan.changes[0].after.as_deref(), Some(expected));
    }
}
