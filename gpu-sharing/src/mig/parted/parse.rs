use std::collections::BTreeMap;

use super::{Configs, DeviceFilter, Devices, Spec};
use crate::{
    config::{
        Reading,
        document::{Node, Value},
    },
    mig::Profile,
};

/// The most instances of one profile that a file may ask of one GPU: more than any GPU can have.
const MOST: i128 = 1000;

/// Why a file is no file of MIG configurations; the vendor's words where it has any.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is neither YAML nor JSON, or holds one key twice.
    #[error("it is not YAML: {message}")]
    Syntax {
        /// What the parser said, with the place.
        message: String,
    },
    /// A version that is not `v1`.
    #[error("unknown version: {version}")]
    Version {
        /// The one that is written; empty where none is.
        version: String,
    },
    /// A key that nothing reads.
    #[error("`{key}` in line {line}: unexpected field")]
    UnexpectedField {
        /// The key from the top.
        key: String,
        /// Its line, from 1.
        line: u64,
    },
    /// A key that has to be there.
    #[error("`{key}` in line {line}: missing required field")]
    MissingField {
        /// The key from the top.
        key: String,
        /// The line of what lacks it.
        line: u64,
    },
    /// A value that its key does not take.
    #[error("`{key}` in line {line}: {reason}")]
    Value {
        /// The key from the top.
        key: String,
        /// Where the value begins, from 1.
        line: u64,
        /// Why not.
        reason: String,
    },
}

type Result<T> = std::result::Result<T, Error>;

impl Configs {
    /// Reads a file's text, YAML or JSON.
    ///
    /// # Errors
    /// All that the vendor's programs refuse, and what they pass over in silence: a filter that is no PCI id, a key twice, a
    /// count that no GPU can have.
    pub fn parse(text: &str) -> Result<Self> {
        let root = Node::parse(text, Reading::Strict).map_err(|error| Error::Syntax {
            message: match error {
                crate::config::Error::Syntax { message } => message,
                other => other.to_string(),
            },
        })?;
        let root = At::top(&root);
        let fields = root.map_or_empty()?;
        let version = fields.iter().find(|(key, ..)| *key == "version");
        match version.map(|(_, _, at)| at.node.scalar()) {
            Some(Some(version)) if version == "v1" => {}
            Some(version) => {
                return Err(Error::Version {
                    version: version.unwrap_or_default(),
                });
            }
            None if fields.is_empty() => return Err(Error::Version { version: String::new() }),
            None => return Err(root.missing("version")),
        }
        known(&fields, &["version", "mig-configs"])?;
        let configs = required(&root, &fields, "mig-configs")?;
        let named = configs.map_or_empty()?;
        if named.is_empty() {
            return Err(configs.refuse("at least one configuration is required"));
        }
        let config = |(name, _, at): &(&str, u64, At<'_>)| Ok(((*name).to_owned(), specs(at)?));
        let configs = named.iter().map(config).collect::<Result<BTreeMap<_, _>>>()?;
        Ok(Self { configs })
    }
}

fn specs(at: &At<'_>) -> Result<Vec<Spec>> {
    let items = at.list("a list of what GPUs are to be")?;
    if items.is_empty() {
        return Err(at.refuse("at least one entry is required"));
    }
    items.iter().map(spec).collect()
}

fn spec(at: &At<'_>) -> Result<Spec> {
    let fields = at.map("a map")?;
    known(&fields, &["device-filter", "devices", "mig-enabled", "mig-devices"])?;
    let field = |name: &str| fields.iter().find(|(key, ..)| *key == name).map(|(_, _, at)| at);
    let enabled = required(at, &fields, "mig-enabled")?;
    let Value::Bool(mig_enabled) = enabled.node.value else {
        return Err(enabled.refuse("expected true or false"));
    };
    let devices = devices(&required(at, &fields, "devices")?)?;
    let device_filter = field("device-filter").map_or(Ok(Vec::new()), filter)?;
    let mig_devices = match field("mig-devices") {
        None if mig_enabled => return Err(at.missing("mig-devices")),
        None => BTreeMap::new(),
        Some(given) if !mig_enabled => {
            let counts = given.map_or_empty()?;
            if !counts.is_empty() {
                return Err(given.refuse("MIG devices included when `mig-enabled` is false"));
            }
            BTreeMap::new()
        }
        Some(given) => counts(given)?,
    };
    Ok(Spec {
        device_filter,
        devices,
        mig_enabled,
        mig_devices,
    })
}

fn devices(at: &At<'_>) -> Result<Devices> {
    match &at.node.value {
        Value::Text(text) if text == "all" => Ok(Devices::All),
        Value::List(_) => {
            let index = |at: &At<'_>| match at.node.value {
                Value::Integer(index) => u32::try_from(index).map_err(|_| at.refuse("expected an index from 0 on")),
                _ => Err(at.refuse("expected an index from 0 on")),
            };
            let mut indices = at.list("")?.iter().map(index).collect::<Result<Vec<_>>>()?;
            if indices.is_empty() {
                return Err(at.refuse("at least one index is required"));
            }
            indices.sort_unstable();
            indices.dedup();
            Ok(Devices::Indices(indices))
        }
        Value::Integer(index) => Err(at.refuse(format!("expected `all` or a list of indices, as in `[{index}]`"))),
        _ => Err(at.refuse("expected `all` or a list of indices")),
    }
}

