//! What the vendor's configuration file, the environment and the flags mean together.

use std::{env, path::PathBuf};

use anyhow::Context;
use clap::Args;
use gpu_sharing::config::{Config, ConfigFile, Flags, Options, Program, Reading};

use crate::{config_file, names, program::BadUsage, vendor};

/// Where the configuration file is, and how it is read: the same arguments for every program that reads it.
#[derive(Debug, Clone, Args)]
pub(crate) struct ConfigArguments {
    /// The configuration file that the programs of a node share; read anew when it changes, and at SIGHUP [`CONFIG_FILE`]
    #[arg(long, value_name = "PATH")]
    config_file: Option<String>,

    /// Pass over keys of the configuration file that nothing reads, with a warning (an addition of this program)
    #[arg(long, env = names::LENIENT_CONFIG, value_name = "BOOL", default_value = "false", value_parser = vendor::parse_bool,
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    lenient_config: bool,

    /// Honour `resources`, `rename` and `devices` in the configuration file (an addition of this program)
    #[arg(long, env = names::RESOURCE_NAMING, value_name = "BOOL", default_value = "false", value_parser = vendor::parse_bool,
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    resource_naming: bool,
}

/// What a program runs with, and what it was read from.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    pub(crate) config: Config,
    /// What was passed over.
    pub(crate) warnings: Vec<String>,
    /// The configuration file's text, to see when it changes.
    pub(crate) text: Option<String>,
}

impl ConfigArguments {
    /// Reads the configuration file and puts it beneath the environment, and that beneath the command line.
    pub(crate) fn settings(&self, program: Program, command_line: Flags) -> anyhow::Result<Settings> {
        let environment = Flags::from_environment(program, env::var_os).map_err(BadUsage::new)?;
        let text = self.text(program)?;
        let reading = if self.lenient_config {
            Reading::Lenient
        } else {
            Reading::Strict
        };
        let (file, unknown) = ConfigFile::parse(text.as_deref().unwrap_or_default(), reading)
            .with_context(|| format!("cannot use the configuration file `{}`", self.path(program).display()))?;
        let options = Options {
            naming: self.resource_naming,
        };
        let (config, ignored) = Config::resolve(file, command_line.or(environment), options);
        config.check(program)?;
        let warnings = unknown.iter().chain(&ignored).map(ToString::to_string).collect();
        Ok(Settings { config, warnings, text })
    }

    /// Whether a file is named.
    #[cfg(all(feature = "config-manager", feature = "node-events"))]
    pub(crate) fn is_given(&self) -> bool {
        !self.path(Program::DevicePlugin).as_os_str().is_empty()
    }

    /// The same with another file.
    #[cfg(feature = "device-plugin")]
    pub(crate) fn at(mut self, path: &std::path::Path) -> anyhow::Result<Self> {
        let text = path.to_str();
        let text =
            text.with_context(|| format!("the path of the configuration file `{}` is not UTF-8", path.display()))?;
        self.config_file = Some(text.to_owned());
        Ok(self)
    }

    /// The configuration file's text; `None` where there is none.
    pub(crate) fn text(&self, program: Program) -> anyhow::Result<Option<String>> {
        let path = self.path(program);
        if path.as_os_str().is_empty() {
            return Ok(None);
        }
        config_file::read(&path).map(Some)
    }

    /// The configuration file; an empty path is none.
    fn path(&self, program: Program) -> PathBuf {
        let variable = || match program {
            Program::FeatureDiscovery => vendor::env_or(
                names::feature_discovery::GFD_CONFIG_FILE,
                &vendor::env(names::CONFIG_FILE),
            ),
            _ => vendor::env(names::CONFIG_FILE),
        };
        self.config_file.clone().unwrap_or_else(variable).into()
    }
}
