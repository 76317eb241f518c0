//! The program of a spec's hooks.

use std::{
    env,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use gpu_cdi::Spec;
use gpu_core::root::Root;

/// The hook program: a path as it is, a name as found in `PATH`, else in `/usr/bin`.
pub(super) fn path(asked: &str) -> String {
    if asked.starts_with('/') {
        return asked.to_owned();
    }
    let name = if asked.is_empty() { "nvidia-cdi-hook" } else { asked };
    let dirs = env::var_os("PATH").unwrap_or_default();
    let is_there = |path: &PathBuf| {
        path.metadata()
            .is_ok_and(|status| is_program(status.permissions().mode()))
    };
    let mut found = env::split_paths(&dirs)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(name));
    match found
        .find(is_there)
        .map(PathBuf::into_os_string)
        .map(std::ffi::OsString::into_string)
    {
        Some(Ok(path)) => path,
        _ => format!("/usr/bin/{name}"),
    }
}

/// What is to be said of a spec whose hooks' program nobody named and the host does not have: containers would not start.
///
/// One that is named may lie on a host that is not seen from here.
pub(super) fn warning(spec: &Spec, asked: &str, host_root: &Path) -> Option<String> {
    let edits = spec.devices.iter().map(|device| &device.container_edits);
    let hook = edits
        .chain([&spec.container_edits])
        .find_map(|edits| edits.hooks.first())?;
    if asked.starts_with('/') || is_program_of(host_root, &hook.path) {
        return None;
    }
    let seen = host_root.join(hook.path.trim_start_matches('/'));
    Some(format!(
        "the hook program `{}` is not there: no container with these devices starts without it; \
         say where the host has one by `--nvidia-cdi-hook-path`",
        seen.display()
    ))
}

/// Whether a root has a program at this path.
fn is_program_of(root: &Path, path: &str) -> bool {
    let status = Root::open(root).and_then(|root| root.stat(path.as_ref()));
    status.is_ok_and(|status| is_program(status.st_mode))
}

/// Whether a file may be executed, by its mode.
fn is_program(mode: u32) -> bool {
    const KIND: u32 = 0o170_000;
    const FILE: u32 = 0o100_000;
    mode & KIND == FILE && mode & 0o111 != 0
}

#[cfg(test)]
mod tests {
    use std::fs;

    use gpu_cdi::Format;

    use super::*;

    #[test]
    fn a_guessed_program_that_the_host_lacks_is_warned_of() {
        let host = tempfile::tempdir().unwrap();
        let spec = |hooks: &str| {
            let edits = format!(r#""containerEdits": {{"env": ["A=1"], "hooks": [{hooks}]}}"#);
            let text = format!(r#"{{"cdiVersion": "0.5.0", "kind": "a.b/c", "devices": [{{"name": "0", {edits}}}]}}"#);
            Spec::from_text(&text, Format::Json).unwrap()
        };
        let hooked = spec(r#"{"hookName": "createContainer", "path": "/usr/bin/hook"}"#);
        let warn = |spec: &Spec, asked| warning(spec, asked, host.path());

        let text = warn(&hooked, "").unwrap();
        let program = host.path().join("usr/bin/hook");
        let start = format!("the hook program `{}` is not there: ", program.display());
        assert!(
            text.starts_with(&start) && text.ends_with("by `--nvidia-cdi-hook-path`"),
            "{text}"
        );
        assert!(warn(&hooked, "hook").is_some(), "a name is searched for");
        assert_eq!(warn(&hooked, "/usr/bin/hook"), None, "it may lie where nobody sees it");
        assert_eq!(warn(&spec(""), ""), None, "no hook, no program");

        fs::create_dir_all(program.parent().unwrap()).unwrap();
        fs::write(&program, "").unwrap();
        assert!(warn(&hooked, "").is_some(), "it cannot be executed");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(warn(&hooked, ""), None);
    }
}
