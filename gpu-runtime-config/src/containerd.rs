//! containerd 1.6, 1.7 and 2.0–2.4, with configuration files of version 1 to 4.
//!
//! # Where the runtimes go
//! containerd 2 merges imported files key by key, so a drop-in holds only what is missing. containerd 1 lets an imported
//! file replace the whole CRI table: there the main file is edited, or, where another file already replaces the table,
//! the drop-in holds all of it. A file of version 1 is always edited itself.
//!
//! # Version of a drop-in
//! It is that of the main file on disk (1 if the file names none), never what `containerd config dump` says: containerd
//! 2.3.0–2.3.4 refuses to start if a drop-in's version is higher. A main file that has to be made gets the version of
//! the daemon; one is needed because no containerd reads drop-ins without it.
//!
//! # containerd 1 forgets `runc`
//! Its TOML reader replaces maps, so that the first runtime in a file takes the built-in `runc` away, and the CRI plugin
//! does not load without the default runtime. Where a file names no runtime yet, `runc` is therefore named too.

use std::path::{Path, PathBuf};

use crate::{
    drop_in_path,
    edit::{Format, Op, edit, edit_and_parse, edit_parsed},
    error::{Error, Result},
    plan::{Draft, Notice, Plan, Snapshot, draft, plan},
    receipt::{Receipt, drafts},
    runtime::{Settings, low_level},
    toml_text::TomlText,
    value::{Table, Value},
};

mod desired;
mod drop_in;
mod file;
mod imports;
mod merged;
mod version;

use file::ConfigFile;
pub use imports::imports;
#[cfg(feature = "apply")]
pub(crate) use imports::name_matches;
use merged::{Merged, merge};
pub use version::{ParseVersionError, Version};

/// The files of one containerd, as found on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// The main file, by default `/etc/containerd/config.toml`.
    pub main: Snapshot,
    /// The drop-in that is ours, by default `/etc/containerd/conf.d/99-nvidia.toml`.
    pub drop_in: Snapshot,
    /// All files that the main file imports, in the order in which containerd merges them ([`imports`]). The drop-in may
    /// be among them.
    pub imported: Vec<Snapshot>,
    /// Files that the receipt names and that are none of the above, such as a drop-in at an earlier path.
    pub other: Vec<Snapshot>,
}

/// Which files may be edited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Placement {
    /// As suits the daemon: see [the module](self).
    #[default]
    Auto,
    /// The main file.
    InPlace,
    /// The drop-in, and the main file's `imports` if it does not import the drop-in yet.
    DropIn,
    /// The drop-in alone: the main file belongs to a distribution that renders it anew.
    DropInOnly,
}

/// Plans what makes containerd offer the runtimes.
///
/// `daemon` is the version that will read the files, `None` if it is unknown: what is written then suits all of them.
/// With the `receipt` of an earlier plan, what that plan did and is no longer asked for is taken back.
///
/// # Errors
/// When a file cannot be read as containerd would, when the CRI plugin is disabled, and when the change would not take
/// effect. No error means that the merged configuration, worked out as containerd does, holds what was asked for.
///
/// # Example
/// ```
/// use gpu_runtime_config::{Settings, Snapshot, containerd};
///
/// let files = containerd::Files {
///     main: Snapshot::new("/etc/containerd/config.toml", "version = 3\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n"),
///     drop_in: Snapshot::absent("/etc/containerd/conf.d/99-nvidia.toml"),
///     imported: vec![],
///     other: vec![],
/// };
/// let settings = Settings::vendor("/usr/local/nvidia/toolkit", "nvidia", false);
/// let plan = containerd::configure(&files, Some("2.1.4".parse()?), Default::default(), &settings, None)?;
/// assert_eq!(plan.changes.len(), 1, "the main file imports the drop-in already");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn configure(
    files: &Files,
    daemon: Option<Version>,
    placement: Placement,
    settings: &Settings,
    receipt: Option<&Receipt>,
) -> Result<Plan> {
    settings.check(true)?;
    drop_in_path::check(&files.drop_in.path, &files.main.path)?;
    let mut found = vec![files.drop_in.clone(), files.main.clone()];
    found.extend(files.imported.iter().chain(&files.other).cloned());
    let (mut drafts, mut notices) = drafts(&found, receipt, Format::Toml)?;
    let base = |path: &Path| {
        drafts
            .iter()
            .find(|draft| draft.path == path)
            .and_then(|draft| draft.base.clone())
    };

    let main_text = base(&files.main.path).unwrap_or_default();
    let main = Main::read(TomlText::parse(&files.main.path, &main_text)?, daemon)?;
    let mut imported = Vec::new();
    for snapshot in files
        .imported
        .iter()
        .filter(|snapshot| snapshot.path != files.drop_in.path)
    {
        if let Some(text) = base(&snapshot.path) {
            imported.push(ConfigFile::read(&snapshot.path, &text, daemon)?);
        }
    }
    let foreign = match base(&files.drop_in.path).filter(|text| !drop_in::is_ours(text)) {
        Some(text) => Some(ConfigFile::read(&files.drop_in.path, &text, daemon)?),
        None => None,
    };

    let job = Job {
        daemon,
        settings,
        main: &main,
        imported: &imported,
        drop_in: &files.drop_in.path,
    };
    let is_imported = imports::matching(&main.file, &files.drop_in.path).is_some();
    let in_force = foreign.as_ref().filter(|_| is_imported);
    let wanted = match job.place(placement, in_force, &mut notices)? {
        Placement::InPlace => job.edit_main(in_force, &mut notices)?,
        placement => job.write_drop_in(placement, foreign.as_ref(), &mut notices)?,
    };
    if let Some(main) = wanted.main {
        set(&mut drafts, &files.main.path, Some(main));
    }
    if let Some(drop_in) = wanted.drop_in {
        set(&mut drafts, &files.drop_in.path, Some(drop_in));
    } else if base_is_ours(&drafts, &files.drop_in.path) {
        set(&mut drafts, &files.drop_in.path, None);
    }
    plan(drafts, notices)
}

