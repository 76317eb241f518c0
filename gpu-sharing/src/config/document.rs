//! YAML or JSON as a tree whose nodes know their lines.

use std::fmt;

use serde::{Deserialize, Deserializer, de};
use serde_saphyr::{DuplicateKeyPolicy, Error as Fault, Options, Spanned};

use super::{Error, Reading, Result};

/// More than any file has; a `ConfigMap` holds 1 MiB.
const LONGEST: usize = 1 << 20;

/// More values than any file has, which are read in well under a second.
const MOST_NODES: usize = 50_000;

/// More than any file repeats by its aliases. A few lines can stand for more than a machine holds.
const MOST_REPEATED: usize = 20_000;

/// A value and where it begins.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) value: Value,
    /// From 1; 0 for an empty document.
    pub(crate) line: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    /// In the order of the text, each key with its line.
    Map(Vec<(String, u64, Node)>),
}

const TOO_MUCH: &str = "it is too large or too deep, or its aliases repeat too much";

impl Node {
    pub(crate) fn parse(text: &str, reading: Reading) -> Result<Self> {
        if text.len() > LONGEST {
            let message = "it is longer than 1 MiB".to_owned();
            return Err(Error::Syntax { message });
        }
        let root: Option<Self> =
            serde_saphyr::from_str_with_options(text, options(reading)).map_err(|error| Error::Syntax {
                message: located(&error),
            })?;
        Ok(root.unwrap_or(Self {
            value: Value::Null,
            line: 0,
        }))
    }

    /// A scalar as text; `None` for a list or a map.
    pub(crate) fn scalar(&self) -> Option<String> {
        match &self.value {
            Value::Null => Some(String::new()),
            Value::Bool(value) => Some(value.to_string()),
            Value::Integer(value) => Some(value.to_string()),
            Value::Float(value) => Some(value.to_string()),
            Value::Text(value) => Some(value.clone()),
            Value::List(_) | Value::Map(_) => None,
        }
    }

    /// Go's `nil`: written as `null`, or as nothing at all.
    pub(crate) fn is_null(&self) -> bool {
        self.value == Value::Null
    }
}

fn options(reading: Reading) -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_nodes: MOST_NODES,
            max_events: 3 * MOST_NODES,
            max_recorded_anchor_events: MOST_NODES,
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MOST_REPEATED,
        },
        duplicate_keys: match reading {
            Reading::Strict => DuplicateKeyPolicy::Error,
            Reading::Lenient => DuplicateKeyPolicy::LastWins,
        },
        with_snippet: false,
    }
}

/// What is wrong, after the line.
fn located(fault: &Fault) -> String {
    match fault.location().map(|place| place.line()).filter(|line| *line > 0) {
        Some(line) => format!("line {line}: {}", words(fault)),
        None => words(fault),
    }
}

/// What is wrong, for whoever wrote the text: the library's own words advise on its settings and on types of Rust.
fn words(fault: &Fault) -> String {
    let text = match fault.without_snippet() {
        Fault::AliasError { error, .. } => return words(error),
        Fault::ExternalMessage { msg, .. } if msg.contains("limit") => TOO_MUCH,
        // The scanner's, on YAML alone.
        Fault::ExternalMessage { msg, .. } => return msg.clone(),
        Fault::DuplicateMappingKey { key: Some(key), .. } => return format!("the key `{key}` is there twice"),
        Fault::DuplicateMappingKey { key: None, .. } => "a key is there twice",
        Fault::NonFiniteFloat { value, .. } => return format!("`{value}` is no finite number"),
        Fault::UnsupportedTag { tag, .. } => return format!("the tag `{tag}` is not known"),
        Fault::MultipleDocuments { .. } => "there is more than one document",
        Fault::Eof { .. } => "it ends too early",
        Fault::UnknownAnchor { .. } => "an alias (`*name`) names no anchor (`&name`) before it",
        Fault::RecursiveReferencesRequireWeakTypes { .. } => "an alias is a part of what it stands for",
        Fault::MergeValueNotMapOrSeqOfMaps { .. } => "what `<<` merges is neither keys with values nor a list of such",
        Fault::InvalidBinaryBase64 { .. } | Fault::BinaryNotUtf8 { .. } => "what is tagged `!!binary` is no text",
        Fault::Budget { .. }
        | Fault::AliasReplayCounterOverflow { .. }
        | Fault::AliasReplayLimitExceeded { .. }
        | Fault::AliasExpansionLimitExceeded { .. }
        | Fault::AliasReplayStackDepthExceeded { .. } => TOO_MUCH,
        _ => "a key or a value cannot be understood",
    };
    text.to_owned()
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let node = Spanned::<Value>::deserialize(deserializer)?;
        Ok(Self {
            value: node.value,
            line: node.referenced.line(),
        })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Visitor)
    }
}

struct Visitor;

impl<'de> de::Visitor<'de> for Visitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Integer(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Integer(value.into()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Value, E> {
        Ok(Value::Integer(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = access.next_element()? {
            nodes.push(node);
        }
        Ok(Value::List(nodes))
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut nodes = Vec::new();
        while let Some((key, node)) = access.next_entry::<Spanned<String>, Node>()? {
            nodes.push((key.value, key.referenced.line(), node));
        }
        Ok(Value::Map(nodes))
    }
}
