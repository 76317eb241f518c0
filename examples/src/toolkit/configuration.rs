//! The installed programs' configuration: the vendor's defaults with what was asked for.

use std::path::Path;

use gpu_cdi::Cache;
use gpu_runtime_config::toolkit::{self, Assignment};

use super::{
    arguments::Arguments,
    installed_file::{Content, InstalledFile},
};
use crate::{engine::Target, toolkit_config};

/// The file as it is to be.
pub(super) fn file(arguments: &Arguments, target: &Target) -> anyhow::Result<InstalledFile> {
    let runtimes = match arguments.nvidia_container_runtime_runtimes.as_slice() {
        [] => target.low_level_runtimes(&arguments.settings())?,
        given => given.to_vec(),
    };
    Ok(InstalledFile {
        path: arguments
            .folder()
            .join(toolkit_config::BESIDE)
            .join(toolkit_config::PATH),
        content: Content::Text(text(arguments, &runtimes)?),
        mode: 0o644,
    })
}

fn text(arguments: &Arguments, runtimes: &[String]) -> anyhow::Result<String> {
    let mut settings = always(arguments, runtimes);
    settings.extend(where_asked_for(arguments));
    settings.extend(of_cdi(arguments));
    let assignments = settings
        .iter()
        .map(|setting| Assignment::parse(setting, ","))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(toolkit::set(
        "config.toml".as_ref(),
        &toolkit::defaults(),
        &assignments,
    )?)
}

fn always(arguments: &Arguments, runtimes: &[String]) -> Vec<String> {
    vec![
        format!("nvidia-container-cli.root={}", arguments.driver_root),
        format!("nvidia-ctk.path={}", arguments.folder().join("nvidia-ctk").display()),
        "nvidia-container-runtime-hook.skip-mode-detection=true".to_owned(),
        format!(
            "accept-nvidia-visible-devices-envvar-when-unprivileged={}",
            arguments.accept_nvidia_visible_devices_envvar_when_unprivileged
        ),
        format!(
            "accept-nvidia-visible-devices-as-volume-mounts={}",
            arguments.accept_nvidia_visible_devices_as_volume_mounts
        ),
        format!("nvidia-container-runtime.runtimes={}", runtimes.join(",")),
    ]
}

fn where_asked_for(arguments: &Arguments) -> impl Iterator<Item = String> {
    let settings = [
        (
            "nvidia-container-runtime.debug",
            &arguments.nvidia_container_runtime_debug,
        ),
        (
            "nvidia-container-runtime.log-level",
            &arguments.nvidia_container_runtime_log_level,
        ),
        (
            "nvidia-container-runtime.mode",
            &arguments.nvidia_container_runtime_mode,
        ),
        (
            "nvidia-container-runtime.modes.cdi.default-kind",
            &arguments.default_kind,
        ),
    ];
    settings.into_iter().filter_map(|(key, value)| {
        let value = value.as_ref().filter(|value| !value.is_empty())?;
        Some(format!("{key}={value}"))
    })
}

fn of_cdi(arguments: &Arguments) -> Vec<String> {
    let mut settings = Vec::new();
    let specs = arguments.specs();
    if !Cache::DIRS.iter().any(|folder| Path::new(folder) == specs) {
        // The last one counts most: these specs are those that are kept up to date.
        let folders = format!("{},{}", Cache::DIRS.join(","), specs.display());
        settings.push(format!("nvidia-container-runtime.modes.cdi.spec-dirs={folders}"));
    }
    if !arguments.annotation_prefixes.is_empty() {
        let prefixes = arguments.annotation_prefixes.join(",");
        settings.push(format!(
            "nvidia-container-runtime.modes.cdi.annotation-prefixes={prefixes}"
        ));
    }
    settings
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use gpu_runtime_config::toolkit::Config;

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn the_runtime_reads_what_was_asked_for() {
        let Program { arguments } = Program::parse_from([
            "x",
            "--nvidia-container-runtime-debug=/l",
            "--nvidia-container-runtime-log-level=debug",
            "--nvidia-container-runtime-modes.cdi.default-kind=v.com/gpu",
            "--cdi-enabled",
            "--cdi-output-dir=/c",
        ]);
        let text = text(&arguments, &["/opt/runc".to_owned()]).unwrap();
        let config = Config::parse("c".as_ref(), &text).unwrap();
        assert_eq!(
            (
                config.log_file.as_deref(),
                config.log_level.as_str(),
                config.cdi_default_kind.as_str()
            ),
            (Some("/l"), "debug", "v.com/gpu")
        );
        assert_eq!(config.cdi_spec_dirs, ["/etc/cdi", "/var/run/cdi", "/c"]);
        assert_eq!(
            (config.runtimes, config.unknown_keys),
            (vec!["/opt/runc".to_owned()], vec![])
        );
    }
}