/// The version that a drop-in beside this main file gets: that of the file, or what the daemon reads where the file says
/// nothing; `None` if that is not known either.
///
/// # Errors
/// When the file cannot be read as containerd would.
pub fn drop_in_version(main: &Snapshot, daemon: Option<Version>) -> Result<Option<u32>> {
    let text = main.text.as_deref().unwrap_or_default();
    let main = Main::read(TomlText::parse(&main.path, text)?, daemon)?;
    Ok((!main.is_blank || daemon.is_some()).then_some(main.file.version))
}

/// The programs behind the runtimes that options are copied from, the node's own default first, then `runc` and `crun`.
///
/// # Errors
/// When a file cannot be read as containerd would.
pub fn low_level_runtimes(files: &Files, daemon: Option<Version>, settings: &Settings) -> Result<Vec<String>> {
    let mut read = Vec::new();
    for file in std::iter::once(&files.main).chain(&files.imported) {
        let text = file.text.as_deref().unwrap_or_default();
        read.push(ConfigFile::read(&file.path, text, daemon)?);
    }
    let merged = merge(&read.iter().collect::<Vec<_>>(), daemon);
    let default = merged.containerd("default_runtime_name").and_then(Value::as_str);
    let runtimes = merged.containerd("runtimes");
    let program = |name: &String| runtimes?.get(&[name, "options", "BinaryName"])?.as_str();
    Ok(low_level(default, settings, program))
}

fn set(drafts: &mut [Draft], path: &Path, text: Option<String>) {
    if let Some(draft) = draft(drafts, path) {
        // A drop-in of ours whose receipt was lost is no state to go back to.
        if draft.base.as_deref().is_some_and(drop_in::is_ours) {
            draft.base = None;
        }
        draft.wanted = text;
    }
}

fn base_is_ours(drafts: &[Draft], path: &Path) -> bool {
    drafts
        .iter()
        .any(|draft| draft.path == path && draft.base.as_deref().is_some_and(drop_in::is_ours))
}

/// The main file, which need not exist.
struct Main<'m> {
    file: ConfigFile,
    toml: TomlText<'m>,
    /// Nothing in it that containerd would read: it gets the daemon's version.
    is_blank: bool,
}

impl<'m> Main<'m> {
    fn read(toml: TomlText<'m>, daemon: Option<Version>) -> Result<Main<'m>> {
        let mut file = ConfigFile::of(&toml, daemon)?;
        let is_blank = file.value.as_table().is_none_or(Table::is_empty);
        if is_blank {
            file.version = daemon.map_or(2, Version::file_version);
        }
        Ok(Main { file, toml, is_blank })
    }

    /// The text with a change made, and what it means then; it gets a version if it holds nothing.
    fn edit(&self, op: Op) -> Result<(String, Value)> {
        if !self.is_blank {
            return edit_parsed(&self.toml, self.file.value.clone(), &[op]);
        }
        let version = Value::Number(self.file.version.to_string());
        let version = Op::Merge(Table::from([("version".to_owned(), version)]));
        let text = edit(Format::Toml, &self.file.path, self.toml.text(), &[version])?;
        edit_and_parse(Format::Toml, &self.file.path, &text, &[op])
    }
}

/// New texts: `None` leaves the file as it was before this crate touched it.
#[derive(Default)]
struct Texts {
    main: Option<String>,
    drop_in: Option<String>,
}

struct Job<'j> {
    daemon: Option<Version>,
    settings: &'j Settings,
    main: &'j Main<'j>,
    imported: &'j [ConfigFile],
    drop_in: &'j Path,
}