fn filter(at: &At<'_>) -> Result<Vec<DeviceFilter>> {
    let one = |at: &At<'_>| {
        // Unquoted, a PCI id is a number.
        let text = match &at.node.value {
            Value::Text(text) => text.clone(),
            Value::Integer(number) if (0..=i128::from(u32::MAX)).contains(number) => format!("{number:#010x}"),
            _ => return Err(at.refuse("expected a PCI id, as `0x20B010DE`")),
        };
        text.parse().map_err(|error| at.refuse(format!("{error}")))
    };
    match &at.node.value {
        Value::List(_) => at.list("")?.iter().map(one).collect(),
        // As a template leaves it that has none to give; the vendor's program takes it so.
        Value::Null => Ok(Vec::new()),
        Value::Text(text) if text.is_empty() => Ok(Vec::new()),
        _ => Ok(vec![one(at)?]),
    }
}

fn counts(at: &At<'_>) -> Result<BTreeMap<Profile, u32>> {
    let mut counts = BTreeMap::new();
    for (name, line, value) in at.map("a map of profiles and how many, or `{}` for none")? {
        let profile: Profile = name.parse().map_err(|error| Error::Value {
            key: at.key.clone(),
            line,
            reason: format!("{error}"),
        })?;
        let count = match value.node.value {
            Value::Integer(count) if count < 0 => return Err(value.refuse("a count cannot be negative")),
            Value::Integer(count) if count > MOST => {
                return Err(value.refuse(format!("no GPU can have {count} of a profile")));
            }
            Value::Integer(count) => u32::try_from(count).unwrap_or(u32::MAX),
            _ => return Err(value.refuse("expected a whole number")),
        };
        if counts.insert(profile, count).is_some() {
            return Err(value.refuse("the profile is there twice, by two names"));
        }
    }
    if !counts.is_empty() && counts.values().all(|&count| count == 0) {
        return Err(at.refuse("all counts for all MIG devices are 0"));
    }
    Ok(counts)
}

