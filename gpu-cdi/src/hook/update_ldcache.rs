use std::path::Path;

use super::{Container, Error, Report, Result, isolation, ld_so_conf, ldconfig::Ldconfig};

/// Makes the container's loader know the libraries in `folders`, by a copy of the host's `ldconfig` that runs in the
/// container.
pub(super) fn run(root: &Path, ldconfig: &Path, folders: &[String], report: &mut Report) -> Result<()> {
    // Both checked out here, where a failure can be told plainly.
    Container::open(root)?;
    let ldconfig = Ldconfig::copy(ldconfig)?;
    let status = isolation::run(|| {
        isolation::enter(root)?;
        ld_so_conf::add(&Container::entered()?, folders)?;
        Err(ldconfig.become_it())
    })?;
    if !status.success() {
        return Err(Error::LdconfigFailed { status });
    }
    report.note(format!("loader cache with {}", folders.join(", ")));
    Ok(())
}
