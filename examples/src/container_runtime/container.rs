//! The container that is being made, by its OCI configuration.

use std::{
    fmt::Write as _,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow};
use gpu_cdi::{
    Cache, QualifiedName,
    gpu_core::read_bytes,
    runtime::{Request, RequestPolicy, inject, requested},
};
use serde_json::Value;

use super::log::Log;
use crate::{
    toolkit_config::{Mode, ToolkitConfig, keys},
    whole_file,
};

/// Most bytes of a container's configuration; large pods' have some 100 KiB.
const LIMIT: u64 = 32 << 20;

/// A container that is not there yet.
pub(super) struct Container {
    path: PathBuf,
    config: Value,
}

impl Container {
    pub(super) fn read(path: PathBuf) -> anyhow::Result<Self> {
        let text = read_bytes(&path, LIMIT).with_context(|| format!("cannot read `{}`", path.display()))?;
        let config = serde_json::from_slice(&text).with_context(|| format!("`{}` is not JSON", path.display()))?;
        Ok(Self { path, config })
    }

    /// Gives the container what it asks for; nothing changes if it asks for nothing. `modules` is the kernel's list of modules.
    pub(super) fn prepare(mut self, toolkit: &ToolkitConfig, modules: &Path, log: &Log) -> anyhow::Result<()> {
        let (policy, unusable) = policy(toolkit);
        let request = requested(&self.config, &policy)?;
        if !request.refused.is_empty() {
            log.warning(&format!(
                "it is not privileged and gets none of the devices that its environment names: {}",
                request.refused.join(", ")
            ));
        }
        if request.devices.is_empty() {
            return Ok(());
        }
        // Only now: who asks for nothing starts, whatever is configured.
        if let Some(error) = unusable {
            return Err(error);
        }
        let cache = Cache::read(&toolkit.config.cdi_spec_dirs);
        let devices = with_companions(request, &cache, log);
        let edits = match cache.edits(&devices) {
            Ok(edits) => edits,
            // Images that ask for GPUs run on nodes whose driver is yet to be installed, that which installs it among them:
            // the vendor's installed runtime hands them on as well (`nvidia-ctk-installer` v1.20, wrapper).
            Err(error) if !driver_is_loaded(modules) => {
                let error = unresolved(&cache, &error);
                log.warning(&format!(
                    "it starts without {}, which it asks for: no NVIDIA driver is loaded, and {error}",
                    listed(&devices)
                ));
                return Ok(());
            }
            Err(error) => return Err(unresolved(&cache, &error)),
        };
        inject(&mut self.config, &edits)?;
        self.write()?;
        log.info(&format!("`{}` gets {}", self.path.display(), listed(&devices)));
        Ok(())
    }

    /// Puts the configuration in place of its file, with the file's mode and owner.
    fn write(&self) -> anyhow::Result<()> {
        let text = serde_json::to_vec(&self.config)?;
        replace(&self.path, &text).with_context(|| format!("cannot write `{}`", self.path.display()))
    }
}

/// The devices that are asked for, and of those that go with them the ones that this node has.
fn with_companions(request: Request, cache: &Cache, log: &Log) -> Vec<QualifiedName> {
    let mut devices = request.devices;
    for companion in request.companions {
        if cache.file_of(&companion).is_some() {
            devices.push(companion);
        } else {
            log.info(&format!("this node has no `{companion}`, which it can use"));
        }
    }
    devices
}

/// An error of the cache with what may have led to it.
fn unresolved(cache: &Cache, error: &gpu_cdi::Error) -> anyhow::Error {
    let mut text = error.to_string();
    for problem in cache.problems() {
        let _ = write!(text, "; {problem}");
    }
    anyhow!(text)
}

fn listed(devices: &[QualifiedName]) -> String {
    let names: Vec<_> = devices.iter().map(ToString::to_string).collect();
    names.join(", ")
}

/// Which requests count, and what of the configuration cannot be used.
fn policy(toolkit: &ToolkitConfig) -> (RequestPolicy, Option<anyhow::Error>) {
    let config = &toolkit.config;
    let mut policy = RequestPolicy::default();
    let mode = config.mode.parse::<Mode>().with_context(|| toolkit.key(keys::MODE));
    let kind = config.cdi_default_kind.parse();
    let kind = kind.with_context(|| toolkit.key(keys::DEFAULT_KIND));
    let unusable = match kind {
        Ok(kind) => {
            policy.default_kind = kind;
            mode.err()
        }
        Err(error) => Some(error),
    };
    // Every annotation begins with nothing.
    let prefixes = config
        .cdi_annotation_prefixes
        .iter()
        .filter(|prefix| !prefix.is_empty());
    policy.annotation_prefixes = prefixes.cloned().collect();
    policy.volume_mounts = config.accept_volume_mounts;
    policy.environment_when_unprivileged = config.accept_environment_when_unprivileged;
    policy.swarm_resources.clone_from(&config.swarm_resources);
    (policy, unusable)
}

fn driver_is_loaded(modules: &Path) -> bool {
    let modules = fs::read_to_string(modules).unwrap_or_default();
    modules.lines().any(|line| line.split(' ').next() == Some("nvidia"))
}

