use std::{collections::BTreeSet, fmt, str::FromStr};

use super::GenerateOptions;
use crate::{Error, Hook, HookStage, Result, names};

/// The hooks that a spec may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum HookName {
    /// Makes the links that libraries are found by.
    CreateSymlinks,
    /// Prefers the CUDA compatibility libraries of the image where they are newer than the driver.
    EnableCudaCompat,
    /// Makes the container's loader know the driver's libraries.
    UpdateLdcache,
    /// Keeps the driver's library from making device nodes in the container.
    DisableDeviceNodeModification,
    /// Restricts EGL and Vulkan to the container's GPUs.
    UpdateApplicationProfile,
    /// Sets the mode of folders; no spec has it any more.
    Chmod,
}

impl HookName {
    /// Every hook.
    pub const ALL: [Self; 6] = [
        Self::CreateSymlinks,
        Self::EnableCudaCompat,
        Self::UpdateLdcache,
        Self::DisableDeviceNodeModification,
        Self::UpdateApplicationProfile,
        Self::Chmod,
    ];

    /// The sub-command of the hook program.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CreateSymlinks => "create-symlinks",
            Self::EnableCudaCompat => "enable-cuda-compat",
            Self::UpdateLdcache => "update-ldcache",
            Self::DisableDeviceNodeModification => "disable-device-node-modification",
            Self::UpdateApplicationProfile => "update-application-profile",
            Self::Chmod => "chmod",
        }
    }

    /// Reads names separated by commas, as in `--disable-hook`; `all` stands for every hook.
    ///
    /// ```
    /// use gpu_cdi::HookName;
    ///
    /// assert_eq!(HookName::parse_list("all")?.len(), 6);
    /// assert!(HookName::parse_list("chmod,update-ldcache")?.contains(&HookName::UpdateLdcache));
    /// # Ok::<(), gpu_cdi::ParseHookNameError>(())
    /// ```
    ///
    /// # Errors
    /// If a name is none of a hook.
    pub fn parse_list(text: &str) -> Result<BTreeSet<Self>, ParseHookNameError> {
        let mut names = BTreeSet::new();
        for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            match name {
                "all" => names.extend(Self::ALL),
                name => _ = names.insert(name.parse()?),
            }
        }
        Ok(names)
    }
}

impl fmt::Display for HookName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for HookName {
    type Err = ParseHookNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|name| name.as_str() == text)
            .ok_or_else(|| ParseHookNameError { text: text.to_owned() })
    }
}

/// A text that names no hook.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is none of the hooks {}", HookName::ALL.map(HookName::as_str).join(", "))]
pub struct ParseHookNameError {
    text: String,
}

/// Makes the hooks of a spec.
#[derive(Debug)]
pub(super) struct Hooks<'a> {
    path: &'a str,
    ldconfig: Option<&'a str>,
    disabled: &'a BTreeSet<HookName>,
    combined: bool,
}

impl<'a> Hooks<'a> {
    pub(super) fn new(options: &'a GenerateOptions) -> Result<Self> {
        let ldconfig = options.ldconfig_path.as_deref();
        // The hook takes none that is not absolute, and a `@` in front for nothing.
        if let Some(path) = ldconfig.filter(|path| !path.strip_prefix('@').unwrap_or(path).starts_with('/')) {
            return Err(Error::RelativeRoot {
                what: "ldconfig",
                path: path.into(),
            });
        }
        Ok(Self {
            path: &options.hook_path,
            ldconfig,
            disabled: &options.disabled_hooks,
            combined: options.combined_hook,
        })
    }

    /// Links, each `target::link`; no hook without any.
    pub(super) fn create_symlinks(&self, links: Vec<String>) -> Option<Hook> {
        if links.is_empty() {
            return None;
        }
        let arguments = links.into_iter().flat_map(|link| ["--link".to_owned(), link]);
        self.hook(HookName::CreateSymlinks, arguments)
    }

    pub(super) fn enable_cuda_compat(&self, driver_version: &str) -> Option<Hook> {
        self.hook(
            HookName::EnableCudaCompat,
            [format!("--host-driver-version={driver_version}")],
        )
    }

    /// The same for a GPU whose compatibility libraries go by the version of CUDA.
    pub(super) fn enable_cuda_compat_for(&self, cuda_version: &str, container_dir: &str) -> Option<Hook> {
        self.hook(
            HookName::EnableCudaCompat,
            [
                format!("--host-cuda-version={cuda_version}"),
                format!("--cuda-compat-container-root={container_dir}"),
            ],
        )
    }

    /// The folders that the loader shall know; no hook without any.
    pub(super) fn update_ldcache(&self, folders: Vec<String>) -> Option<Hook> {
        if folders.is_empty() {
            return None;
        }
        let mut arguments = Vec::new();
        if let Some(path) = self.ldconfig {
            arguments.extend(["--ldconfig-path".to_owned(), path.to_owned()]);
        }
        arguments.extend(folders.into_iter().flat_map(|folder| ["--folder".to_owned(), folder]));
        self.hook(HookName::UpdateLdcache, arguments)
    }

    /// The hooks as they are called: each by itself, or all in one.
    pub(super) fn called(&self, hooks: impl IntoIterator<Item = Option<Hook>>) -> Vec<Hook> {
        let mut hooks: Vec<Hook> = hooks.into_iter().flatten().collect();
        if !self.combined || hooks.len() < 2 {
            return hooks;
        }
        let before = self.prefix().len();
        let is_ldcache = |hook: &Hook| hook.args[before] == HookName::UpdateLdcache.as_str();
        // It needs namespaces of its own, and nothing depends on it.
        hooks.sort_by_key(is_ldcache);
        let mut args = self.prefix();
        args.push(names::SEVERAL_HOOKS.to_owned());
        for (i, hook) in hooks.iter().enumerate() {
            if i > 0 {
                args.push(names::NEXT_HOOK.to_owned());
            }
            args.extend(hook.args[before..].iter().cloned());
        }
        vec![self.with_args(args)]
    }

    /// A hook without arguments.
    pub(super) fn plain(&self, name: HookName) -> Option<Hook> {
        self.hook(name, [])
    }

    fn hook(&self, name: HookName, arguments: impl IntoIterator<Item = String>) -> Option<Hook> {
        if self.disabled.contains(&name) {
            return None;
        }
        let mut args = self.prefix();
        args.push(name.to_string());
        args.extend(arguments);
        Some(self.with_args(args))
    }

    /// What stands before a hook's name.
    fn prefix(&self) -> Vec<String> {
        let program = self.path.rsplit('/').next().unwrap_or_default();
        let mut args = vec![program.to_owned()];
        if program == names::HOOK_PARENT {
            args.push("hook".to_owned());
        }
        args
    }

    fn with_args(&self, args: Vec<String>) -> Hook {
        Hook {
            hook_name: HookStage::CreateContainer,
            path: self.path.to_owned(),
            args,
            // Never empty: some runtimes would pass on an environment that the image controls (CVE-2025-23266).
            env: vec![format!("{}=false", names::DEBUG)],
            timeout: None,
        }
    }
}
