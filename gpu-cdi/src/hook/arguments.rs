use std::{ffi::OsString, path::PathBuf};

use super::{Error, Result, create_symlinks::Link, cuda_compat::Compat};
use crate::names::{self, NEXT_HOOK as THEN, SEVERAL_HOOKS as SEVERAL};

pub(super) const HELP: &str = "\
Change a container while it is being made. Called by container runtimes, as CDI specs say.

Usage: gpu-cdi-hook [--debug|-d] [--quiet] HOOK [FLAGS]

Hooks (each takes [--container-spec FILE]: the OCI state, default and `-`: standard input):
  create-symlinks [--link TARGET::LINK]...
  enable-cuda-compat [--host-driver-version V] [--host-cuda-version V] [--cuda-compat-container-root DIR]
  update-ldcache [--ldconfig-path PATH] [--folder DIR]...
  disable-device-node-modification
  update-application-profile
  chmod --mode OCTAL [--path PATH]...
  several HOOK [FLAGS] [--then HOOK [FLAGS]]...   more than one in one process; update-ldcache may only be the last
";

const SPEC: &str = "container-spec";

/// The hooks and their flags.
const HOOKS: [(&str, &[&str]); 8] = [
    ("noop", &[SPEC]),
    ("create-symlinks", &[SPEC, "link"]),
    (
        "enable-cuda-compat",
        &[
            SPEC,
            "host-driver-version",
            "host-cuda-version",
            "cuda-compat-container-root",
        ],
    ),
    ("update-ldcache", &[SPEC, "ldconfig-path", "folder"]),
    ("disable-device-node-modification", &[SPEC]),
    ("update-application-profile", &[SPEC]),
    ("chmod", &[SPEC, "mode", "path"]),
    (SEVERAL, &[]),
];

/// The flags of a hook, `None` of one that is not known.
fn flags_of(hook: &str) -> Option<&'static [&'static str]> {
    HOOKS.iter().find(|(name, _)| *name == hook).map(|(_, flags)| *flags)
}

/// The arguments of one call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Arguments {
    pub(super) command: Command,
}

/// A hook with its flags; `spec` is the file with the container's state, standard input if `None`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command {
    Help,
    Version,
    Noop,
    /// Perhaps one of a newer program.
    Unknown {
        hook: String,
    },
    CreateSymlinks {
        links: Vec<Link>,
        spec: Option<PathBuf>,
    },
    EnableCudaCompat {
        compat: Compat,
        spec: Option<PathBuf>,
    },
    UpdateLdcache {
        ldconfig: PathBuf,
        folders: Vec<String>,
        spec: Option<PathBuf>,
    },
    DisableDeviceNodeModification {
        spec: Option<PathBuf>,
    },
    UpdateApplicationProfile {
        spec: Option<PathBuf>,
    },
    Chmod {
        mode: u32,
        paths: Vec<PathBuf>,
        spec: Option<PathBuf>,
    },
    Several {
        commands: Vec<Command>,
    },
}

impl Arguments {
    /// Reads the arguments after the program's name; those of `nvidia-ctk` have the word `hook` before the hook.
    pub(super) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self> {
        let mut words = Vec::new();
        for arg in args.into_iter().skip(1) {
            let word = arg.into_string();
            words.push(word.map_err(|arg| Error::usage(format!("`{}` is not UTF-8", arg.display())))?);
        }
        let mut words = words.into_iter();
        let mut hook = None;
        for word in words.by_ref() {
            match word.as_str() {
                // The program has looked at these two already.
                "--debug" | "-d" | "--quiet" => {}
                "--help" | "-h" | "help" => return Ok(Self { command: Command::Help }),
                "--version" | "-v" => {
                    return Ok(Self {
                        command: Command::Version,
                    });
                }
                flag if flag.starts_with('-') => return Err(Error::usage(format!("unknown flag `{flag}`"))),
                "hook" => {}
                name => {
                    hook = Some(name.to_owned());
                    break;
                }
            }
        }
        let hook = hook.ok_or_else(|| Error::usage("no hook named; see --help"))?;
        let command = match flags_of(&hook) {
            // Whatever flags it has.
            None => Command::Unknown { hook },
            Some(_) if hook == SEVERAL => several(&words.collect::<Vec<_>>())?,
            Some(known) => command(&hook, Flags::read(&hook, known, words)?)?,
        };
        Ok(Self { command })
    }
}

