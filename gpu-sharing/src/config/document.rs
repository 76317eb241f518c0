//! YAML or JSON as a tree whose nodes know their lines.

use std::fmt;

use serde::{Deserialize, Deserializer, de};
use serde_saphyr::{DuplicateKeyPolicy, Spanned};

use super::{Error, Reading, Result};

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

impl Node {
    pub(crate) fn parse(text: &str, reading: Reading) -> Result<Self> {
        let options = serde_saphyr::options! {
            duplicate_keys: match reading {
                Reading::Strict => DuplicateKeyPolicy::Error,
                Reading::Lenient => DuplicateKeyPolicy::LastWins,
            },
            with_snippet: false,
        };
        let root: Option<Self> = serde_saphyr::from_str_with_options(text, options).map_err(|error| Error::Syntax {
            message: error.to_string(),
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
