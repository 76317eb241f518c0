use serde::Serialize;

use super::{
    Error, Flags, Imex, Resources, Result, Warning, WrittenSharing,
    document::{Node, Value},
    key::{Field, Walk},
};

/// What to do with a key that nothing reads, or that is there twice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Reading {
    /// It is an error.
    #[default]
    Strict,
    /// It is passed over with a warning, as the vendor's programs do without; of two the last counts.
    Lenient,
}

/// A configuration file, version 1, as written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ConfigFile {
    /// Settings that can also be flags or environment variables.
    pub flags: Flags,
    /// How devices are called.
    #[serde(skip_serializing_if = "Resources::is_empty")]
    pub resources: Resources,
    /// How devices are shared.
    pub sharing: WrittenSharing,
    /// Channels for memory shared between nodes.
    pub imex: Imex,
}

impl ConfigFile {
    /// Reads YAML or JSON. An empty text is a file in which nothing is set.
    ///
    /// Keys are found whatever their case, but for those beneath `sharing` and in lists, as with the vendor's parser.
    ///
    /// # Errors
    /// For a text that is no such file, with the key and its line.
    pub fn parse(text: &str, reading: Reading) -> Result<(Self, Vec<Warning>)> {
        let root = Node::parse(text, reading)?;
        let mut walk = Walk::new(reading);
        let file = match walk.map(&root, "", "")? {
            Some(map) => {
                if let Some(version) = map.get("version") {
                    check_version(&version)?;
                }
                let mut section = |key: &'static str| match map.written(key) {
                    Some(field) => walk.map(field.node, key, &field.path),
                    None => Ok(None),
                };
                let (flags, resources) = (section("flags")?, section("resources")?);
                let (sharing, imex) = (section("sharing")?, section("imex")?);
                Self {
                    flags: flags
                        .map(|map| Flags::read(&map, &mut walk))
                        .transpose()?
                        .unwrap_or_default(),
                    resources: resources
                        .map(|map| Resources::read(&map, &mut walk))
                        .transpose()?
                        .unwrap_or_default(),
                    sharing: sharing
                        .map(|map| WrittenSharing::read(&map, &mut walk))
                        .transpose()?
                        .unwrap_or_default(),
                    imex: match imex {
                        Some(map) => Imex {
                            channel_ids: map
                                .get("channelIDs")
                                .map(|field| channels(&field))
                                .transpose()?
                                .unwrap_or_default(),
                            required: map.bool("required")?.unwrap_or(false),
                        },
                        None => Imex::default(),
                    },
                }
            }
            None => Self::default(),
        };
        Ok((file, walk.warnings))
    }
}

fn check_version(field: &Field<'_>) -> Result<()> {
    match field.text()?.as_str() {
        "" | "v1" => Ok(()),
        version => Err(Error::Version {
            version: version.to_owned(),
        }),
    }
}

fn channels(field: &Field<'_>) -> Result<Vec<u32>> {
    let number = |item: &Field<'_>| match item.node.value {
        Value::Integer(number) => Ok(number),
        _ => Err(item.error("expected a whole number")),
    };
    let numbers = field.list()?.iter().map(number).collect::<Result<Vec<_>>>()?;
    Imex::channels(&numbers).map_err(|reason| field.error(reason))
}
