use std::path::PathBuf;

/// A [`Result`](std::result::Result) whose error is this crate's [`Error`] unless said otherwise.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a plugin cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The plugin's own socket cannot be made. Remove what is in its place, or run as root.
    #[error("cannot serve on `{}`", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// What stands in the way.
        #[source]
        source: gpu_kubelet::Error,
    },
    /// The GPUs of the node cannot be read.
    #[cfg(feature = "gpu")]
    #[error(transparent)]
    Hardware(#[from] gpu_core::Error),
    /// The CDI file cannot be made or written.
    #[cfg(feature = "gpu")]
    #[error(transparent)]
    Cdi(#[from] gpu_cdi::Error),
    /// The driver was replaced while the node was served, and this process has the old one's library: the loader never loads a
    /// second one of the same name. Start anew.
    #[cfg(feature = "gpu")]
    #[error("the driver was replaced, and its new library takes a new process")]
    DriverReplaced(#[source] gpu_core::Error),
    /// The node is not as its configuration wants it.
    #[cfg(feature = "gpu")]
    #[error(transparent)]
    Offer(#[from] crate::OfferError),
    /// GPUs cannot be shared by MPS as they are configured.
    #[cfg(feature = "gpu")]
    #[error(transparent)]
    Mps(#[from] gpu_sharing::mps::Error),
    /// An IMEX channel that is required is not there: make its node, or do not require it.
    #[cfg(feature = "gpu")]
    #[error("requested IMEX channel channel{channel} does not exist")]
    ImexChannel {
        /// Its number.
        channel: u32,
    },
}

impl Error {
    /// Whether waiting may help: a driver that is not there yet, or not whole, can still be installed or loaded.
    pub fn is_transient(&self) -> bool {
        match self {
            #[cfg(feature = "gpu")]
            Self::Hardware(error) => error.is_transient(),
            #[cfg(feature = "gpu")]
            Self::Cdi(error) => matches!(
                error,
                gpu_cdi::Error::NoDriverLibraries { .. } | gpu_cdi::Error::NothingToDescribe { .. }
            ),
            // The layout, the device node and the configuration may change, and are looked at again when they do.
            #[cfg(feature = "gpu")]
            Self::Offer(_) | Self::Mps(_) | Self::ImexChannel { .. } => true,
            #[cfg(feature = "gpu")]
            Self::DriverReplaced(_) => false,
            Self::Socket { .. } => false,
        }
    }
}

/// An error and all its causes in one line, each said once: some libraries repeat the cause in their own message.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if !text.ends_with(&words) {
            text = format!("{text}: {words}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_chain_goes_to_its_end() {
        let source = gpu_kubelet::Error::Listen {
            path: "/a".into(),
            source: io::Error::other("no room"),
        };
        let error = Error::Socket {
            path: "/a".into(),
            source,
        };
        assert_eq!(chain(&error), "cannot serve on `/a`: cannot listen on `/a`: no room");
        assert!(!error.is_transient());
    }

    #[cfg(feature = "gpu")]
    #[test]
    fn a_driver_root_that_is_still_empty_is_worth_waiting_for() {
        let error = gpu_cdi::Error::NoDriverLibraries {
            root: "/".into(),
            version: None,
        };
        assert!(Error::from(error).is_transient());
    }
}
