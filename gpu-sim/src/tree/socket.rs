//! Sockets of the driver's services.

use std::{fs, path::Path};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::{Tree, absent};
use crate::{Error, Result, Service};

/// Makes or removes the socket of a service. Nobody listens on it.
pub(crate) fn show_service(root: &Path, service: Service, running: bool) -> Result<()> {
    let path = Tree { root }.path(service.socket())?;
    let change = || {
        absent(&path)?;
        if running {
            mknodat(CWD, &path, FileType::Socket, Mode::from_bits_retain(0o666), 0)?;
            // Whatever the mask of this process says.
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o666))?;
        }
        Ok(())
    };
    change().map_err(Error::write(&path))
}
