use std::{io, path::PathBuf, process::ExitStatus, time::Duration};

use gpu_core::GpuUuid;

/// A [`Result`](std::result::Result) whose error is this module's [`Error`] unless said otherwise.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a daemon does not serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder of the MPS root cannot be made or removed.
    #[error("cannot {action} `{}`", path.display())]
    File {
        /// What was attempted.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// What the operating system answered.
        #[source]
        source: io::Error,
    },
    /// The file of the compute modes that GPUs had cannot be understood: another program wrote there, or the disk was full. It was
    /// put aside, and what it said is lost.
    #[error(
        "cannot understand `{}`, which is `{}` now: GPUs that are in exclusive mode get the default mode at the end",
        path.display(),
        aside.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where it is now.
        aside: PathBuf,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// A daemon that does not answer cannot be ended.
    #[error("cannot end the MPS daemon {pid}, which does not answer")]
    Kill {
        /// Its process.
        pid: u32,
        /// What the operating system answered.
        #[source]
        source: io::Error,
    },
    /// The control program cannot be started: it comes with the driver's compute utilities.
    #[error("cannot run `{}`", program.display())]
    Run {
        /// The program.
        program: PathBuf,
        /// What the operating system answered.
        #[source]
        source: io::Error,
    },
    /// The daemon did not carry out a command.
    #[error("the MPS daemon did not carry out `{command}` ({status}): {said}")]
    Refused {
        /// The command.
        command: String,
        /// How the control program ended.
        status: ExitStatus,
        /// What it said.
        said: String,
    },
    /// The daemon does not answer.
    #[error("the MPS daemon did not answer `{command}` within {} s", limit.as_secs())]
    NoAnswer {
        /// The command.
        command: String,
        /// How long was waited.
        limit: Duration,
    },
    /// The daemon has ended by itself.
    #[error("the MPS daemon ended ({status}){}", said_by(said))]
    Ended {
        /// How.
        status: ExitStatus,
        /// What it said last.
        said: String,
    },
    /// The compute mode of a GPU cannot be set.
    #[error("cannot set the compute mode of GPU {gpu}")]
    ComputeMode {
        /// The GPU.
        gpu: GpuUuid,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

fn said_by(said: &str) -> String {
    if said.is_empty() {
        String::new()
    } else {
        format!(": {said}")
    }
}

impl Error {
    pub(super) fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { action, path, source }
    }
}
