use std::{
    collections::BTreeSet,
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

/// What is read where nothing is set; the programs take it for an empty file.
const EMPTY: &str = "/dev/null";

/// What the configuration is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Choice {
    /// A file.
    File(String),
    /// No settings.
    Empty,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(name) => write!(f, "the file `{name}`"),
            Self::Empty => f.write_str("empty"),
        }
    }
}

/// What is chosen where nobody has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fallback {
    /// The file `default`.
    Named,
    /// The file that is the only one.
    Single,
    /// No settings.
    Empty,
}

impl FromStr for Fallback {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim() {
            "named" => Ok(Self::Named),
            "single" => Ok(Self::Single),
            "empty" => Ok(Self::Empty),
            other => Err(format!("unknown fallback strategy: {other}")),
        }
    }
}

/// The file `named` stands for.
const NAMED: &str = "default";

/// Why nothing is chosen; in the words of the vendor's program.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoChoice {
    #[error("no configuration files available")]
    NoFiles,
    #[error("specified config {0} does not exist")]
    NoSuchFile(String),
    #[error("no config was set, no default was provided, and all fallbacks failed")]
    Nothing,
}

impl Choice {
    /// The file to read.
    pub(super) fn path(&self, folder: &Path) -> PathBuf {
        match self {
            Self::File(name) => folder.join(name),
            Self::Empty => EMPTY.into(),
        }
    }

    /// What the label says, else the default, else the first fallback that is there.
    pub(super) fn new(
        label: &str,
        default: &str,
        fallbacks: &[Fallback],
        files: &BTreeSet<String>,
    ) -> Result<Self, NoChoice> {
        if files.is_empty() {
            return Err(NoChoice::NoFiles);
        }
        let file = |name: &str| Self::File(name.to_owned());
        if let Some(name) = [label, default].into_iter().find(|name| !name.is_empty()) {
            return if files.contains(name) {
                Ok(file(name))
            } else {
                Err(NoChoice::NoSuchFile(name.to_owned()))
            };
        }
        let fallback = |fallback: &Fallback| match fallback {
            Fallback::Named => files.contains(NAMED).then(|| file(NAMED)),
            Fallback::Single if files.len() == 1 => files.first().map(|name| file(name)),
            Fallback::Single => None,
            Fallback::Empty => Some(Self::Empty),
        };
        fallbacks.iter().find_map(fallback).ok_or(NoChoice::Nothing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_label_goes_before_the_default_and_that_before_the_fallbacks() {
        #[track_caller]
        fn check(label: &str, default: &str, fallbacks: &str, files: &str, expected: &str) {
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            let fallbacks: Vec<Fallback> = words(fallbacks).iter().map(|word| word.parse().unwrap()).collect();
            let files = words(files).into_iter().collect();
            let chosen = match Choice::new(label, default, &fallbacks, &files) {
                Ok(choice) => choice.to_string(),
                Err(error) => error.to_string(),
            };
            assert_eq!(chosen, expected);
        }
        let all = "named single empty";
        check("ts4", "mps", all, "default mps ts4", "the file `ts4`");
        check("", "mps", all, "default mps ts4", "the file `mps`");
        check("", "", all, "default mps ts4", "the file `default`");
        check("", "", all, "mps", "the file `mps`");
        check("", "", all, "mps ts4", "empty");
        check("", "", "single named", "default ts4", "the file `default`");
        check("", "", "empty named", "default ts4", "empty");
        let failed = "no config was set, no default was provided, and all fallbacks failed";
        check("", "", "named single", "mps ts4", failed);
        check("", "", "", "mps", failed);
        check("no-such", "mps", all, "mps", "specified config no-such does not exist");
        check("", "no-such", all, "mps", "specified config no-such does not exist");
        check("mps", "", all, "", "no configuration files available");
        assert!("named,empty".parse::<Fallback>().is_err());
    }
}
