//! What is asked for, whatever the engine.

use std::collections::BTreeSet;

use crate::error::{Error, Result};

/// A runtime that the engine should offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runtime {
    /// The name that a `RuntimeClass` or `docker run --runtime` uses.
    pub name: String,
    /// The executable on the host. Absolute, except for Docker, which searches its `PATH`.
    pub path: String,
}

impl Runtime {
    /// A runtime.
    pub fn new(name: impl Into<String>, path: impl Into<String>) -> Runtime {
        Runtime {
            name: name.into(),
            path: path.into(),
        }
    }
}

/// What the engine should be set to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// The runtimes to offer, each with the options of the engine's own default runtime.
    pub runtimes: Vec<Runtime>,
    /// The runtime for containers that name none. `None` leaves the default as it is.
    pub default_runtime: Option<String>,
    /// Whether the engine should inject CDI devices. `None` leaves that as it is.
    pub cdi: Option<Cdi>,
    /// Container annotations that containerd passes to the runtimes, such as `cdi.k8s.io/*`. Other engines have no such list.
    pub container_annotations: Vec<String>,
}

/// The engine's use of CDI.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cdi {
    /// Directories that must be searched for specs. None: those that the engine searches already, by default `/etc/cdi`
    /// and `/var/run/cdi`. Directories that the engine's file names are never taken away.
    pub spec_dirs: Vec<String>,
}

impl Settings {
    /// The vendor's three runtimes `nvidia`, `nvidia-cdi` and `nvidia-legacy`, with their executables in `directory`.
    ///
    /// `name` replaces `nvidia`. If it is the name of one of the other two, that one is meant and the first stays `nvidia`.
    /// With `set_as_default` containers that name no runtime get `name`.
    ///
    /// # Example
    /// ```
    /// use gpu_runtime_config::Settings;
    /// let settings = Settings::vendor("/usr/local/nvidia/toolkit", "nvidia", true);
    /// assert_eq!(settings.runtimes[1].path, "/usr/local/nvidia/toolkit/nvidia-container-runtime.cdi");
    /// assert_eq!(settings.default_runtime.as_deref(), Some("nvidia"));
    /// ```
    pub fn vendor(directory: &str, name: &str, set_as_default: bool) -> Settings {
        let directory = directory.trim_end_matches('/');
        let base = if matches!(name, "nvidia-cdi" | "nvidia-legacy") {
            "nvidia"
        } else {
            name
        };
        let runtime = |name: &str, file: &str| Runtime::new(name, format!("{directory}/{file}"));
        Settings {
            runtimes: vec![
                runtime(base, "nvidia-container-runtime"),
                runtime("nvidia-cdi", "nvidia-container-runtime.cdi"),
                runtime("nvidia-legacy", "nvidia-container-runtime.legacy"),
            ],
            default_runtime: set_as_default.then(|| name.to_owned()),
            ..Settings::default()
        }
    }

    /// Refuses what no engine could use.
    pub(crate) fn check(&self, absolute_paths: bool) -> Result<()> {
        let mut names = BTreeSet::new();
        for Runtime { name, path } in &self.runtimes {
            let refuse = |reason| {
                Err(Error::InvalidRuntime {
                    name: name.clone(),
                    reason,
                })
            };
            match () {
                () if name.is_empty() || name.contains(char::is_whitespace) || name.contains(char::is_control) => {
                    return refuse("a name is one word");
                }
                () if LOW_LEVEL.contains(&name.as_str()) => return refuse("it would replace the low-level runtime"),
                () if !names.insert(name) => return refuse("the name is there twice"),
                () if path.is_empty() || path.contains(char::is_control) => return refuse("its path is not a path"),
                () if absolute_paths && !path.starts_with('/') => return refuse("its path is not absolute"),
                () => {}
            }
        }
        match &self.default_runtime {
            Some(name) if !names.contains(name) => Err(Error::InvalidRuntime {
                name: name.clone(),
                reason: "it cannot be the default without being one of the runtimes",
            }),
            _ => Ok(()),
        }
    }

    pub(crate) fn names(&self, name: &str) -> bool {
        self.runtimes.iter().any(|runtime| runtime.name == name)
    }
}

/// The runtimes that containers run by without a wrapper, in the order in which options are copied from them.
pub(crate) const LOW_LEVEL: [&str; 2] = ["runc", "crun"];

/// The directories that every engine searches for CDI specs by default.
pub(crate) const CDI_DIRECTORIES: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];

/// The runtime whose options the new ones copy: the default if it is not a wrapper itself, else `runc`, else `crun`.
pub(crate) fn template_names(default: Option<&str>, settings: &Settings) -> Vec<String> {
    let default = default.filter(|name| !name.starts_with("nvidia") && !settings.names(name));
    default.into_iter().chain(LOW_LEVEL).map(str::to_owned).collect()
}

/// The programs of the runtimes that options are copied from, and those that every node may have.
pub(crate) fn low_level<'p>(
    default: Option<&str>,
    settings: &Settings,
    program: impl Fn(&String) -> Option<&'p str>,
) -> Vec<String> {
    let names = template_names(default, settings);
    let mut programs: Vec<String> = Vec::new();
    for path in names.iter().filter_map(program).chain(LOW_LEVEL) {
        if !path.is_empty() && !programs.iter().any(|known| known == path) {
            programs.push(path.to_owned());
        }
    }
    programs
}

/// The CDI directories to name in the file, `None` if those in force are enough.
pub(crate) fn missing_directories(cdi: &Cdi, in_force: Option<Vec<String>>) -> Option<Vec<String>> {
    let mut directories = in_force.unwrap_or_else(|| CDI_DIRECTORIES.map(str::to_owned).to_vec());
    let before = directories.len();
    for directory in &cdi.spec_dirs {
        if !directories.contains(directory) {
            directories.push(directory.clone());
        }
    }
    (directories.len() > before).then_some(directories)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(settings: &Settings, expected: &str) {
        assert_eq!(settings.check(true).unwrap_err().to_string(), expected);
    }

    #[test]
    fn a_name_that_is_one_of_the_others_moves_only_the_default() {
        let settings = Settings::vendor("/t/", "nvidia-cdi", true);
        assert_eq!(
            settings.runtimes[0],
            Runtime::new("nvidia", "/t/nvidia-container-runtime")
        );
        assert_eq!(settings.default_runtime.as_deref(), Some("nvidia-cdi"));
        assert_eq!(Settings::vendor("/t", "gpu", false).runtimes[0].name, "gpu");
    }

    #[test]
    fn impossible_runtimes_are_refused() {
        let one = |name: &str, path: &str| Settings {
            runtimes: vec![Runtime::new(name, path)],
            ..Settings::default()
        };
        check(
            &one("runc", "/x"),
            "cannot add runtime `runc`: it would replace the low-level runtime",
        );
        check(&one("a b", "/x"), "cannot add runtime `a b`: a name is one word");
        check(&one("a", "x"), "cannot add runtime `a`: its path is not absolute");
        let default = Settings {
            default_runtime: Some("b".to_owned()),
            ..one("a", "/x")
        };
        check(
            &default,
            "cannot add runtime `b`: it cannot be the default without being one of the runtimes",
        );
        assert!(one("a", "x").check(false).is_ok());
    }
}
