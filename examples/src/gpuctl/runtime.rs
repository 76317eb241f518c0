//! `gpuctl runtime`: in the place of `nvidia-ctk runtime`.

use std::path::PathBuf;

use anyhow::{bail, ensure};
use clap::{Args, Subcommand, ValueEnum};
use gpu_runtime_config::{
    Cdi, Plan, Preset, Runtime as NewRuntime, Settings,
    apply::{Lock, Outcome, Restart, Stop, read_file},
    containerd::Version,
};

use crate::{
    engine::{Engine, Target},
    program::{BadUsage, print, remark},
    vendor,
};

#[derive(Debug, Subcommand)]
pub(super) enum Runtime {
    /// Adds the NVIDIA runtime to the engine's configuration
    Configure(Configure),
    /// Shows what `configure` would change, as a unified diff
    Diff(Configure),
    /// Takes back what `configure` did; what others have changed since stays
    Revert(Revert),
}

/// The flags of `nvidia-ctk runtime configure` (v1.20), but for those of OCI hooks.
#[derive(Debug, Args)]
pub(super) struct Configure {
    #[command(flatten)]
    node: Node,

    /// The program behind the engine, asked for its version [default: what listens on the socket]
    #[arg(long, value_name = "PATH")]
    executable_path: Option<PathBuf>,

    /// How the engine is made to use the runtime: by its configuration
    #[arg(long, value_enum, default_value = "config", hide_possible_values = true)]
    config_mode: ConfigMode,

    /// Where the engine's settings are read from: always its files, merged as the engine does it
    #[arg(long, value_enum, default_value = "file", hide_possible_values = true)]
    config_source: ConfigSource,

    /// The name of the runtime
    #[arg(long, default_value = "nvidia", value_name = "NAME")]
    nvidia_runtime_name: String,

    /// Its program [default: /usr/bin/nvidia-container-runtime; for Docker: nvidia-container-runtime]
    #[arg(long, alias = "runtime-path", value_name = "PATH")]
    nvidia_runtime_path: Option<String>,

    /// Makes it the runtime of containers that name none
    #[arg(long, alias = "set-as-default", value_parser = vendor::parse_bool, num_args = 0..=1, require_equals = true,
          default_value = "false", default_missing_value = "true", value_name = "BOOL")]
    nvidia_set_as_default: bool,

    /// Makes the engine inject CDI devices
    #[arg(long = "enable-cdi", aliases = ["cdi.enable", "cdi.enabled"], value_parser = vendor::parse_bool,
          num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true",
          value_name = "BOOL")]
    enable_cdi: bool,

    /// The version of containerd [default: asked of what listens on the socket] (an addition of this program)
    #[arg(long, value_name = "VERSION")]
    containerd_version: Option<Version>,

    /// The socket of the engine [default: the engine's own] (an addition of this program)
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

/// Which files are meant.
#[derive(Debug, Args)]
struct Node {
    /// The engine
    #[arg(long, value_enum, default_value = "docker")]
    runtime: Engine,

    /// Its main file [default: /etc/containerd/config.toml, /etc/crio/crio.conf or /etc/docker/daemon.json]
    #[arg(long, value_name = "PATH")]
    config: Option<PathBuf>,

    /// The drop-in to write [default: /etc/containerd/conf.d/99-nvidia.toml or /etc/crio/crio.conf.d/99-nvidia.toml]
    #[arg(long, value_name = "PATH")]
    drop_in_config: Option<PathBuf>,

    /// A distribution whose containerd it is, in place of `--config` and `--drop-in-config`: kubeadm, k3s, rke2, k0s,
    /// microk8s, eks, gke, aks, talos or bottlerocket (an addition of this program)
    #[arg(long, value_name = "NAME", conflicts_with_all = ["config", "drop_in_config"])]
    preset: Option<Preset>,

    /// Prints what the files would hold, and writes nothing
    #[arg(long)]
    dry_run: bool,

