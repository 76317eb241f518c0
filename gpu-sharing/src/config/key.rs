//! Walking a document by its keys: each is known, or named with the one that was meant.

use super::{
    Error, Reading, ResourceName, Result, UnknownKey, Warning,
    document::{Node, Value},
};

/// Every place that takes keys, and its keys. The list's items are written `[]`.
pub(super) const SCHEMA: &[(&str, &[&str])] = &[
    ("", &["version", "flags", "resources", "sharing", "imex"]),
    (
        "flags",
        &[
            "migStrategy",
            "failOnInitError",
            "mpsRoot",
            "nvidiaDriverRoot",
            "nvidiaDevRoot",
            "gdrcopyEnabled",
            "gdsEnabled",
            "mofedEnabled",
            "useNodeFeatureAPI",
            "deviceDiscoveryStrategy",
            "plugin",
            "gfd",
        ],
    ),
    (
        "flags.plugin",
        &[
            "passDeviceSpecs",
            "deviceListStrategy",
            "deviceIDStrategy",
            "cdiAnnotationPrefix",
            "nvidiaCTKPath",
            "containerDriverRoot",
            "sharedDevicesAllocationPolicy",
        ],
    ),
    (
        "flags.gfd",
        &[
            "oneshot",
            "noTimestamp",
            "sleepInterval",
            "outputFile",
            "machineTypeFile",
        ],
    ),
    ("resources", &["gpus", "mig"]),
    ("resources.gpus[]", &["pattern", "name"]),
    ("resources.mig[]", &["pattern", "name"]),
    ("sharing", &["timeSlicing", "mps"]),
    ("sharing.timeSlicing", SHARED),
    ("sharing.mps", SHARED),
    ("sharing.timeSlicing.resources[]", REPLICAS),
    ("sharing.mps.resources[]", REPLICAS),
    ("imex", &["channelIDs", "required"]),
];

const SHARED: &[&str] = &["renameByDefault", "failRequestsGreaterThanOne", "resources"];
const REPLICAS: &[&str] = &["name", "rename", "devices", "replicas"];

/// Collects what a reading passes over.
#[derive(Debug)]
pub(super) struct Walk {
    reading: Reading,
    pub(super) warnings: Vec<Warning>,
}

impl Walk {
    pub(super) fn new(reading: Reading) -> Self {
        Self {
            reading,
            warnings: Vec::new(),
        }
    }

    /// The map at a place of the [`SCHEMA`]; `None` where nothing is written. `path` is the place with its list's numbers.
    pub(super) fn map<'a>(&mut self, node: &'a Node, place: &'static str, path: &str) -> Result<Option<Map<'a>>> {
        let entries = match &node.value {
            Value::Null => return Ok(None),
            Value::Map(entries) => entries,
            _ => return Err(value_error(path, node.line, "expected keys and values")),
        };
        let known = SCHEMA
            .iter()
            .find(|(known, _)| *known == place)
            .map_or(&[] as &[_], |(_, keys)| keys);
        // The vendor's parser finds keys whatever their case, but not in what it unmarshals by hand.
        let any_case = !place.starts_with("sharing.") && !place.ends_with(']');
        let mut fields = Vec::new();
        for (key, line, node) in entries {
            let found = known
                .iter()
                .find(|known| *known == key || any_case && known.eq_ignore_ascii_case(key));
            match found {
                Some(known) => fields.push((*known, node)),
                None => self.unknown(UnknownKey {
                    key: join(path, key),
                    line: *line,
                    nearest: nearest(key, known),
                })?,
            }
        }
        Ok(Some(Map {
            path: path.to_owned(),
            fields,
        }))
    }

    fn unknown(&mut self, key: UnknownKey) -> Result<()> {
        match self.reading {
            Reading::Strict => Err(Error::UnknownKey(key)),
            Reading::Lenient => {
                self.warnings.push(Warning::UnknownKey(key));
                Ok(())
            }
        }
    }
}

/// The known keys of one map.
#[derive(Debug)]
pub(super) struct Map<'a> {
    path: String,
    fields: Vec<(&'static str, &'a Node)>,
}

