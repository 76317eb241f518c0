use std::{ffi::OsString, path::PathBuf};

/// Where the daemon's sockets and logs are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Folders {
    pub(super) pipe: PathBuf,
    pub(super) log: PathBuf,
}

impl Folders {
    /// As two environment variables say, empty ones counting as absent.
    pub(super) fn from_env(get: impl Fn(&'static str) -> Option<OsString>) -> Self {
        let folder = |name, default: &str| {
            get(name)
                .filter(|value| !value.is_empty())
                .map_or_else(|| PathBuf::from(default), PathBuf::from)
        };
        Self {
            pipe: folder("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"),
            log: folder("CUDA_MPS_LOG_DIRECTORY", "/var/log/nvidia-mps"),
        }
    }

    /// Where clients connect.
    pub(super) fn clients(&self) -> PathBuf {
        self.pipe.join("control")
    }

    /// Where the front end connects.
    pub(super) fn commands(&self) -> PathBuf {
        self.pipe.join("control_privileged")
    }

    pub(super) fn lock(&self) -> PathBuf {
        self.pipe.join("control_lock")
    }

    pub(super) fn pid(&self) -> PathBuf {
        self.pipe.join("nvidia-cuda-mps-control.pid")
    }

    pub(super) fn control_log(&self) -> PathBuf {
        self.log.join("control.log")
    }

    pub(super) fn server_log(&self) -> PathBuf {
        self.log.join("server.log")
    }
}
