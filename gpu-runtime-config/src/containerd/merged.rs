//! What several files mean together, worked out as the daemon does.

use super::{Version, file::ConfigFile};
use crate::value::{Table, Value};

/// The CRI plugin's table after all imports.
#[derive(Debug)]
pub(super) struct Merged {
    pub(super) cri: Value,
}

impl Merged {
    pub(super) fn containerd(&self, key: &str) -> Option<&Value> {
        self.cri.get(&["containerd", key])
    }
}

/// Merges files in their order. An unknown daemon counts as one that merges key by key, which shows everything there is.
pub(super) fn merge(files: &[&ConfigFile], daemon: Option<Version>) -> Merged {
    let deep = daemon.is_none_or(Version::merges_deeply);
    let mut cri = Value::Table(Table::new());
    for table in files.iter().filter_map(|file| file.cri()) {
        if deep {
            merge_deeply(&mut cri, table);
        } else {
            cri = table.clone();
        }
    }
    Merged { cri }
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
