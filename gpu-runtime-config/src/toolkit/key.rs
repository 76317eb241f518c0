//! Every key of the toolkit's configuration (`api/config/v1` of the vendor's toolkit, v1.20).

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Flag,
    Text,
    Choice(&'static [&'static str]),
    List,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) section: &'static str,
    pub(super) last: &'static str,
    pub(super) kind: Kind,
    /// As TOML writes it.
    default: Shown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// The default, which the default file holds.
    Set(&'static str),
    /// What the default file shows as a comment: an example, or the default of a key that is best left alone.
    Comment(&'static str),
    /// Not in the default file.
    Hidden,
}

impl Key {
    /// The dotted key.
    pub(super) fn name(&self) -> String {
        self.path().collect::<Vec<_>>().join(".")
    }

    pub(super) fn path(&self) -> impl Iterator<Item = &'static str> {
        self.section
            .split('.')
            .filter(|part| !part.is_empty())
            .chain([self.last])
    }

    /// Its line in the default file, if it has one.
    pub(super) fn line(&self) -> Option<String> {
        match self.default {
            Shown::Set(value) => Some(format!("{} = {value}", self.last)),
            Shown::Comment(value) => Some(format!("#{} = {value}", self.last)),
            Shown::Hidden => None,
        }
    }
}

/// Whether keys, or sections with keys, are beneath this name.
pub(super) fn is_section(name: &str) -> bool {
    let of = |key: &Key| {
        key.section
            .strip_prefix(name)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    !name.is_empty() && KEYS.iter().any(of)
}

const fn key(section: &'static str, last: &'static str, kind: Kind, default: Shown) -> Key {
    Key {
        section,
        last,
        kind,
        default,
    }
}

const CLI: &str = "nvidia-container-cli";
const RUNTIME: &str = "nvidia-container-runtime";
const CDI: &str = "nvidia-container-runtime.modes.cdi";
const CSV: &str = "nvidia-container-runtime.modes.csv";
const JIT: &str = "nvidia-container-runtime.modes.jit-cdi";
const LEGACY: &str = "nvidia-container-runtime.modes.legacy";
const HOOK: &str = "nvidia-container-runtime-hook";

/// All keys by section, in the order of the default file.
pub(super) const KEYS: [Key; 37] = [
    key(
        "",
        "accept-nvidia-visible-devices-as-volume-mounts",
        Kind::Flag,
        Shown::Comment("false"),
    ),
    key(
        "",
        "accept-nvidia-visible-devices-envvar-when-unprivileged",
        Kind::Flag,
        Shown::Comment("true"),
    ),
    key("", "disable-require", Kind::Flag, Shown::Set("false")),
    key(
        "",
        "supported-driver-capabilities",
        Kind::Text,
        Shown::Set("\"compat32,compute,display,graphics,ngx,utility,video\""),
    ),
    key(
        "",
        "swarm-resource",
        Kind::Text,
        Shown::Comment("\"DOCKER_RESOURCE_GPU\""),
    ),
    key(
        CLI,
        "debug",
        Kind::Text,
        Shown::Comment("\"/var/log/nvidia-container-toolkit.log\""),
    ),
    key(CLI, "environment", Kind::List, Shown::Set("[]")),
    key(CLI, "ldcache", Kind::Text, Shown::Comment("\"/etc/ld.so.cache\"")),
    key(CLI, "ldconfig", Kind::Text, Shown::Set("\"@/sbin/ldconfig\"")),
    key(CLI, "load-kmods", Kind::Flag, Shown::Set("true")),
    key(CLI, "no-cgroups", Kind::Flag, Shown::Comment("false")),
    key(CLI, "no-pivot", Kind::Flag, Shown::Hidden),
    key(
        CLI,
        "path",
        Kind::Text,
        Shown::Comment("\"/usr/bin/nvidia-container-cli\""),
    ),
    key(CLI, "root", Kind::Text, Shown::Comment("\"/run/nvidia/driver\"")),
    key(CLI, "user", Kind::Text, Shown::Comment("\"root:video\"")),
    key(
        RUNTIME,
        "debug",
        Kind::Text,
        Shown::Comment("\"/var/log/nvidia-container-runtime.log\""),
    ),
    key(RUNTIME, "log-level", Kind::Text, Shown::Set("\"info\"")),
    key(RUNTIME, "mode", Kind::Text, Shown::Set("\"auto\"")),
    key(RUNTIME, "runtimes", Kind::List, Shown::Set("[\"runc\", \"crun\"]")),
    key(CDI, "annotation-prefixes", Kind::List, Shown::Set("[\"cdi.k8s.io/\"]")),
    key(CDI, "default-kind", Kind::Text, Shown::Set("\"nvidia.com/gpu\"")),
    key(
        CDI,
        "spec-dirs",
        Kind::List,
        Shown::Set("[\"/etc/cdi\", \"/var/run/cdi\"]"),
    ),
    key(CSV, "compat-container-root", Kind::Text, Shown::Hidden),
    key(
        CSV,
        "mount-spec-path",
        Kind::Text,
        Shown::Set("\"/etc/nvidia-container-runtime/host-files-for-container.d\""),
    ),
    key(JIT, "nvcdi-disable-hooks", Kind::List, Shown::Hidden),
    key(JIT, "nvcdi-feature-flags", Kind::List, Shown::Hidden),
    key(
        LEGACY,
        "cuda-compat-mode",
        Kind::Choice(&["ldconfig", "mount", "hook", "disabled"]),
        Shown::Set("\"ldconfig\""),
    ),
    key(
        HOOK,
        "path",
        Kind::Text,
        Shown::Set("\"nvidia-container-runtime-hook\""),
    ),
    key(HOOK, "skip-mode-detection", Kind::Flag, Shown::Set("false")),
    key("nvidia-ctk", "path", Kind::Text, Shown::Set("\"nvidia-ctk\"")),
    key(
        "features",
        "allow-cuda-compat-libs-from-container",
        Kind::Flag,
        Shown::Hidden,
    ),
    key("features", "allow-ldconfig-from-container", Kind::Flag, Shown::Hidden),
    key("features", "allow-unknown-oci-spec-fields", Kind::Flag, Shown::Hidden),
    key("features", "disable-cuda-compat-lib-hook", Kind::Flag, Shown::Hidden),
    key("features", "disable-imex-channel-creation", Kind::Flag, Shown::Hidden),
    key("features", "ignore-imex-channel-requests", Kind::Flag, Shown::Hidden),
    key(
        "features",
        "no-additional-gids-for-device-nodes",
        Kind::Flag,
        Shown::Hidden,
    ),
];