impl Job<'_> {
    /// Which file gets the runtimes.
    fn place(&self, asked: Placement, foreign: Option<&ConfigFile>, notices: &mut Vec<Notice>) -> Result<Placement> {
        let main = &self.main.file;
        if asked == Placement::DropInOnly && self.main.is_blank && self.daemon.is_none() {
            let path = main.path.clone();
            return Err(Error::UnknownDaemon { path });
        }
        let replaces = !self.daemon.is_some_and(Version::merges_deeply);
        let overridden = || self.imported.iter().chain(foreign).any(|file| file.cri().is_some());
        match asked {
            Placement::DropInOnly if main.version == 1 => Err(Error::NoDropIns {
                path: main.path.clone(),
            }),
            Placement::DropIn if main.version == 1 => {
                notices.push(Notice::NoDropInsInVersion1 {
                    path: main.path.clone(),
                });
                Ok(Placement::InPlace)
            }
            Placement::Auto if main.version == 1 => Ok(Placement::InPlace),
            Placement::Auto if replaces && !overridden() => Ok(Placement::InPlace),
            Placement::Auto => Ok(Placement::DropIn),
            asked => Ok(asked),
        }
    }

    fn edit_main(&self, foreign: Option<&ConfigFile>, notices: &mut Vec<Notice>) -> Result<Texts> {
        let main = &self.main.file;
        let files = self.in_order(main, foreign);
        let merged = merge(&files, self.daemon);
        let desired = desired::desired(&merged, self.settings, main, self.daemon, notices)?;
        let Some(Value::Table(missing)) = desired.missing_from(Some(&merged.cri)) else {
            return Ok(Texts::default());
        };
        let cri = Table::from([(main.cri_name().to_owned(), Value::Table(missing))]);
        let plugins = Op::Merge(Table::from([("plugins".to_owned(), Value::Table(cri))]));
        let (text, value) = self.main.edit(plugins)?;
        let edited = main.with(value);
        self.check_effect(&desired, &self.in_order(&edited, foreign), &main.path)?;
        Ok(Texts {
            main: Some(text),
            drop_in: None,
        })
    }

    fn write_drop_in(
        &self,
        placement: Placement,
        foreign: Option<&ConfigFile>,
        notices: &mut Vec<Notice>,
    ) -> Result<Texts> {
        let main = &self.main.file;
        let merged = merge(&self.in_order(main, None), self.daemon);
        let desired = desired::desired(&merged, self.settings, main, self.daemon, notices)?;
        let Some(missing) = desired.missing_from(Some(&merged.cri)) else {
            return Ok(Texts::default());
        };
        if let Some(foreign) = foreign {
            drop_in::check_replaceable(foreign)?;
            notices.push(Notice::DropInReplaced {
                path: foreign.path.clone(),
            });
        }
        // Where an imported table replaces what was before, all of it has to be there.
        let cri = if self.daemon.is_some_and(Version::merges_deeply) {
            missing
        } else {
            let mut whole = merged.cri.clone().into_owned();
            whole.overlay(&desired);
            whole
        };
        let drop_in = drop_in::text(main.version, main.cri_name(), &cri);
        let mut edited = None;
        let mut main_after = None;
        if imports::matching(main, self.drop_in).is_none() {
            if placement == Placement::DropInOnly {
                let (path, drop_in) = (main.path.clone(), self.drop_in.to_owned());
                // A main file that is yet to be rendered may well import it.
                if !self.main.is_blank {
                    return Err(Error::NotImported { path, drop_in });
                }
            } else {
                let (text, value) = self.import_drop_in()?;
                main_after = Some(main.with(value));
                edited = Some(text);
            }
        }
        let ours = ConfigFile::read(self.drop_in, &drop_in, self.daemon)?;
        self.check_effect(
            &desired,
            &self.in_order(main_after.as_ref().unwrap_or(main), Some(&ours)),
            self.drop_in,
        )?;
        Ok(Texts {
            main: edited,
            drop_in: Some(drop_in),
        })
    }

    fn import_drop_in(&self) -> Result<(String, Value)> {
        let pattern = Value::string(imports::pattern(self.drop_in));
        self.main.edit(Op::Append(vec!["imports".to_owned()], vec![pattern]))
    }

    /// All files in the order in which containerd merges them, the drop-in among them.
    fn in_order<'f>(&'f self, main: &'f ConfigFile, drop_in: Option<&'f ConfigFile>) -> Vec<&'f ConfigFile> {
        let mut files: Vec<&ConfigFile> = self.imported.iter().collect();
        if let Some(drop_in) = drop_in {
            files.insert(imports::place(main, &drop_in.path, &files), drop_in);
        }
        files.insert(0, main);
        files
    }

    /// Works out what containerd would make of the files and looks for what was asked for.
    fn check_effect(&self, desired: &Value, files: &[&ConfigFile], edited: &Path) -> Result<()> {
        let Merged { cri } = merge(files, self.daemon);
        let mut keys: Vec<Vec<&str>> = vec![vec!["containerd", "default_runtime_name"], vec!["enable_cdi"]];
        for runtime in &self.settings.runtimes {
            keys.push(vec!["containerd", "runtimes", &runtime.name, "runtime_type"]);
            keys.push(vec!["containerd", "runtimes", &runtime.name, "options", "BinaryName"]);
        }
        for key in keys {
            if let Some(wanted) = desired.get(&key)
                && cri.get(&key) != Some(wanted)
            {
                let later = files.iter().rev().take_while(|file| file.path != edited);
                let culprit = later.filter(|file| file.cri().is_some()).map(|file| &file.path).next();
                let path: PathBuf = culprit.cloned().unwrap_or_else(|| edited.to_owned());
                return Err(Error::Overridden {
                    path,
                    key: key.join("."),
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
