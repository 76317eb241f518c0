use std::path::Path;

use super::{UnknownKey, unknown::unknown};
use crate::{
    edit::{Format, parse},
    error::{Error, Result},
    value::Value,
};

/// What of the toolkit's configuration the programs of this workspace act on.
///
/// # Example
/// ```
/// use gpu_runtime_config::toolkit::Config;
///
/// let config = Config::parse("config.toml".as_ref(), "[nvidia-container-runtime]\nruntimes = [\"crun\"]\n")?;
/// assert_eq!((config.runtimes, config.mode.as_str()), (vec!["crun".to_owned()], "auto"));
/// # Ok::<(), gpu_runtime_config::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// `nvidia-container-cli.root`: the root of the driver's files. Default: none, which means `/`.
    pub driver_root: Option<String>,
    /// `accept-nvidia-visible-devices-envvar-when-unprivileged`: whether a container that is not privileged gets the
    /// devices that its environment names. Default: yes.
    pub accept_environment_when_unprivileged: bool,
    /// `accept-nvidia-visible-devices-as-volume-mounts`: whether a container gets the devices that its mounts name.
    /// Default: no.
    pub accept_volume_mounts: bool,
    /// `swarm-resource`: variables that name devices before `NVIDIA_VISIBLE_DEVICES` does. Default: none.
    pub swarm_resources: Vec<String>,
    /// `nvidia-container-runtime.debug`: the log file. Default: none.
    pub log_file: Option<String>,
    /// `nvidia-container-runtime.log-level`. Default: `info`.
    pub log_level: String,
    /// `nvidia-container-runtime.runtimes`: the low-level runtimes, the first that exists counting. Default: `runc`, `crun`.
    pub runtimes: Vec<String>,
    /// `nvidia-container-runtime.mode`. Default: `auto`.
    pub mode: String,
    /// `nvidia-container-runtime.modes.cdi.spec-dirs`. Default: `/etc/cdi` and `/var/run/cdi`.
    pub cdi_spec_dirs: Vec<String>,
    /// `nvidia-container-runtime.modes.cdi.default-kind`: the kind of devices named without one. Default: `nvidia.com/gpu`.
    pub cdi_default_kind: String,
    /// `nvidia-container-runtime.modes.cdi.annotation-prefixes`: annotations that name devices. Default: `cdi.k8s.io/`.
    pub cdi_annotation_prefixes: Vec<String>,
    /// Keys that nothing reads, as they come of a slip of the pen; those of the vendor's that are of no use here are not
    /// among them.
    pub unknown_keys: Vec<UnknownKey>,
}

impl Default for Config {
    fn default() -> Config {
        let strings = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        Config {
            driver_root: None,
            accept_environment_when_unprivileged: true,
            accept_volume_mounts: false,
            swarm_resources: vec![],
            log_file: None,
            log_level: "info".to_owned(),
            runtimes: strings(&["runc", "crun"]),
            mode: "auto".to_owned(),
            cdi_spec_dirs: strings(&["/etc/cdi", "/var/run/cdi"]),
            cdi_default_kind: "nvidia.com/gpu".to_owned(),
            cdi_annotation_prefixes: strings(&["cdi.k8s.io/"]),
            unknown_keys: vec![],
        }
    }
}

impl Config {
    /// Reads a configuration. Keys that are not known are passed over, as the vendor's programs do, and told in
    /// [`unknown_keys`](Self::unknown_keys); [`check`](super::check) refuses them.
    ///
    /// # Errors
    /// [`Error::Syntax`], and [`Error::InvalidValue`] for a value that has another type than it should.
    pub fn parse(path: &Path, text: &str) -> Result<Config> {
        let reader = Reader {
            path,
            value: parse(Format::Toml, path, text)?,
        };
        let unknown_keys = unknown(path, text);
        let default = Config::default();
        let filled = |key: &str| Ok(reader.text(key)?.filter(|text| !text.is_empty()));
        let text = |key: &str, default: String| Ok(reader.text(key)?.unwrap_or(default));
        let list = |key: &str, default: Vec<String>| Ok(reader.list(key)?.unwrap_or(default));
        let swarm = filled("swarm-resource")?.unwrap_or_default();
        Ok(Config {
            driver_root: filled("nvidia-container-cli.root")?,
            accept_environment_when_unprivileged: reader
                .flag("accept-nvidia-visible-devices-envvar-when-unprivileged")?
                .unwrap_or(default.accept_environment_when_unprivileged),
            accept_volume_mounts: reader
                .flag("accept-nvidia-visible-devices-as-volume-mounts")?
                .unwrap_or(default.accept_volume_mounts),
            swarm_resources: swarm
                .split(',')
                .map(|name| name.trim().to_owned())
                .filter(|name| !name.is_empty())
                .collect(),
            log_file: filled("nvidia-container-runtime.debug")?.filter(|path| path != "/dev/null"),
            log_level: text("nvidia-container-runtime.log-level", default.log_level)?,
            runtimes: list("nvidia-container-runtime.runtimes", default.runtimes)?,
            mode: text("nvidia-container-runtime.mode", default.mode)?,
            cdi_spec_dirs: list("nvidia-container-runtime.modes.cdi.spec-dirs", default.cdi_spec_dirs)?,
            cdi_default_kind: text(
                "nvidia-container-runtime.modes.cdi.default-kind",
                default.cdi_default_kind,
            )?,
            cdi_annotation_prefixes: list(
                "nvidia-container-runtime.modes.cdi.annotation-prefixes",
                default.cdi_annotation_prefixes,
            )?,
            unknown_keys,
        })
    }
}

