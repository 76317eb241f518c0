//! Logs of a daemon: to standard error, level by `RUST_LOG`.

use std::io;

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

/// How a daemon logs.
#[derive(Debug, Clone, Args)]
pub(crate) struct Logging {
    /// The form of log lines; their level is set by `RUST_LOG` (default: info)
    #[arg(long, value_enum, env = "GPU_LOG_FORMAT", default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

impl Logging {
    /// Starts logging for this process. Called once.
    pub(crate) fn start(&self) -> anyhow::Result<()> {
        let filter = EnvFilter::builder()
            .with_default_directive(tracing::Level::INFO.into())
            .from_env()?;
        let logs = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(io::stderr)
            .with_target(false);
        match self.log_format {
            LogFormat::Text => logs.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).init(),
            LogFormat::Json => logs.json().init(),
        }
        Ok(())
    }
}
