//! What several files mean together, worked out as the daemon does.

use std::borrow::Cow;

use super::{Version, file::ConfigFile};
use crate::value::{Table, Value};

/// The CRI plugin's table after all imports.
#[derive(Debug)]
pub(super) struct Merged<'f> {
    /// Borrowed where one file alone makes it.
    pub(super) cri: Cow<'f, Value>,
}

impl Merged<'_> {
    pub(super) fn containerd(&self, key: &str) -> Option<&Value> {
        self.cri.get(&["containerd", key])
    }
}

/// Merges files in their order. An unknown daemon counts as one that merges key by key, which shows everything there is.
pub(super) fn merge<'f>(files: &[&'f ConfigFile], daemon: Option<Version>) -> Merged<'f> {
    let deep = daemon.is_none_or(Version::merges_deeply);
    let mut cri: Option<Cow<'f, Value>> = None;
    for table in files.iter().filter_map(|file| file.cri()) {
        match &mut cri {
            Some(cri) if deep => merge_deeply(cri.to_mut(), table),
            cri => *cri = Some(Cow::Borrowed(table)),
        }
    }
    Merged {
        cri: cri.unwrap_or_else(|| Cow::Owned(Value::Table(Table::new()))),
    }
}

/// containerd 2 overrides with what is not empty, and unites lists.
fn merge_deeply(under: &mut Value, over: &Value) {
    match (under, over) {
        (Value::Table(under), Value::Table(over)) => {
            for (key, value) in over {
                match under.get_mut(key) {
                    Some(existing) => merge_deeply(existing, value),
                    None => drop(under.insert(key.clone(), value.clone())),
                }
            }
        }
        (Value::Array(under), Value::Array(over)) => {
            for item in over {
                if !under.contains(item) {
                    under.push(item.clone());
                }
            }
        }
        (under, over) if !over.is_zero() => *under = over.clone(),
        _ => {}
    }
}
