//! Parts of a JSON configuration, made where they are missing.

use serde_json::{Map, Value};

use super::{Error, Result};

/// The object at a dotted key; what is missing or null on the way is made.
pub(super) fn object<'v>(value: &'v mut Value, key: &str) -> Result<&'v mut Map<String, Value>> {
    let value = at(value, key, || Value::Object(Map::new()))?;
    value.as_object_mut().ok_or_else(|| malformed(key, "an object"))
}

/// The list at a dotted key; what is missing or null on the way is made.
pub(super) fn list<'v>(value: &'v mut Value, key: &str) -> Result<&'v mut Vec<Value>> {
    let value = at(value, key, || Value::Array(Vec::new()))?;
    value.as_array_mut().ok_or_else(|| malformed(key, "a list"))
}

fn at<'v>(mut value: &'v mut Value, key: &str, last: fn() -> Value) -> Result<&'v mut Value> {
    let mut names = key.split('.').peekable();
    while let Some(name) = names.next() {
        let object = value.as_object_mut().ok_or_else(|| malformed(key, "in an object"))?;
        let entry = object.entry(name).or_insert(Value::Null);
        if entry.is_null() {
            *entry = if names.peek().is_some() {
                Value::Object(Map::new())
            } else {
                last()
            };
        }
        value = entry;
    }
    Ok(value)
}

pub(super) fn malformed(key: &str, expected: &'static str) -> Error {
    Error::Malformed {
        key: key.to_owned(),
        expected,
    }
}
