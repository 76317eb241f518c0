use std::{io, path::Path};

use rustix::fs::{FileType, Mode};

use super::{Container, Error, Report, Result};

const FILE: &str = "/etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf";

/// Tells the driver's EGL and Vulkan which GPUs the container has: those with a node in its `/dev`.
pub(super) fn run(container: &Container, report: &mut Report) -> Result<()> {
    let dev = Path::new("/dev");
    let names = match container.root.list(dev) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(Error::io("list the container's `/dev`")(error)),
    };
    let mut mask = 0u64;
    for name in names
        .iter()
        .filter_map(|name| name.to_str())
        .filter(|name| is_gpu(name))
    {
        let path = dev.join(name);
        let stat = container
            .root
            .lstat(&path)
            .map_err(Error::io(format!("look at the container's `{}`", path.display())))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::CharacterDevice {
            continue;
        }
        match rustix::fs::minor(stat.st_rdev) {
            minor @ 0..64 => mask |= 1 << minor,
            minor => report.warn(format!(
                "minor number {minor} of `{}` is over 63: not in the profile",
                path.display()
            )),
        }
    }
    if mask == 0 {
        report.note("no GPU in the container: no application profile");
        return Ok(());
    }
    let content = format!(
        r#"{{"profiles":[{{"name":"_container_","settings":["EGLVisibleDGPUDevices",{mask:#x}]}}],"rules":[{{"pattern":[],"profile":"_container_"}}]}}"#
    );
    container
        .put_file(
            Path::new(FILE),
            content.as_bytes(),
            Mode::from(0o444),
            Mode::from(0o555),
        )
        .map_err(Error::io(format!("write `{FILE}` in the container")))?;
    report.note(format!("application profile for the GPUs {mask:#x}"));
    Ok(())
}

/// Whether a device node is that of a GPU: `nvidia` and a number.
fn is_gpu(name: &str) -> bool {
    let number = name.strip_prefix("nvidia").unwrap_or_default();
    !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
}
