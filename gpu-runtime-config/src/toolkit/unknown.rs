use std::{
    fmt,
    path::{Path, PathBuf},
};

use toml::de::{DeTable, DeValue};

use super::key::{KEYS, is_section};
use crate::error::Position;

/// A key of a file that is none of the toolkit's, so that it has no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownKey {
    /// The file.
    pub path: PathBuf,
    /// The key from the top, joined by dots.
    pub key: String,
    /// Its line, from 1.
    pub line: usize,
    /// The known key beside it that it resembles most, or the place that a key of its name belongs to.
    pub nearest: Option<String>,
}

impl fmt::Display for UnknownKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        let Self { key, line, .. } = self;
        write!(
            f,
            "`{key}` in line {line} of `{path}` is not a known key and has no effect"
        )?;
        match &self.nearest {
            Some(nearest) => write!(f, "; did you mean `{nearest}`?"),
            None => Ok(()),
        }
    }
}

/// The unknown keys of a text, in the order of its lines; none of a text that is not TOML, which others complain about.
pub(super) fn unknown(path: &Path, text: &str) -> Vec<UnknownKey> {
    let mut found = Vec::new();
    if let Ok(table) = DeTable::parse(text) {
        let file = File { path, text };
        file.collect(table.get_ref(), "", &mut found);
    }
    found.sort_by_key(|key| key.line);
    found
}

struct File<'f> {
    path: &'f Path,
    text: &'f str,
}

impl File<'_> {
    fn collect(&self, table: &DeTable<'_>, above: &str, found: &mut Vec<UnknownKey>) {
        for (key, value) in table {
            let name = below(above, key.get_ref());
            match value.get_ref() {
                _ if KEYS.iter().any(|key| key.name() == name) => {}
                DeValue::Table(table) if is_section(&name) => self.collect(table, &name, found),
                _ => found.push(UnknownKey {
                    path: self.path.to_owned(),
                    line: Position::of(self.text, key.span().start).line,
                    nearest: nearest(above, key.get_ref()),
                    key: name,
                }),
            }
        }
    }
}

fn below(above: &str, key: &str) -> String {
    match above {
        "" => key.to_owned(),
        above => format!("{above}.{key}"),
    }
}

/// How much of a word must be as in another one, so that it may be meant.
const LIKENESS: f32 = 0.7;

/// The key or section of the same place that resembles this one most; else the place where one of exactly this name belongs.
fn nearest(above: &str, key: &str) -> Option<String> {
    let names = names();
    let beside = names
        .iter()
        .filter(|(place, _)| place == above)
        .map(|(_, last)| last.as_str());
    let beside: Vec<&str> = beside.collect();
    let close = similar::get_close_matches(key, &beside, 1, LIKENESS);
    let elsewhere = || names.iter().find(|(_, last)| last == key);
    close
        .first()
        .map(|close| (*close).to_owned())
        .or_else(|| elsewhere().map(|(place, last)| below(place, last)))
}

/// All keys and sections: where they are, and the last part of their names.
fn names() -> Vec<(String, String)> {
    let mut names = Vec::new();
    for key in &KEYS {
        let mut above = String::new();
        for part in key.path() {
            let name = (above.clone(), part.to_owned());
            if !names.contains(&name) {
                names.push(name);
            }
            above = below(&above, part);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let found = unknown(Path::new("c"), text);
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_key_that_nothing_reads_is_told_with_its_line_and_the_nearest_known_one() {
        check(
            "disable-requires = true\nother = 1\n[nvidia-container-runtime.modes.cdi]\n# x\nspec-dir = []\n",
            &[
                "`disable-requires` in line 1 of `c` is not a known key and has no effect; did you mean `disable-require`?",
                "`other` in line 2 of `c` is not a known key and has no effect",
                "`nvidia-container-runtime.modes.cdi.spec-dir` in line 5 of `c` is not a known key and has no effect; \
                 did you mean `spec-dirs`?",
            ],
        );
        check(
            "\n[modes.cdi]\ndefault-kind = 'a/b'\n",
            &[
                "`modes` in line 2 of `c` is not a known key and has no effect; did you mean `nvidia-container-runtime.modes`?",
            ],
        );
        check(
            "[nvidia-container-runtime]\ndefault-kind = 'a/b'\n[nvidia-container-runtim]\nmode = 'cdi'\n",
            &[
                "`nvidia-container-runtime.default-kind` in line 2 of `c` is not a known key and has no effect; \
                 did you mean `nvidia-container-runtime.modes.cdi.default-kind`?",
                "`nvidia-container-runtim` in line 3 of `c` is not a known key and has no effect; did you mean `nvidia-container-runtime`?",
            ],
        );
    }

    #[test]
    fn no_key_of_the_vendors_is_told() {
        check(&super::super::defaults().replace('#', ""), &[]);
        for key in &KEYS {
            check(&format!("{} = true\n", key.name()), &[]);
        }
        check("[", &[]);
    }
}