fn several(words: &[String]) -> Result<Command> {
    let mut commands = Vec::new();
    for words in words.split(|word| word == THEN) {
        let Some((hook, words)) = words.split_first() else {
            return Err(Error::usage(format!("no hook named in `{SEVERAL}`; see --help")));
        };
        if let Some(Command::UpdateLdcache { .. }) = commands.last() {
            return Err(Error::usage(format!("`update-ldcache` is not the last of `{SEVERAL}`")));
        }
        commands.push(match flags_of(hook) {
            Some(_) if hook == SEVERAL => return Err(Error::usage(format!("`{SEVERAL}` within `{SEVERAL}`"))),
            Some(known) => command(hook, Flags::read(hook, known, words.iter().cloned())?)?,
            None => Command::Unknown { hook: hook.clone() },
        });
    }
    Ok(Command::Several { commands })
}

fn command(hook: &str, mut flags: Flags) -> Result<Command> {
    if flags.help {
        return Ok(Command::Help);
    }
    let spec = flags.one(SPEC)?.filter(|path| path != "-");
    let spec = spec.as_deref().map(from_here).transpose()?;
    Ok(match hook {
        "noop" => Command::Noop,
        "create-symlinks" => Command::CreateSymlinks {
            links: flags
                .all("link")
                .iter()
                .map(|link| link.parse())
                .collect::<Result<_>>()?,
            spec,
        },
        "enable-cuda-compat" => Command::EnableCudaCompat {
            compat: Compat {
                host_driver_version: flags.one("host-driver-version")?,
                host_cuda_version: flags.one("host-cuda-version")?,
                container_root: flags
                    .one("cuda-compat-container-root")?
                    .unwrap_or_else(|| names::CUDA_COMPAT_DIR.to_owned())
                    .into(),
            },
            spec,
        },
        "update-ldcache" => Command::UpdateLdcache {
            ldconfig: flags
                .one("ldconfig-path")?
                .unwrap_or_else(|| names::LDCONFIG_PATH.to_owned())
                .into(),
            folders: flags.all("folder"),
            spec,
        },
        "disable-device-node-modification" => Command::DisableDeviceNodeModification { spec },
        "update-application-profile" => Command::UpdateApplicationProfile { spec },
        "chmod" => Command::Chmod {
            mode: mode(flags.one("mode")?)?,
            paths: flags.all("path").into_iter().map(PathBuf::from).collect(),
            spec,
        },
        _ => Command::Unknown { hook: hook.to_owned() },
    })
}

/// A path from the folder that the program was started in, which it leaves.
fn from_here(path: &str) -> Result<PathBuf> {
    std::path::absolute(path).map_err(Error::io(format!("find the folder that `{path}` starts from")))
}

fn mode(text: Option<String>) -> Result<u32> {
    let text = text.ok_or_else(|| Error::usage("the hook `chmod` needs `--mode`"))?;
    match u32::from_str_radix(&text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err(Error::usage(format!("`{text}` is not an octal file mode"))),
    }
}

/// The flags of a hook that no one has asked for yet, in their order.
struct Flags {
    given: Vec<(String, String)>,
    help: bool,
}

