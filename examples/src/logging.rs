//! Logs: to standard error, level by `RUST_LOG`.

use std::{io, str::FromStr};

use clap::{Args, ValueEnum};
use tracing::Level;
use tracing_subscriber::{EnvFilter, filter::Directive};

use crate::{names, vendor};

/// How a program logs; the same arguments for each.
#[derive(Debug, Clone, Args)]
pub(crate) struct Logging {
    /// The form of log lines; their level is set by `RUST_LOG`
    #[arg(long, value_enum, env = names::LOG_FORMAT, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

impl Logging {
    /// Starts logging for this process, from this level on unless `RUST_LOG` says otherwise. Called once.
    pub(crate) fn start_at(&self, level: Level) -> anyhow::Result<()> {
        // The Kubernetes client speaks of every failure itself; the programs say what failed, and once.
        let quiet = Directive::from_str("kube_client=off")?;
        let filter = match vendor::env(EnvFilter::DEFAULT_ENV) {
            filter if !filter.is_empty() => EnvFilter::builder()
                .with_default_directive(level.into())
                .parse(filter)?,
            _ => EnvFilter::default().add_directive(level.into()).add_directive(quiet),
        };
        let logs = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(io::stderr)
            .with_target(false)
            // A log that nobody reads any more (`| head`) must not end a daemon: the remark about it would panic.
            .log_internal_errors(false);
        match self.log_format {
            LogFormat::Text => logs.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).init(),
            LogFormat::Json => logs.json().init(),
        }
        Ok(())
    }
}

#[cfg(any(
    feature = "config-manager",
    feature = "device-plugin",
    feature = "feature-discovery",
    feature = "mig-manager",
    feature = "mps-daemon",
    feature = "toolkit"
))]
impl Logging {
    /// The same for a daemon: from `info` on.
    pub(crate) fn start(&self) -> anyhow::Result<()> {
        self.start_at(Level::INFO)
    }
}
