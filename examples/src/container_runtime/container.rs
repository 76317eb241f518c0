//! The container that is being made, by its OCI configuration.

use std::{
    fmt::Write as _,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow, bail};
use gpu_cdi::{
    Cache, QualifiedName,
    gpu_core::read_bytes,
    runtime::{Request, RequestPolicy, inject, requested},
};
use gpu_runtime_config::toolkit::Config;
use serde_json::Value;

use super::log::Log;
use crate::whole_file;

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

    /// Gives the container what it asks for; nothing changes if it asks for nothing.
    pub(super) fn prepare(mut self, config: &Config, log: &Log) -> anyhow::Result<()> {
        let request = requested(&self.config, &policy(config)?)?;
        if !request.refused.is_empty() {
            log.warning(&format!(
                "it is not privileged and gets none of the devices that its environment names: {}",
                request.refused.join(", ")
            ));
        }
        if request.devices.is_empty() {
            return Ok(());
        }
        if config.mode == "csv" {
            bail!("mode `csv` of the toolkit's configuration is not supported");
        }
        let cache = Cache::read(&config.cdi_spec_dirs);
        let devices = with_companions(request, &cache, log);
        let edits = match cache.edits(&devices) {
            Ok(edits) => edits,
            // Images that ask for GPUs run on nodes whose driver is yet to be installed, that which installs it among them:
            // the vendor's installed runtime hands them on as well (`nvidia-ctk-installer` v1.20, wrapper).
            Err(error) if !driver_is_loaded() => {
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

fn policy(config: &Config) -> anyhow::Result<RequestPolicy> {
    let mut policy = RequestPolicy::default();
    policy.default_kind = config.cdi_default_kind.parse().context("the toolkit's configuration")?;
    policy.annotation_prefixes.clone_from(&config.cdi_annotation_prefixes);
    policy.volume_mounts = config.accept_volume_mounts;
    policy.environment_when_unprivileged = config.accept_environment_when_unprivileged;
    policy.swarm_resources.clone_from(&config.swarm_resources);
    Ok(policy)
}

fn driver_is_loaded() -> bool {
    let modules = fs::read_to_string("/proc/modules").unwrap_or_default();
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
