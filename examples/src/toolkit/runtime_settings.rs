//! What the installed runtime is told by its configuration.

use std::str::FromStr;

use clap::Args;
use gpu_cdi::Kind;

use crate::{
    toolkit_config::{LogLevel, Mode, keys},
    vendor,
};

/// The vendor's settings of `nvidia-container-runtime`. What the runtime could not use is refused here, before every container
/// of the node fails by it.
#[derive(Debug, Args)]
pub(super) struct RuntimeSettings {
    /// Whether containers that are not privileged get the devices that their environment names
    #[arg(long, env = "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED", value_parser = vendor::parse_bool,
          num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true", value_name = "BOOL")]
    accept_nvidia_visible_devices_envvar_when_unprivileged: bool,

    /// Whether containers get the devices that their mounts name
    #[arg(long, env = "ACCEPT_NVIDIA_VISIBLE_DEVICES_AS_VOLUME_MOUNTS", value_parser = vendor::parse_bool,
          num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_name = "BOOL")]
    accept_nvidia_visible_devices_as_volume_mounts: bool,

    /// The runtime's log file
    #[arg(long, env = "NVIDIA_CONTAINER_RUNTIME_DEBUG", value_name = "PATH")]
    nvidia_container_runtime_debug: Option<String>,

    /// How much the runtime logs: error, warning, info or debug [default: info]
    #[arg(long, env = "NVIDIA_CONTAINER_RUNTIME_LOG_LEVEL", value_name = "LEVEL", value_parser = checked::<LogLevel>)]
    nvidia_container_runtime_log_level: Option<String>,

    /// The runtime's mode: auto, cdi, jit-cdi or legacy; all of them use CDI
    #[arg(long, env = "NVIDIA_CONTAINER_RUNTIME_MODE", value_name = "MODE", value_parser = checked::<Mode>)]
    nvidia_container_runtime_mode: Option<String>,

    /// The low-level runtimes [default: those of the engine, runc, crun]
    #[arg(
        long,
        env = "NVIDIA_CONTAINER_RUNTIME_RUNTIMES",
        value_delimiter = ',',
        value_name = "NAME"
    )]
    nvidia_container_runtime_runtimes: Vec<String>,

    /// The kind of devices that are named without one [default: nvidia.com/gpu]
    #[arg(
        long = "nvidia-container-runtime-modes.cdi.default-kind",
        env = "NVIDIA_CONTAINER_RUNTIME_MODES_CDI_DEFAULT_KIND",
        value_name = "KIND",
        value_parser = checked::<Kind>
    )]
    default_kind: Option<String>,

    /// What annotations begin with that name devices
    #[arg(
        long = "nvidia-container-runtime-modes.cdi.annotation-prefixes",
        env = "NVIDIA_CONTAINER_RUNTIME_MODES_CDI_ANNOTATION_PREFIXES",
        value_delimiter = ',',
        value_name = "PREFIX"
    )]
    annotation_prefixes: Vec<String>,
}

/// A text that says what it should; empty, it says nothing, as for the vendor's program.
fn checked<T: FromStr>(text: &str) -> Result<String, T::Err> {
    if !text.is_empty() {
        text.parse::<T>()?;
    }
    Ok(text.to_owned())
}

impl RuntimeSettings {
    /// The low-level runtimes that are given, none for those of the engine.
    pub(super) fn low_level_runtimes(&self) -> Vec<String> {
        filled(&self.nvidia_container_runtime_runtimes)
            .map(str::to_owned)
            .collect()
    }

    /// What annotations begin with. Every annotation begins with nothing, which is thus left out: a list often ends in a comma.
    pub(super) fn annotation_prefixes(&self) -> impl Iterator<Item = &str> {
        filled(&self.annotation_prefixes)
    }

    /// The keys of the runtime's configuration that these settings are about, with their values.
    pub(super) fn assignments(&self) -> Vec<(&'static str, String)> {
        let always = [
            (
                keys::ACCEPT_ENVIRONMENT,
                self.accept_nvidia_visible_devices_envvar_when_unprivileged,
            ),
            (keys::ACCEPT_MOUNTS, self.accept_nvidia_visible_devices_as_volume_mounts),
        ];
        let always = always.map(|(key, value)| (key, value.to_string()));
        let where_given = [
            (keys::DEBUG, &self.nvidia_container_runtime_debug),
            (keys::LOG_LEVEL, &self.nvidia_container_runtime_log_level),
            (keys::MODE, &self.nvidia_container_runtime_mode),
            (keys::DEFAULT_KIND, &self.default_kind),
        ];
        let where_given = where_given.into_iter().filter_map(|(key, value)| {
            let value = value.as_ref().filter(|value| !value.is_empty())?;
            Some((key, value.clone()))
        });
        let prefixes: Vec<&str> = self.annotation_prefixes().collect();
        let prefixes = (!prefixes.is_empty()).then(|| (keys::ANNOTATION_PREFIXES, prefixes.join(",")));
        always.into_iter().chain(where_given).chain(prefixes).collect()
    }
}

fn filled(texts: &[String]) -> impl Iterator<Item = &str> {
    texts.iter().map(String::as_str).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        settings: RuntimeSettings,
    }

    fn parse(arguments: &[&str]) -> Result<RuntimeSettings, String> {
        Program::try_parse_from(["x"].iter().chain(arguments))
            .map(|program| program.settings)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn what_the_runtime_could_not_use_is_refused() {
        #[track_caller]
        fn check(argument: &str, expected: &str) {
            let error = parse(&[argument]).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        check("--nvidia-container-runtime-mode=csv", "mode `csv` is not supported");
        check("--nvidia-container-runtime-mode=bogus", "no mode `bogus`");
        check("--nvidia-container-runtime-log-level=loud", "no log level `loud`");
        check(
            "--nvidia-container-runtime-modes.cdi.default-kind=gpu",
            "`gpu` is not a CDI kind",
        );
        for argument in [
            "--nvidia-container-runtime-mode=jit-cdi",
            "--nvidia-container-runtime-mode=",
            "--nvidia-container-runtime-log-level=WARN",
            "--nvidia-container-runtime-modes.cdi.default-kind=",
        ] {
            parse(&[argument]).unwrap();
        }
    }

    #[test]
    fn what_is_empty_in_a_list_is_left_out() {
        let settings = parse(&[
            "--nvidia-container-runtime-modes.cdi.annotation-prefixes=a/,,b/,",
            "--nvidia-container-runtime-runtimes=crun,",
        ])
        .unwrap();
        assert_eq!(settings.annotation_prefixes().collect::<Vec<_>>(), ["a/", "b/"]);
        assert_eq!(settings.low_level_runtimes(), ["crun"]);
        let settings = parse(&["--nvidia-container-runtime-modes.cdi.annotation-prefixes=,"]).unwrap();
        let is_set = |(key, _): &(&str, String)| *key == keys::ANNOTATION_PREFIXES;
        assert!(!settings.assignments().iter().any(is_set));
    }
}