struct Reader<'r> {
    path: &'r Path,
    value: Value,
}

impl Reader<'_> {
    fn get(&self, key: &str) -> Option<&Value> {
        self.value.get(&key.split('.').collect::<Vec<_>>())
    }

    fn text(&self, key: &str) -> Result<Option<String>> {
        self.get(key)
            .map(|value| {
                value
                    .as_str()
                    .map(str::to_owned)
                    .ok_or_else(|| self.wrong(key, value, "a string"))
            })
            .transpose()
    }

    fn flag(&self, key: &str) -> Result<Option<bool>> {
        self.get(key)
            .map(|value| match value {
                Value::Bool(flag) => Ok(*flag),
                value => Err(self.wrong(key, value, "true or false")),
            })
            .transpose()
    }

    fn list(&self, key: &str) -> Result<Option<Vec<String>>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let items = value
            .as_array()
            .ok_or_else(|| self.wrong(key, value, "a list of strings"))?;
        items
            .iter()
            .map(|item| {
                item.as_str()
                    .map(str::to_owned)
                    .ok_or_else(|| self.wrong(key, item, "a string"))
            })
            .collect::<Result<_>>()
            .map(Some)
    }

    fn wrong(&self, key: &str, value: &Value, expected: &'static str) -> Error {
        Error::InvalidValue {
            path: Some(self.path.to_owned()),
            key: key.to_owned(),
            value: value.as_str().unwrap_or(value.kind()).to_owned(),
            expected: expected.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_file_gives_the_defaults() {
        let path = Path::new("c");
        assert_eq!(Config::parse(path, "").unwrap(), Config::default());
        assert_eq!(
            Config::parse(path, &super::super::defaults()).unwrap(),
            Config::default()
        );
    }

    #[test]
    fn values_are_read_and_unknown_keys_told() {
        let text = r#"
            accept-nvidia-visible-devices-envvar-when-unprivileged = false
            swarm-resource = "A, B"
            future = 1
            [nvidia-container-cli]
            root = "/run/nvidia/driver"
            [nvidia-container-runtime]
            debug = "/dev/null"
            [nvidia-container-runtime.modes.cdi]
            default-kind = "management.nvidia.com/gpu"
            annotation-prefixes = []
        "#;
        let config = Config::parse(Path::new("c"), text).unwrap();
        let expected = Config {
            accept_environment_when_unprivileged: false,
            swarm_resources: vec!["A".to_owned(), "B".to_owned()],
            driver_root: Some("/run/nvidia/driver".to_owned()),
            cdi_default_kind: "management.nvidia.com/gpu".to_owned(),
            cdi_annotation_prefixes: vec![],
            unknown_keys: config.unknown_keys.clone(),
            ..Config::default()
        };
        assert_eq!(config, expected);
        let unknown: Vec<_> = config
            .unknown_keys
            .iter()
            .map(|key| (key.key.as_str(), key.line))
            .collect();
        assert_eq!(unknown, [("future", 4)]);
    }

    #[test]
    fn a_value_of_another_type_is_named() {
        #[track_caller]
        fn check(text: &str, expected: &str) {
            assert_eq!(Config::parse(Path::new("c"), text).unwrap_err().to_string(), expected);
        }
        check(
            "swarm-resource = 1",
            "`a number` does not fit `swarm-resource` of `c`: a string",
        );
        check(
            "[nvidia-container-runtime]\nruntimes = \"runc\"",
            "`runc` does not fit `nvidia-container-runtime.runtimes` of `c`: a list of strings",
        );
    }
}
