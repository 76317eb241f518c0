use std::{collections::BTreeMap, path::Path};

use super::{DeviceFile, found::Search};

/// The instances that exist, each with the number of its node.
const EXISTING: &str = "/proc/driver/nvidia/capabilities";

/// The numbers that the driver keeps for every instance that could be, existing or not.
const POSSIBLE: &str = "/proc/driver/nvidia-caps/mig-minors";

/// The list for 32 GPUs has 120 kB.
const LIMIT: u64 = 1 << 20;

/// The capabilities of MIG instances, `gpu0/gi1/access` and `gpu0/gi1/ci0/access`, with the minor numbers of their nodes.
///
/// The folder of those that exist is asked first. Where it is hidden, as in containers of the older runtime hook, the
/// driver's table says the same of the GPUs that have a node.
pub(super) fn find(kernel: &mut Search, nodes: &[DeviceFile]) -> BTreeMap<String, u32> {
    let mut found = BTreeMap::new();
    for gpu in kernel.list(Path::new(EXISTING)).iter() {
        if numbered(gpu, "gpu") {
            instances(kernel, gpu, &mut found);
        }
    }
    if found.is_empty() {
        found = possible(kernel, nodes);
    }
    found
}

fn instances(kernel: &mut Search, gpu: &str, found: &mut BTreeMap<String, u32>) {
    let mig = Path::new(EXISTING).join(gpu).join("mig");
    for gi in kernel.list(&mig).iter().filter(|name| numbered(name, "gi")) {
        add(kernel, &mig.join(gi), format!("{gpu}/{gi}/access"), found);
        for ci in kernel.list(&mig.join(gi)).iter().filter(|name| numbered(name, "ci")) {
            add(kernel, &mig.join(gi).join(ci), format!("{gpu}/{gi}/{ci}/access"), found);
        }
    }
}

fn add(kernel: &mut Search, dir: &Path, name: String, found: &mut BTreeMap<String, u32>) {
    let path = dir.join("access");
    match read(kernel, &path).as_deref().map(minor) {
        Some(Some(minor)) => _ = found.insert(name, minor),
        Some(None) => kernel.problem(&path, &"it tells no `DeviceFileMinor`"),
        None => {}
    }
}

/// `DeviceFileMinor: 12` among other lines.
fn minor(text: &str) -> Option<u32> {
    let line = text.lines().find_map(|line| line.strip_prefix("DeviceFileMinor:"))?;
    line.trim().parse().ok()
}

fn possible(kernel: &mut Search, nodes: &[DeviceFile]) -> BTreeMap<String, u32> {
    let here = |gpu: &str| {
        let node = gpu.strip_prefix("gpu").map(|minor| format!("/dev/nvidia{minor}"));
        node.is_some_and(|path| nodes.iter().any(|node| node.path == path))
    };
    let text = read(kernel, Path::new(POSSIBLE)).unwrap_or_default();
    let entry = |line: &str| {
        let (name, minor) = line.split_once(' ')?;
        let (gpu, _) = name.split_once('/')?;
        let minor = minor.trim().parse().ok()?;
        here(gpu).then(|| (name.to_owned(), minor))
    };
    text.lines().filter_map(entry).collect()
}

fn read(kernel: &mut Search, path: &Path) -> Option<String> {
    match kernel.root.read(path, LIMIT) {
        Ok(content) => Some(String::from_utf8_lossy(&content).into_owned()),
        Err(error) => {
            kernel.failed(path, &error);
            None
        }
    }
}

fn numbered(name: &str, what: &str) -> bool {
    name.strip_prefix(what)
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}
