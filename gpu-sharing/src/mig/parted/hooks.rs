use std::collections::BTreeMap;

use super::parse::{At, Error};
use crate::config::{
    Reading,
    document::{Node, Value},
};

/// The hooks file of the vendor's tool: commands to run around a change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hooks {
    hooks: BTreeMap<Hook, Vec<Command>>,
}

/// When a hook runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hook {
    /// Before anything else.
    ApplyStart,
    /// Before MIG mode changes on any GPU.
    PreApplyMode,
    /// Before instances change on any GPU.
    PreApplyConfig,
    /// After all, also where something failed.
    ApplyExit,
}

/// One command of a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The program, by path: no `PATH` is passed on.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its environment, but for what the tool sets.
    pub envs: BTreeMap<String, String>,
    /// Where it runs; empty for where the tool runs.
    pub workdir: String,
}

impl Hook {
    const ALL: [Self; 4] = [
        Self::ApplyStart,
        Self::PreApplyMode,
        Self::PreApplyConfig,
        Self::ApplyExit,
    ];

    /// The name in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::ApplyStart => "apply-start",
            Self::PreApplyMode => "pre-apply-mode",
            Self::PreApplyConfig => "pre-apply-config",
            Self::ApplyExit => "apply-exit",
        }
    }
}

impl Hooks {
    /// The commands of a hook, in order.
    pub fn commands(&self, hook: Hook) -> &[Command] {
        self.hooks.get(&hook).map_or(&[], Vec::as_slice)
    }

    /// Whether there is none at all.
    pub fn is_empty(&self) -> bool {
        self.hooks.values().all(Vec::is_empty)
    }

    /// Reads a hooks file.
    ///
    /// # Errors
    /// If it is not YAML, or a hook or a key is not known; the vendor's tool passes over such hooks in silence.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let root = Node::parse(text, Reading::Strict).map_err(|error| Error::Syntax {
            message: error.to_string(),
        })?;
        let mut hooks = BTreeMap::new();
        let mut versioned = false;
        for (key, line, at) in At::top(&root).map_or_empty()? {
            match key {
                "version" if at.node.scalar().as_deref() == Some("v1") => versioned = true,
                "version" => {
                    return Err(Error::Version {
                        version: at.node.scalar().unwrap_or_default(),
                    });
                }
                "hooks" => {
                    for (name, line, at) in at.map_or_empty()? {
                        let hook = Hook::ALL.into_iter().find(|hook| hook.name() == name);
                        let hook = hook.ok_or_else(|| Error::UnexpectedField {
                            key: at.key.clone(),
                            line,
                        })?;
                        let commands = if at.node.is_null() {
                            Vec::new()
                        } else {
                            at.list("a list of commands")?
                        };
                        hooks.insert(hook, commands.iter().map(command).collect::<Result<_, _>>()?);
                    }
                }
                _ => {
                    return Err(Error::UnexpectedField {
                        key: at.key.clone(),
                        line,
                    });
                }
            }
        }
        if !versioned {
            return Err(Error::Version { version: String::new() });
        }
        Ok(Self { hooks })
    }
}

fn command(at: &At<'_>) -> Result<Command, Error> {
    let text = |at: &At<'_>| match at.node.value {
        Value::List(_) | Value::Map(_) | Value::Null => Err(at.refuse("expected a text")),
        _ => Ok(at.node.scalar().unwrap_or_default()),
    };
    let mut command = Command {
        command: String::new(),
        args: Vec::new(),
        envs: BTreeMap::new(),
        workdir: String::new(),
    };
    for (key, line, at) in at.map("a map with `command`")? {
        match key {
            "command" => command.command = text(&at)?,
            "args" if at.node.is_null() => {}
            "args" => command.args = at.list("a list of texts")?.iter().map(text).collect::<Result<_, _>>()?,
            "envs" => {
                for (name, _, at) in at.map_or_empty()? {
                    command
                        .envs
                        .insert(name.to_owned(), at.node.scalar().unwrap_or_default());
                }
            }
            "workdir" => command.workdir = at.node.scalar().unwrap_or_default(),
            _ => {
                return Err(Error::UnexpectedField {
                    key: at.key.clone(),
                    line,
                });
            }
        }
    }
    if command.command.is_empty() {
        return Err(at.refuse("`command` is missing"));
    }
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_are_read_and_what_is_not_known_is_refused() {
        #[track_caller]
        fn check(text: &str, expected: &str) {
            assert_eq!(Hooks::parse(text).unwrap_err().to_string(), expected);
        }
        let text = "version: v1\nhooks:\n  apply-start:\n  - command: /bin/sh\n    args: ['-c', 'true']\n    envs: {A: b}\n    \
                    workdir: /\n";
        let hooks = Hooks::parse(text).unwrap();
        let [command] = hooks.commands(Hook::ApplyStart) else {
            panic!()
        };
        assert_eq!(
            (command.command.as_str(), command.args.len(), command.envs["A"].as_str()),
            ("/bin/sh", 2, "b")
        );
        assert!(hooks.commands(Hook::ApplyExit).is_empty());
        check("hooks: {}", "unknown version: ");
        check(
            "version: v1\nhooks: {start: []}",
            "`hooks.start` in line 2: unexpected field",
        );
        check(
            "version: v1\nhooks: {apply-exit: [{args: []}]}",
            "`hooks.apply-exit[0]` in line 2: `command` is missing",
        );
    }
}