fn replace(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let status = fs::metadata(path)?;
    let new = whole_file::New {
        mode: status.mode() & 0o7777,
        owner: Some((status.uid(), status.gid())),
        // It is of no use after a crash, when the container is gone.
        lasting: false,
    };
    // A link stays one.
    new.put(&path.canonicalize()?, &mut &text[..])
}

#[cfg(test)]
mod tests {
    use gpu_cdi::runtime::Invocation;
    use serde_json::json;

    use super::*;

    /// A bundle whose container asks by these variables, on a host with one GPU.
    struct Bundle {
        folder: tempfile::TempDir,
        toolkit: ToolkitConfig,
    }

    impl Bundle {
        fn new(variables: &[&str]) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = |name: &str| folder.path().join(name);
            let config = json!({ "process": { "env": variables }, "annotations": { "other/x": "y" } });
            fs::write(path("config.json"), config.to_string()).unwrap();
            let device = json!({ "name": "0", "containerEdits": { "env": ["GPU=0"] } });
            let spec = json!({ "cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [device] });
            fs::create_dir(path("cdi")).unwrap();
            fs::write(path("cdi/nvidia.json"), spec.to_string()).unwrap();
            let mut toolkit = ToolkitConfig {
                path: "/t/config.toml".into(),
                ..ToolkitConfig::default()
            };
            toolkit.config.cdi_spec_dirs = vec![path("cdi").to_string_lossy().into_owned()];
            toolkit.config.log_file = Some(path("log").to_string_lossy().into_owned());
            Self { folder, toolkit }
        }

        /// What becomes of the container on a host with these kernel modules: why there is none, or its configuration, and
        /// what was logged.
        fn prepare(&self, modules: &str) -> (Result<String, String>, String) {
            let path = |name: &str| self.folder.path().join(name);
            fs::write(path("modules"), modules).unwrap();
            let invocation = Invocation {
                makes_container: true,
                container: Some("c1".to_owned()),
                ..Invocation::default()
            };
            let mut log = Log::new(&invocation);
            log.configure(&self.toolkit, &invocation);
            let container = Container::read(path("config.json")).unwrap();
            let done = container.prepare(&self.toolkit, &path("modules"), &log);
            let done = done
                .map(|()| fs::read_to_string(path("config.json")).unwrap())
                .map_err(|error| format!("{error:#}"));
            (done, fs::read_to_string(path("log")).unwrap_or_default())
        }
    }

    #[test]
    fn without_a_driver_a_container_that_asks_is_named_with_what_it_starts_without() {
        let bundle = Bundle::new(&["NVIDIA_VISIBLE_DEVICES=0,7"]);
        let before = fs::read_to_string(bundle.folder.path().join("config.json")).unwrap();
        let (done, log) = bundle.prepare("nvidiafb 1 0 - Live 0x0\nnouveau 2 0 - Live 0x0\n");
        assert_eq!(done, Ok(before));
        let expected = "warning: container c1: it starts without nvidia.com/gpu=0, nvidia.com/gpu=7, which it asks for: \
                        no NVIDIA driver is loaded, and ";
        assert!(log.starts_with(expected), "{log}");

        let (done, log) = bundle.prepare("nvidia_uvm 1 0 - Live 0x0\nnvidia 60 1 nvidia_uvm, Live 0x0\n");
        let error = done.unwrap_err();
        assert!(error.contains("nvidia.com/gpu=7"), "{error}");
        assert_eq!(log.lines().count(), 1, "{log}");

        let (done, log) = Bundle::new(&["PATH=/bin"]).prepare("");
        assert!(
            done.is_ok() && log.is_empty(),
            "nothing is said of one that asks for nothing: {log}"
        );
    }

    #[test]
    fn what_is_configured_wrongly_keeps_only_those_from_starting_that_ask_for_devices() {
        #[track_caller]
        fn check(configure: impl Fn(&mut ToolkitConfig), expected: &str) {
            let mut bundle = Bundle::new(&["PATH=/bin"]);
            configure(&mut bundle.toolkit);
            let (done, _) = bundle.prepare("");
            assert!(done.is_ok(), "{done:?}");
            let mut bundle = Bundle::new(&["NVIDIA_VISIBLE_DEVICES=0"]);
            configure(&mut bundle.toolkit);
            let error = bundle.prepare("").0.unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
        check(
            |toolkit| toolkit.config.cdi_default_kind = "gpu".to_owned(),
            "`nvidia-container-runtime.modes.cdi.default-kind` of `/t/config.toml`: `gpu` is not a CDI kind",
        );
        check(
            |toolkit| toolkit.config.mode = "csv".to_owned(),
            "`nvidia-container-runtime.mode` of `/t/config.toml`: mode `csv` is not supported",
        );
        check(
            |toolkit| toolkit.config.mode = "bogus".to_owned(),
            "`nvidia-container-runtime.mode` of `/t/config.toml`: there is no mode `bogus`",
        );
    }

    #[test]
    fn a_prefix_of_annotations_that_is_empty_means_none() {
        let mut bundle = Bundle::new(&["NVIDIA_VISIBLE_DEVICES=0"]);
        bundle.toolkit.config.cdi_annotation_prefixes = vec!["a/".to_owned(), String::new()];
        let (done, log) = bundle.prepare("");
        assert!(done.unwrap().contains("GPU=0"), "{log}");
    }
}
