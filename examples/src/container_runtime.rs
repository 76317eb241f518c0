//! `gpu-container-runtime`: gives containers the devices that they ask for, then becomes runc or crun.
//!
//! For engines that inject no CDI devices themselves, in the place of `nvidia-container-runtime`, `.cdi` and `.legacy`. It
//! takes the arguments of the low-level runtime and hands them on untouched; its settings are in the toolkit's
//! `config.toml`.

use std::{
    env,
    ffi::{OsStr, OsString},
    fmt::Write as _,
    fs::{self, OpenOptions},
    io::Write as _,
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context as _, anyhow, bail};
use gpu_cdi::{
    Cache,
    gpu_core::read_bytes,
    runtime::{Invocation, RequestPolicy, inject, requested},
};
use gpu_runtime_config::toolkit::Config;
use serde_json::{Value, json};

use crate::{toolkit_config, whole_file};

/// Runs the runtime with these arguments, the program's name first; returns only if it cannot.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().skip(1).collect();
    let invocation = Invocation::parse(&arguments);
    let error = match run(&invocation, &arguments) {
        Ok(never) => match never {},
        Err(error) => error,
    };
    report(&invocation, &error);
    ExitCode::FAILURE
}

/// No value: a runtime that was become does not return.
enum Never {}

fn run(invocation: &Invocation, arguments: &[OsString]) -> anyhow::Result<Never> {
    let config = toolkit_config::read(None)?;
    let runtime = low_level(&config.runtimes)?;
    if invocation.makes_container {
        prepare(&invocation.config(), &config)?;
    }
    let error = Command::new(&runtime).args(arguments).exec();
    Err(anyhow!(error).context(format!("cannot run `{}`", runtime.display())))
}

/// Edits a container's configuration if the container asks for devices.
fn prepare(path: &Path, config: &Config) -> anyhow::Result<()> {
    let text = read_bytes(path, LIMIT).with_context(|| format!("cannot read `{}`", path.display()))?;
    let mut container: Value =
        serde_json::from_slice(&text).with_context(|| format!("`{}` is not JSON", path.display()))?;
    let request = requested(&container, &policy(config)?)?;
    if !request.refused.is_empty() {
        log(
            config,
            &format!(
                "the container is not privileged and gets none of the devices that its environment names: {}",
                request.refused.join(", ")
            ),
        );
    }
    if request.devices.is_empty() {
        return Ok(());
    }
    if config.mode == "csv" {
        bail!("mode `csv` of the toolkit's configuration is not supported");
    }
    let cache = Cache::read(&config.cdi_spec_dirs);
    let mut devices = request.devices;
    for companion in request.companions {
        if cache.file_of(&companion).is_some() {
            devices.push(companion);
        } else {
            log(
                config,
                &format!("this node has no `{companion}`, which the container can use"),
            );
        }
    }
    let edits = match cache.edits(&devices) {
        Ok(edits) => edits,
        // Images that ask for GPUs run on nodes whose driver is yet to be installed, that which installs it among them.
        Err(_) if !driver_is_loaded() => {
            log(config, "no NVIDIA driver is loaded: the container is left as it is");
            return Ok(());
        }
        Err(error) => {
            let mut text = error.to_string();
            for problem in cache.problems() {
                let _ = write!(text, "; {problem}");
            }
            bail!(text);
        }
    };
    inject(&mut container, &edits)?;
    replace(path, &serde_json::to_vec(&container)?).with_context(|| format!("cannot write `{}`", path.display()))?;
    let names: Vec<_> = devices.iter().map(ToString::to_string).collect();
    log(config, &format!("`{}` gets {}", path.display(), names.join(", ")));
    Ok(())
}

/// Most bytes of a container's configuration; large pods' have some 100 KiB.
const LIMIT: u64 = 32 << 20;

fn policy(config: &Config) -> anyhow::Result<RequestPolicy> {
    let mut policy = RequestPolicy::default();
    policy.default_kind = config.cdi_default_kind.parse().context("the toolkit's configuration")?;
    policy.annotation_prefixes.clone_from(&config.cdi_annotation_prefixes);
    policy.volume_mounts = config.accept_volume_mounts;
    policy.environment_when_unprivileged = config.accept_environment_when_unprivileged;
    policy.swarm_resources.clone_from(&config.swarm_resources);
    Ok(policy)
}

/// The first of the low-level runtimes that exists, and is not this program under another name.
fn low_level(names: &[String]) -> anyhow::Result<PathBuf> {
    let own = fs::metadata("/proc/self/exe")
        .ok()
        .map(|status| (status.dev(), status.ino()));
    let usable = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|status| {
            status.is_file() && status.permissions().mode() & 0o111 != 0 && own != Some((status.dev(), status.ino()))
        })
    };
    let path = env::var_os("PATH").filter(|path| !path.is_empty());
    let path = path.unwrap_or_else(|| "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into());
    let places = |name: &String| -> Vec<PathBuf> {
        if name.contains('/') {
            return vec![name.into()];
        }
        env::split_paths(&path).map(|folder| folder.join(name)).collect()
    };
    let mut found = names.iter().flat_map(places).filter(|path| path.is_absolute());
    found
        .find(usable)
        .with_context(|| format!("none of the low-level runtimes {} is installed", names.join(", ")))
}

fn driver_is_loaded() -> bool {
    let modules = fs::read_to_string("/proc/modules").unwrap_or_default();
    modules.lines().any(|line| line.split(' ').next() == Some("nvidia"))
}

/// Puts a text in place of a file, with the file's mode and owner.
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

/// Adds a line to the log that the toolkit's configuration names, if it does; what fails here must stop no container.
fn log(config: &Config, text: &str) {
    if let Some(path) = &config.log_file {
        append(path.as_ref(), text);
    }
}

/// Tells the engine why there is no container: it reads the log that it gave the runtime. People read standard error.
fn report(invocation: &Invocation, error: &anyhow::Error) {
    // Nobody is left to tell if it is closed.
    let _ = writeln!(std::io::stderr(), "error: {error:#}");
    let Some(path) = &invocation.log else { return };
    let text = format!("gpu-container-runtime: {error:#}");
    if invocation.log_is_json {
        append(path.as_os_str(), &json!({ "level": "error", "msg": text }).to_string());
    } else {
        append(path.as_os_str(), &text);
    }
}

fn append(path: &OsStr, line: &str) {
    let file = OpenOptions::new().append(true).create(true).open(path);
    // The message is on standard error as well.
    let _ = file.and_then(|mut file| writeln!(file, "{line}"));
}