impl<'a> Map<'a> {
    /// The value of a key, with its path; `null` counts as not written. Of two spellings the last wins.
    pub(super) fn get(&self, key: &str) -> Option<Field<'a>> {
        self.written(key).filter(|field| !field.node.is_null())
    }

    /// As [`get`](Self::get), `null` included.
    pub(super) fn written(&self, key: &str) -> Option<Field<'a>> {
        let (_, node) = self.fields.iter().rev().find(|(known, _)| *known == key)?;
        Some(Field {
            path: join(&self.path, key),
            node,
        })
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<String>> {
        self.get(key).map(|field| field.text()).transpose()
    }

    pub(super) fn bool(&self, key: &str) -> Result<Option<bool>> {
        self.get(key).map(|field| field.bool()).transpose()
    }

    /// The name of a resource of NVIDIA's.
    pub(super) fn resource_name(&self, key: &str) -> Result<Option<ResourceName>> {
        let parse = |field: Field<'_>| ResourceName::nvidia(&field.text()?).map_err(|error| field.error(error));
        self.get(key).map(parse).transpose()
    }

    /// A text with a grammar of its own.
    pub(super) fn parsed<T>(&self, key: &str) -> Result<Option<T>>
    where
        T: std::str::FromStr<Err: std::fmt::Display>,
    {
        let parse = |field: Field<'_>| {
            let text = field.text()?;
            text.parse().map_err(|error: T::Err| field.error(error))
        };
        self.get(key).map(parse).transpose()
    }
}

/// One value and its path.
#[derive(Debug)]
pub(super) struct Field<'a> {
    pub(super) path: String,
    pub(super) node: &'a Node,
}

impl<'a> Field<'a> {
    pub(super) fn error(&self, reason: impl std::fmt::Display) -> Error {
        value_error(&self.path, self.node.line, reason)
    }

    pub(super) fn text(&self) -> Result<String> {
        self.node.scalar().ok_or_else(|| self.error("expected a text"))
    }

    fn bool(&self) -> Result<bool> {
        match self.node.value {
            Value::Bool(value) => Ok(value),
            _ => Err(self.error("expected true or false")),
        }
    }

    pub(super) fn list(&self) -> Result<Vec<Field<'a>>> {
        let Value::List(nodes) = &self.node.value else {
            return Err(self.error("expected a list"));
        };
        let item = |(number, node): (usize, &'a Node)| Field {
            path: format!("{}[{number}]", self.path),
            node,
        };
        Ok(nodes.iter().enumerate().map(item).collect())
    }
}

pub(super) fn value_error(path: &str, line: u64, reason: impl std::fmt::Display) -> Error {
    Error::Value {
        key: if path.is_empty() {
            "the document".to_owned()
        } else {
            path.to_owned()
        },
        line,
        reason: reason.to_string(),
    }
}

fn join(path: &str, key: &str) -> String {
    match path {
        "" => key.to_owned(),
        path => format!("{path}.{key}"),
    }
}

/// The known key that resembles this one most; else the place where a key of exactly this name belongs.
fn nearest(key: &str, known: &[&str]) -> Option<String> {
    let written = key.to_ascii_lowercase();
    let limit = (key.chars().count() / 3).clamp(1, 4);
    known
        .iter()
        .map(|known| (distance(&written, &known.to_ascii_lowercase()), *known))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known.to_owned())
        .or_else(|| elsewhere(&written))
}

fn elsewhere(written: &str) -> Option<String> {
    SCHEMA.iter().find_map(|(place, keys)| {
        let key = keys.iter().find(|key| key.eq_ignore_ascii_case(written))?;
        Some(join(place, key))
    })
}

/// How many letters have to be put in, left out or replaced, or swapped with their neighbour.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<_>, Vec<_>) = (one.chars().collect(), other.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for i in 1..=one.len() {
        let mut next = vec![i; other.len() + 1];
        for j in 1..=other.len() {
            let replaced = row[j - 1] + usize::from(one[i - 1] != other[j - 1]);
            next[j] = replaced.min(row[j] + 1).min(next[j - 1] + 1);
            let swapped = i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1];
            if swapped {
                next[j] = next[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut row, next);
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key_is_the_one_that_was_meant() {
        #[track_caller]
        fn check(key: &str, place: &str, expected: Option<&str>) {
            let (_, known) = SCHEMA.iter().find(|(known, _)| *known == place).unwrap();
            assert_eq!(nearest(key, known).as_deref(), expected, "{key}");
        }
        check("migStrategie", "flags", Some("migStrategy"));
        check("replcias", "sharing.mps.resources[]", Some("replicas"));
        check("Replicas", "sharing.mps.resources[]", Some("replicas"));
        check("migs", "resources", Some("mig"));
        check(
            "renameByDefault",
            "sharing.mps.resources[]",
            Some("sharing.timeSlicing.renameByDefault"),
        );
        check("passDeviceSpecs", "flags", Some("flags.plugin.passDeviceSpecs"));
        check("foo", "", None);
        check("", "", None);
    }
}
