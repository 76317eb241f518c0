use std::{
    collections::BTreeMap,
    fmt::Display,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail};
use gpu_sharing::mig::parted::{Hook, Hooks};

use super::input::read;
use crate::{mig_apply::Before, program::remark};

/// The commands of a hooks file, and what they are told.
pub(super) struct RunHooks {
    hooks: Hooks,
    variables: BTreeMap<&'static str, String>,
    debug: bool,
}

impl RunHooks {
    pub(super) fn read(path: Option<&Path>, debug: bool) -> anyhow::Result<Self> {
        let hooks = match path {
            None => Hooks::default(),
            Some(path) => {
                Hooks::parse(&read(path)?).with_context(|| format!("cannot use the hooks file `{}`", path.display()))?
            }
        };
        Ok(Self {
            hooks,
            variables: BTreeMap::new(),
            debug,
        })
    }

    /// Adds a variable that every command gets.
    pub(super) fn set(&mut self, name: &'static str, value: impl Display) {
        self.variables.insert(name, value.to_string());
    }

    /// Runs `apply-start`, then `work`, then `apply-exit`, whose failure counts only if nothing failed before.
    pub(super) fn around<T>(&mut self, work: impl FnOnce(&mut Self) -> anyhow::Result<T>) -> anyhow::Result<T> {
        let done = self.run(Hook::ApplyStart).and_then(|()| work(self));
        let ended = self.run(Hook::ApplyExit);
        match (done, ended) {
            (Ok(done), ended) => ended.map(|()| done),
            (Err(error), Err(more)) => {
                remark(format_args!("warning: {more:#}"));
                Err(error)
            }
            (Err(error), Ok(())) => Err(error),
        }
    }

    fn run(&self, hook: Hook) -> anyhow::Result<()> {
        for command in self.hooks.commands(hook) {
            if self.debug {
                remark(format_args!("running the {} hook `{}`", hook.name(), command.command));
            }
            let output = || if self.debug { Stdio::inherit() } else { Stdio::null() };
            let mut process = Command::new(&command.command);
            // As documented: nothing of this process's environment, PATH and HOME included.
            process
                .args(&command.args)
                .env_clear()
                .envs(&command.envs)
                .envs(&self.variables);
            if !command.workdir.is_empty() {
                process.current_dir(&command.workdir);
            }
            let what = || format!("the {} hook `{}` failed", hook.name(), command.command);
            // Standard output stays what was asked for.
            process.stdin(Stdio::null()).stdout(if self.debug {
                Stdio::from(std::io::stderr())
            } else {
                Stdio::null()
            });
            let status = process.stderr(output()).status().with_context(what)?;
            if !status.success() {
                bail!("{}: {status}", what());
            }
        }
        Ok(())
    }
}

impl Before for RunHooks {
    fn frees_gpus(&self) -> bool {
        [Hook::PreApplyMode, Hook::PreApplyConfig]
            .iter()
            .any(|hook| !self.hooks.commands(*hook).is_empty())
    }

    fn mode(&mut self) -> anyhow::Result<()> {
        self.run(Hook::PreApplyMode)
    }

    fn instances(&mut self) -> anyhow::Result<()> {
        self.run(Hook::PreApplyConfig)
    }
}