impl Flags {
    /// Reads `--name value` and `--name=value` of those that the hook knows.
    fn read(hook: &str, known: &[&str], mut words: impl Iterator<Item = String>) -> Result<Self> {
        let mut flags = Self {
            given: Vec::new(),
            help: false,
        };
        while let Some(word) = words.next() {
            if word == "--help" || word == "-h" {
                flags.help = true;
                continue;
            }
            let Some(flag) = word.strip_prefix("--") else {
                return Err(Error::usage(format!("unknown argument `{word}` of the hook `{hook}`")));
            };
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (flag, None),
            };
            if !known.contains(&name) {
                return Err(Error::usage(format!("unknown flag `--{name}` of the hook `{hook}`")));
            }
            let value = value.or_else(|| words.next());
            let value = value.ok_or_else(|| Error::usage(format!("the flag `--{name}` needs a value")))?;
            flags.given.push((name.to_owned(), value));
        }
        Ok(flags)
    }

    fn all(&mut self, name: &str) -> Vec<String> {
        let mut values = Vec::new();
        self.given.retain_mut(|(flag, value)| {
            let other = flag != name;
            if !other {
                values.push(std::mem::take(value));
            }
            other
        });
        values
    }

    /// A flag that may be there once; an empty value is none.
    fn one(&mut self, name: &str) -> Result<Option<String>> {
        let mut values = self.all(name);
        match values.len() {
            0 | 1 => Ok(values.pop().filter(|value| !value.is_empty())),
            _ => Err(Error::usage(format!("the flag `--{name}` is there twice"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Command> {
        let args = line.split_whitespace().map(OsString::from);
        Arguments::parse(args).map(|arguments| arguments.command)
    }

    #[test]
    fn the_vendors_arguments_are_understood() {
        #[track_caller]
        fn check(line: &str, expected: &Command) {
            assert_eq!(parse(line).unwrap(), *expected);
        }
        check(
            "nvidia-cdi-hook create-symlinks --link a::/b --link=c::/d",
            &Command::CreateSymlinks {
                links: vec!["a::/b".parse().unwrap(), "c::/d".parse().unwrap()],
                spec: None,
            },
        );
        check(
            "nvidia-ctk hook update-ldcache --ldconfig-path /l --folder /a --folder /b --container-spec -",
            &Command::UpdateLdcache {
                ldconfig: "/l".into(),
                folders: vec!["/a".to_owned(), "/b".to_owned()],
                spec: None,
            },
        );
        check(
            "h --debug enable-cuda-compat --host-driver-version=550.1 --container-spec=/s",
            &Command::EnableCudaCompat {
                compat: Compat {
                    host_driver_version: Some("550.1".to_owned()),
                    host_cuda_version: None,
                    container_root: "/usr/local/cuda/compat".into(),
                },
                spec: Some("/s".into()),
            },
        );
        check(
            "h chmod --mode 755 --path /dev/dri",
            &Command::Chmod {
                mode: 0o755,
                paths: vec!["/dev/dri".into()],
                spec: None,
            },
        );
        check(
            "h disable-device-node-modification",
            &Command::DisableDeviceNodeModification { spec: None },
        );
        check(
            "h update-application-profile",
            &Command::UpdateApplicationProfile { spec: None },
        );
        for hook in ["h make-coffee", "nvidia-ctk hook make-coffee --milk --sugar=2 please"] {
            check(
                hook,
                &Command::Unknown {
                    hook: "make-coffee".to_owned(),
                },
            );
        }
        check(
            "h several create-symlinks --link a::/b --then make-coffee --milk --then update-ldcache --folder /f",
            &Command::Several {
                commands: vec![
                    Command::CreateSymlinks {
                        links: vec!["a::/b".parse().unwrap()],
                        spec: None,
                    },
                    Command::Unknown {
                        hook: "make-coffee".to_owned(),
                    },
                    Command::UpdateLdcache {
                        ldconfig: "/sbin/ldconfig".into(),
                        folders: vec!["/f".to_owned()],
                        spec: None,
                    },
                ],
            },
        );
        for (hook, flags) in HOOKS {
            let command = parse(&format!("h {hook} --mode 0"));
            assert!(!matches!(command, Ok(Command::Unknown { .. })), "{hook}");
            let help = HELP.lines().find(|line| line.trim_start().starts_with(hook));
            for flag in flags.iter().filter(|flag| **flag != SPEC) {
                assert!(
                    help.is_some_and(|line| line.contains(&format!("--{flag} "))),
                    "{hook} {flag}"
                );
            }
        }
        check("h --help", &Command::Help);
        check("h chmod --help", &Command::Help);
    }

    #[test]
    fn a_relative_path_starts_from_the_folder_that_the_program_was_started_in() {
        let here = std::env::current_dir().unwrap();
        let command = parse("h disable-device-node-modification --container-spec a/state.json").unwrap();
        let spec = Some(here.join("a/state.json"));
        assert_eq!(command, Command::DisableDeviceNodeModification { spec });
    }

    #[test]
    fn whatever_else_is_refused_by_name() {
        #[track_caller]
        fn check(line: &str, expected: &str) {
            let error = parse(line).unwrap_err();
            assert!(error.is_usage());
            assert_eq!(error.to_string(), expected);
        }
        check("h", "no hook named; see --help");
        check("h --verbose create-symlinks", "unknown flag `--verbose`");
        check(
            "h create-symlinks --folder /a",
            "unknown flag `--folder` of the hook `create-symlinks`",
        );
        check(
            "h create-symlinks /a",
            "unknown argument `/a` of the hook `create-symlinks`",
        );
        check("h create-symlinks --link", "the flag `--link` needs a value");
        check(
            "h create-symlinks --link a --nope",
            "unknown flag `--nope` of the hook `create-symlinks`",
        );
        check(
            "h create-symlinks --link a",
            "`a` is not a link: expected `TARGET::LINK`",
        );
        check(
            "h update-ldcache --nope",
            "unknown flag `--nope` of the hook `update-ldcache`",
        );
        check(
            "h several noop --then chmod --nope",
            "unknown flag `--nope` of the hook `chmod`",
        );
        check(
            "h update-ldcache --ldconfig-path a --ldconfig-path b",
            "the flag `--ldconfig-path` is there twice",
        );
        check("h several", "no hook named in `several`; see --help");
        check("h several noop --then", "no hook named in `several`; see --help");
        check("h several several noop", "`several` within `several`");
        check(
            "h several update-ldcache --then noop",
            "`update-ldcache` is not the last of `several`",
        );
        check(
            "h several noop --then chmod --path /a",
            "the hook `chmod` needs `--mode`",
        );
        check("h chmod --path /a", "the hook `chmod` needs `--mode`");
        check("h chmod --mode 9 --path /a", "`9` is not an octal file mode");
    }
}