    /// Where the host's files are (an addition of this program)
    #[arg(long, value_name = "PATH", env = "GPU_HOST_ROOT", default_value = "/")]
    host_root: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct Revert {
    #[command(flatten)]
    node: Node,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ConfigMode {
    #[value(alias = "", alias = "config-file")]
    Config,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ConfigSource {
    #[value(alias = "command")]
    File,
}

impl Runtime {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        match self {
            Self::Configure(command) => {
                let mut target = command.node.target()?;
                let lock = command.node.lock(&target)?;
                let plan = command.plan(&mut target)?;
                finish(&target, &plan, lock.as_ref())
            }
            Self::Diff(command) => print(command.plan(&mut command.node.target()?)?.diff()),
            Self::Revert(command) => {
                let target = command.node.target()?;
                let lock = command.node.lock(&target)?;
                let Some(plan) = target.revert()? else {
                    remark(format_args!(
                        "`{}` was not configured by gpuctl: nothing to do",
                        target.main.display()
                    ));
                    return Ok(());
                };
                notices(&plan);
                finish(&target, &plan, lock.as_ref())
            }
        }
    }
}

impl Configure {
    fn plan(&self, target: &mut Target) -> anyhow::Result<Plan> {
        let (ConfigMode::Config, ConfigSource::File) = (self.config_mode, self.config_source);
        let socket = self.node.preset.map_or(target.engine.socket(), Preset::socket);
        let socket = self.socket.clone().unwrap_or_else(|| socket.into());
        let executable = self.executable_path.as_deref();
        target.settle(self.containerd_version, &socket, executable, &Stop::default())?;
        let plan = target.plan(&self.settings())?;
        notices(&plan);
        Ok(plan)
    }

    fn settings(&self) -> Settings {
        let name = &self.nvidia_runtime_name;
        let path = self.nvidia_runtime_path.clone().filter(|path| !path.is_empty());
        let path = path.unwrap_or_else(|| {
            match self.node.runtime {
                Engine::Docker => "nvidia-container-runtime",
                Engine::Containerd | Engine::Crio => "/usr/bin/nvidia-container-runtime",
            }
            .to_owned()
        });
        Settings {
            runtimes: vec![NewRuntime::new(name, path)],
            default_runtime: self.nvidia_set_as_default.then(|| name.clone()),
            cdi: self.enable_cdi.then(Cdi::default),
            container_annotations: Vec::new(),
        }
    }
}

impl Node {
    fn target(&self) -> anyhow::Result<Target> {
        let Some(preset) = self.preset else {
            return Target::new(
                self.runtime,
                &self.host_root,
                self.config.clone(),
                self.drop_in_config.clone(),
            );
        };
        ensure!(
            self.runtime == Engine::Containerd,
            BadUsage::new("`--preset` is for `--runtime=containerd`")
        );
        if let Some(note) = preset.note() {
            remark(format_args!("{preset}: {note}"));
        }
        Target::of_preset(preset, &self.host_root, None)
    }

    /// The right to change the files; what only shows something needs none.
    fn lock(&self, target: &Target) -> anyhow::Result<Option<Lock>> {
        (!self.dry_run).then(|| target.lock(&Stop::default())).transpose()
    }
}

fn notices(plan: &Plan) {
    for notice in &plan.notices {
        remark(format_args!("note: {notice}"));
    }
}

/// Carries a plan out under the lock, or shows what would come of it.
fn finish(target: &Target, plan: &Plan, lock: Option<&Lock>) -> anyhow::Result<()> {
    let Some(lock) = lock else {
        return print(contents(target, plan)?);
    };
    match target.apply(plan, Restart::None, None, &Stop::default(), lock)? {
        Outcome::Unchanged => remark("Nothing to change"),
        Outcome::Applied => {
            for change in &plan.changes {
                let verb = if change.after.is_some() { "Wrote" } else { "Removed" };
                remark(format_args!("{verb} `{}`", change.path.display()));
            }
            remark(format_args!(
                "It is recommended that {} be restarted.",
                target.engine.name()
            ));
        }
        other => bail!("cannot configure {}: {other:?}", target.engine.name()),
    }
    Ok(())
}

/// What the files would hold: the drop-in, then the main file.
fn contents(target: &Target, plan: &Plan) -> anyhow::Result<String> {
    let mut texts = Vec::new();
    let drop_in = target.engine.drop_in().map(|_| &target.drop_in);
    for path in drop_in.into_iter().chain([&target.main]) {
        let change = plan.changes.iter().find(|change| change.path == *path);
        let text = match change {
            Some(change) => change.after.clone(),
            None => read_file(&target.host_root, path)?.text,
        };
        texts.extend(text);
    }
    Ok(texts.join("\n"))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use clap::Parser;

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
}
