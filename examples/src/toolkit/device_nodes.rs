//! The control nodes, which the driver itself makes only when a program of its own is run.

use std::{collections::BTreeMap, fs, path::Path};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

/// The nodes, the drivers that they belong to, and their minor numbers.
const CONTROL: [(&str, &[&str], u32); 4] = [
    ("nvidiactl", &["nvidia", "nvidia-frontend"], 255),
    ("nvidia-modeset", &["nvidia", "nvidia-frontend"], 254),
    ("nvidia-uvm", &["nvidia-uvm"], 0),
    ("nvidia-uvm-tools", &["nvidia-uvm"], 1),
];

/// Makes the control nodes that are missing and whose driver is loaded. That one cannot be made is logged: the driver's
/// own programs may do better.
pub(super) fn create(host_root: &Path, dev_root: &Path) {
    let devices = fs::read_to_string(host_root.join("proc/devices")).unwrap_or_default();
    let majors = majors(&devices);
    for (name, drivers, minor) in CONTROL {
        let path = dev_root.join("dev").join(name);
        let Some(major) = drivers.iter().find_map(|driver| majors.get(driver)) else {
            continue;
        };
        if path.symlink_metadata().is_ok() {
            continue;
        }
        let all = Mode::from_raw_mode(0o666);
        let made = mknodat(CWD, &path, FileType::CharacterDevice, all, makedev(*major, minor))
            .and_then(|()| rustix::fs::chmod(&path, all)); // the umask took its share
        match made {
            Ok(()) => tracing::info!("made `{}`", path.display()),
            Err(error) => tracing::warn!("cannot make `{}`: {error}", path.display()),
        }
    }
}

/// The major numbers of character devices in `/proc/devices`.
fn majors(devices: &str) -> BTreeMap<&str, u32> {
    let lines = devices.lines().skip_while(|line| !line.starts_with("Character"));
    let lines = lines.take_while(|line| !line.starts_with("Block"));
    lines
        .filter_map(|line| {
            let (major, name) = line.trim().split_once(' ')?;
            Some((name, major.parse().ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_character_devices_have_majors_here() {
        let devices = "Character devices:\n  1 mem\n195 nvidia-frontend\n510 nvidia-uvm\n\nBlock devices:\n  7 loop\n";
        let majors = majors(devices);
        assert_eq!(
            (majors.get("nvidia-uvm"), majors.get("nvidia-frontend")),
            (Some(&510), Some(&195))
        );
        assert_eq!(majors.get("loop"), None);
    }

    #[test]
    fn without_a_driver_nothing_is_made() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("dev")).unwrap();
        create(root.path(), root.path());
        assert_eq!(fs::read_dir(root.path().join("dev")).unwrap().count(), 0);
    }
}
