use std::{collections::BTreeSet, fs, io, os::unix::fs::symlink, path::Path};

use anyhow::Context;

use super::Choice;
use crate::config_file;

/// The files to choose from, and the link to the one that is chosen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Files<'a> {
    pub(super) folder: &'a Path,
    pub(super) link: &'a Path,
}

/// The names of the files, without those by which a mounted `ConfigMap` is replaced.
pub(super) fn names(folder: &Path) -> anyhow::Result<BTreeSet<String>> {
    let context = || format!("cannot read the folder `{}`", folder.display());
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(folder).with_context(context)? {
        let entry = entry.with_context(context)?;
        // Files of a ConfigMap are links, to what may just be replaced.
        let is_file = fs::metadata(entry.path()).is_ok_and(|metadata| !metadata.is_dir());
        if let Ok(name) = entry.file_name().into_string()
            && !name.starts_with("..")
            && is_file
        {
            names.insert(name);
        }
    }
    Ok(names)
}

impl Files<'_> {
    /// Makes the link lead there, and says whether it did not before. At no moment is there no link.
    pub(super) fn lead_to(&self, choice: &Choice) -> anyhow::Result<bool> {
        let target = choice.path(self.folder);
        if fs::read_link(self.link).is_ok_and(|present| present == target) {
            return Ok(false);
        }
        // As the vendor's program, leave a file alone that is the same one by another way.
        let real = |path: &Path| path.canonicalize().ok();
        if real(self.link).is_some_and(|present| Some(present) == real(&target)) {
            return Ok(false);
        }
        self.replace(&target)
            .with_context(|| format!("cannot make the link `{}`", self.link.display()))?;
        Ok(true)
    }

    fn replace(&self, target: &Path) -> io::Result<()> {
        let mut new = self.link.as_os_str().to_owned();
        new.push(".new");
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        symlink(target, &new)?;
        fs::rename(&new, self.link)
    }

    /// What a program reads at the link; `None` where it reads nothing, as of a pipe or of a file without end.
    pub(super) fn text(&self) -> Option<String> {
        config_file::read_file(self.link).ok()
    }

    /// Whether there is a link to nothing.
    pub(super) fn is_broken(&self) -> bool {
        fs::symlink_metadata(self.link).is_ok() && !self.link.exists()
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_link_leads_where_it_is_told_and_is_never_gone() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, link) = (dir.path().join("configs"), dir.path().join("config.yaml"));
        fs::create_dir_all(folder.join("..2026")).unwrap();
        for name in ["a", "b"] {
            fs::write(folder.join("..2026").join(name), name).unwrap();
            symlink(format!("..2026/{name}"), folder.join(name)).unwrap();
        }
        let files = Files {
            folder: &folder,
            link: &link,
        };
        assert_eq!(names(&folder).unwrap(), ["a", "b"].map(str::to_owned).into());
        let check = |choice: Choice, changed, text: &str| {
            assert_eq!(files.lead_to(&choice).unwrap(), changed, "{choice}");
            assert_eq!(files.text().unwrap(), text);
        };
        let file = |name: &str| Choice::File(name.to_owned());
        check(file("a"), true, "a");
        check(file("a"), false, "a");
        check(file("b"), true, "b");
        check(Choice::Empty, true, "");
        check(file("a"), true, "a");
        assert!(!files.is_broken());
        fs::remove_file(folder.join("a")).unwrap();
        assert!(files.is_broken());
        check(file("b"), true, "b");
        assert_eq!(
            fs::read_dir(dir.path()).unwrap().count(),
            2,
            "nothing is left beside it"
        );
    }

    #[test]
    fn what_is_no_file_or_has_no_end_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::File::create(path("long")).unwrap().set_len(1 << 40).unwrap();
        assert!(Command::new("mkfifo").arg(path("pipe")).status().unwrap().success());
        for name in ["long", "pipe"] {
            let link = path("config.yaml");
            let files = Files {
                folder: dir.path(),
                link: &link,
            };
            files.lead_to(&Choice::File(name.to_owned())).unwrap();
            assert_eq!(files.text(), None, "{name}");
        }
    }
}