fn known(fields: &[(&str, u64, At<'_>)], names: &[&str]) -> Result<()> {
    match fields.iter().find(|(key, ..)| !names.contains(key)) {
        Some((_, line, at)) => Err(Error::UnexpectedField {
            key: at.key.clone(),
            line: *line,
        }),
        None => Ok(()),
    }
}

fn required<'a>(parent: &At<'_>, fields: &[(&str, u64, At<'a>)], name: &str) -> Result<At<'a>> {
    let found = fields.iter().find(|(key, ..)| *key == name);
    found.map(|(_, _, at)| at.clone()).ok_or_else(|| parent.missing(name))
}

/// A value and where it is.
#[derive(Clone)]
pub(super) struct At<'a> {
    pub(super) node: &'a Node,
    pub(super) key: String,
}

impl<'a> At<'a> {
    pub(super) fn top(node: &'a Node) -> Self {
        Self {
            node,
            key: String::new(),
        }
    }

    fn key(&self, name: &str) -> String {
        match self.key.as_str() {
            "" => name.to_owned(),
            key => format!("{key}.{name}"),
        }
    }

    pub(super) fn refuse(&self, reason: impl Into<String>) -> Error {
        Error::Value {
            key: self.key.clone(),
            line: self.node.line,
            reason: reason.into(),
        }
    }

    fn missing(&self, name: &str) -> Error {
        Error::MissingField {
            key: self.key(name),
            line: self.node.line,
        }
    }

    pub(super) fn map(&self, expected: &str) -> Result<Vec<(&'a str, u64, Self)>> {
        let Value::Map(fields) = &self.node.value else {
            return Err(self.refuse(format!("expected {expected}")));
        };
        let field = |(key, line, node): &'a (String, u64, Node)| {
            let at = Self {
                node,
                key: self.key(key),
            };
            (key.as_str(), *line, at)
        };
        Ok(fields.iter().map(field).collect())
    }

    pub(super) fn map_or_empty(&self) -> Result<Vec<(&'a str, u64, Self)>> {
        if self.node.is_null() {
            return Ok(Vec::new());
        }
        self.map("a map")
    }

    pub(super) fn list(&self, expected: &str) -> Result<Vec<Self>> {
        let Value::List(items) = &self.node.value else {
            return Err(self.refuse(format!("expected {expected}")));
        };
        let item = |(at, node): (usize, &'a Node)| Self {
            node,
            key: format!("{}[{at}]", self.key),
        };
        Ok(items.iter().enumerate().map(item).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "version: v1\nmig-configs:\n  x:\n  - ";

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let found = Configs::parse(text).map(|_| "accepted".to_owned());
        assert_eq!(found.unwrap_or_else(|error| error.to_string()), expected, "{text}");
    }

    #[test]
    fn what_is_no_file_of_configurations_is_refused_with_line_and_reason() {
        check("", "unknown version: ");
        check("{}", "unknown version: ");
        check("version: v9\nmig-configs: {}", "unknown version: v9");
        check("mig-configs: {x: []}", "`version` in line 1: missing required field");
        check(
            "version: v1\nfoo: 1\nmig-configs: {x: []}",
            "`foo` in line 2: unexpected field",
        );
        check("version: v1", "`mig-configs` in line 1: missing required field");
        check(
            "version: v1\nmig-configs: {}",
            "`mig-configs` in line 2: at least one configuration is required",
        );
        check(
            "version: v1\nmig-configs: {x: []}",
            "`mig-configs.x` in line 2: at least one entry is required",
        );
        check("[1]", "`` in line 1: expected a map");
    }

    #[test]
    fn an_entry_is_complete_and_says_nothing_that_cannot_be() {
        #[track_caller]
        fn entry(fields: &str, expected: &str) {
            check(&format!("{HEAD}{{ {fields} }}"), expected);
        }
        let at = |field: &str, reason: &str| format!("`mig-configs.x[0].{field}` in line 4: {reason}");
        entry("devices: all, mig-enabled: false", "accepted");
        entry("devices: all, mig-enabled: true, mig-devices: {}", "accepted");
        entry(
            "devices: [1, 0], mig-enabled: true, mig-devices: { 1g.10gb: 2, 1g.10gb+me: 0 }",
            "accepted",
        );
        entry(
            "device-filter: '0x20B010DE', devices: all, mig-enabled: false",
            "accepted",
        );
        entry(
            "device-filter: [0x20B010DE, '0x20B010DE:0x134710DE'], devices: all, mig-enabled: false",
            "accepted",
        );
        for none in ["", "''", "[]"] {
            let text = format!("device-filter: {none}, devices: all, mig-enabled: false");
            entry(&text, "accepted");
        }
        entry("mig-enabled: false", &at("devices", "missing required field"));
        entry("devices: all", &at("mig-enabled", "missing required field"));
        entry(
            "devices: all, mig-enabled: true",
            &at("mig-devices", "missing required field"),
        );
        entry(
            "devices: all, mig-enabled: yes please",
            &at("mig-enabled", "expected true or false"),
        );
        entry(
            "devices: all, mig-enabled: false, other: 1",
            &at("other", "unexpected field"),
        );
        entry(
            "devices: some, mig-enabled: false",
            &at("devices", "expected `all` or a list of indices"),
        );
        entry(
            "devices: 7, mig-enabled: false",
            &at("devices", "expected `all` or a list of indices, as in `[7]`"),
        );
        entry(
            "devices: [], mig-enabled: false",
            &at("devices", "at least one index is required"),
        );
        entry(
            "devices: [-1], mig-enabled: false",
            &at("devices[0]", "expected an index from 0 on"),
        );
        entry(
            "devices: all, mig-enabled: false, mig-devices: { 1g.5gb: 1 }",
            &at("mig-devices", "MIG devices included when `mig-enabled` is false"),
        );
        entry(
            "devices: all, mig-enabled: true, mig-devices: { 9z.5gb: 1 }",
            &at(
                "mig-devices",
                "`9z.5gb` is not a MIG profile: the GPU slices must be a number and `g`",
            ),
        );
        entry(
            "devices: all, mig-enabled: true, mig-devices: { 1g.5gb: -1 }",
            &at("mig-devices.1g.5gb", "a count cannot be negative"),
        );
        entry(
            "devices: all, mig-enabled: true, mig-devices: { 1g.5gb: 0, 2g.10gb: 0 }",
            &at("mig-devices", "all counts for all MIG devices are 0"),
        );
        entry(
            "devices: all, mig-enabled: true, mig-devices: { 1g.5gb: 4294967296 }",
            &at("mig-devices.1g.5gb", "no GPU can have 4294967296 of a profile"),
        );
        entry(
            "devices: all, mig-enabled: true, mig-devices: { 1g.5gb: 1.5 }",
            &at("mig-devices.1g.5gb", "expected a whole number"),
        );
        entry(
            "devices: all, mig-enabled: true, mig-devices: { 1g.5gb: 1, 1c.1g.5gb: 1 }",
            &at("mig-devices.1c.1g.5gb", "the profile is there twice, by two names"),
        );
        entry(
            "device-filter: H100, devices: all, mig-enabled: false",
            &at(
                "device-filter",
                "`H100` is no device filter: expected PCI ids in hexadecimal, device before vendor, as `0x20B010DE` or \
                 `0x20B010DE:0x134710DE`",
            ),
        );
    }

    #[test]
    fn aliases_that_multiply_end_in_an_error_and_not_in_memory() {
        let mut text = "version: v1\na0: &a0 [x]\n".to_owned();
        for n in 1..40 {
            let nine = vec![format!("*a{}", n - 1); 9].join(", ");
            text = format!("{text}a{n}: &a{n} [{nine}]\n");
        }
        assert!(matches!(Configs::parse(&text), Err(Error::Syntax { .. })));
        let deep = "[".repeat(100_000);
        assert!(matches!(Configs::parse(&deep), Err(Error::Syntax { .. })));
    }
}
