//! The data files that this crate carries: boards, MIG tables and node templates, one YAML text each.

use std::sync::{LazyLock, OnceLock};

use serde::de::DeserializeOwned;

include!(concat!(env!("OUT_DIR"), "/data.rs"));

/// Texts of one kind. Each is read when it is first asked for, because a program needs few of them.
pub(crate) struct Catalog<T> {
    texts: &'static [&'static str],
    read: LazyLock<Vec<OnceLock<Option<T>>>>,
}

impl<T: DeserializeOwned> Catalog<T> {
    pub(crate) fn all(&'static self) -> impl Iterator<Item = &'static T> {
        (0..self.texts.len()).filter_map(|at| self.get(at))
    }

    /// The first one whose top-level `key` has that value; upper and lower case are the same.
    pub(crate) fn find(&'static self, key: &str, value: &str) -> Option<&'static T> {
        let is_it = |line: &str| {
            let found = line.strip_prefix(key).and_then(|rest| rest.strip_prefix(": "));
            found.is_some_and(|found| found.trim().eq_ignore_ascii_case(value))
        };
        let at = self.texts.iter().position(|text| text.lines().any(is_it))?;
        self.get(at)
    }

    fn get(&'static self, at: usize) -> Option<&'static T> {
        let text = self.texts.get(at)?;
        self.read
            .get(at)?
            .get_or_init(|| serde_saphyr::from_str(text).ok())
            .as_ref()
    }
}

/// A catalogue of one of the lists above; a macro, because each needs an initialiser of its own.
macro_rules! catalog {
    ($texts:expr) => {
        $crate::data::Catalog::new($texts, || $texts.iter().map(|_| std::sync::OnceLock::new()).collect())
    };
}
pub(crate) use catalog;

impl<T> Catalog<T> {
    pub(crate) const fn new(texts: &'static [&'static str], read: fn() -> Vec<OnceLock<Option<T>>>) -> Self {
        Self {
            texts,
            read: LazyLock::new(read),
        }
    }
}
