//! Changes of a document's meaning, and the check that a text edit did exactly those.

use std::path::Path;

use crate::{
    error::{Error, Result},
    json_text::JsonText,
    splice::Splice,
    toml_text::{self, TomlText},
    value::{Table, Value},
};

/// One change of meaning.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Op {
    /// Sets these keys; tables are merged into existing ones.
    Merge(Table),
    /// Takes a key away, with all below it. Nothing if it is not there.
    Remove(Vec<String>),
    /// Adds to the end of an array, which is made if it is not there.
    Append(Vec<String>, Vec<Value>),
    /// Takes elements out of an array.
    Take(Vec<String>, Vec<Value>),
}

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    Toml,
    Json,
}

/// A text in which changes of meaning can be found a place.
pub(crate) trait Editable {
    /// Adds to the array at `path`, or tells what the array there is to be.
    fn append(&self, path: &[String], values: &[Value], splices: &mut Vec<Splice>) -> Result<Option<Vec<Value>>>;
    /// Takes elements out of the array at `path`.
    fn take(&self, path: &[String], values: &[Value], splices: &mut Vec<Splice>) -> Result<()>;
    /// Takes keys away.
    fn remove_keys(&self, paths: &[&[String]], splices: &mut Vec<Splice>);
}

/// Where a text has to be changed, and what is to be added to it besides.
pub(crate) fn places(text: &impl Editable, ops: &[Op]) -> Result<(Table, Vec<Splice>)> {
    let mut additions = Value::Table(Table::new());
    let mut splices = Vec::new();
    let mut removed: Vec<&[String]> = Vec::new();
    for op in ops {
        match op {
            Op::Merge(table) => additions.overlay(&Value::Table(table.clone())),
            Op::Remove(path) => removed.push(path),
            Op::Append(path, values) => {
                if let Some(list) = text.append(path, values, &mut splices)? {
                    let keys: Vec<&str> = path.iter().map(String::as_str).collect();
                    additions.overlay(&Value::nested(&keys, Value::Array(list)));
                }
            }
            Op::Take(path, values) => text.take(path, values, &mut splices)?,
        }
    }
    text.remove_keys(&removed, &mut splices);
    match additions {
        Value::Table(additions) => Ok((additions, splices)),
        // A table stays one, whatever is laid over it.
        _ => Ok((Table::new(), splices)),
    }
}

/// What `text` means; an empty text is an empty table.
pub(crate) fn parse(format: Format, path: &Path, text: &str) -> Result<Value> {
    match format {
        Format::Toml => Ok(Value::Table(toml_text::meaning(path, text)?)),
        Format::Json => Ok(JsonText::parse(path, text)?.to_value()),
    }
}

/// `text` with `ops` made and nothing else changed, which is checked by parsing the result.
///
/// # Errors
/// [`Error::Syntax`] and the like on a text that cannot be read; [`Error::Unfaithful`] if the check fails.
pub(crate) fn edit(format: Format, path: &Path, text: &str, ops: &[Op]) -> Result<String> {
    edit_and_parse(format, path, text, ops).map(|(text, _)| text)
}

/// As [`edit`], with what the new text means.
pub(crate) fn edit_and_parse(format: Format, path: &Path, text: &str, ops: &[Op]) -> Result<(String, Value)> {
    match format {
        Format::Toml => {
            let document = TomlText::parse(path, text)?;
            edit_parsed(&document, Value::Table(document.to_table()), ops)
        }
        Format::Json => {
            let document = JsonText::parse(path, text)?;
            check(format, path, document.to_value(), document.edit(ops)?, ops)
        }
    }
}

/// The same of a text that was parsed before, with what it means.
pub(crate) fn edit_parsed(document: &TomlText<'_>, meaning: Value, ops: &[Op]) -> Result<(String, Value)> {
    check(Format::Toml, document.path(), meaning, document.edit(ops)?, ops)
}

/// Whether a text means what `before` did with the changes made.
fn check(format: Format, path: &Path, before: Value, text: String, ops: &[Op]) -> Result<(String, Value)> {
    let mut expected = before;
    for op in ops {
        apply(&mut expected, op);
    }
    let unfaithful = |key| Error::Unfaithful {
        path: path.to_owned(),
        key,
    };
    let found = parse(format, path, &text).map_err(|error| unfaithful(error.to_string()))?;
    match first_difference(&expected, &found, &mut Vec::new()) {
        Some(key) => Err(unfaithful(key)),
        None => Ok((text, found)),
    }
}

/// Makes one change on the meaning alone.
fn apply(value: &mut Value, op: &Op) {
    match op {
        Op::Merge(table) => value.overlay(&Value::Table(table.clone())),
        Op::Remove(path) => {
            if let Some((last, parents)) = path.split_last()
                && let Some(Value::Table(table)) = get_mut(value, parents)
            {
                table.remove(last);
            }
        }
        Op::Append(path, items) => {
            if let Some(Value::Array(existing)) = get_mut(value, path) {
                existing.extend(items.iter().cloned());
            } else {
                let keys: Vec<&str> = path.iter().map(String::as_str).collect();
                value.overlay(&Value::nested(&keys, Value::Array(items.clone())));
            }
        }
        Op::Take(path, items) => {
            if let Some(Value::Array(existing)) = get_mut(value, path) {
                existing.retain(|item| !items.contains(item));
            }
        }
    }
}

fn get_mut<'v>(value: &'v mut Value, path: &[String]) -> Option<&'v mut Value> {
    path.iter().try_fold(value, |value, key| match value {
        Value::Table(table) => table.get_mut(key),
        _ => None,
    })
}

/// The first key at which two values differ. Tables left empty by a removal are as good as none.
fn first_difference(expected: &Value, found: &Value, path: &mut Vec<String>) -> Option<String> {
    let (Value::Table(expected), Value::Table(found)) = (expected, found) else {
        return (expected != found).then(|| path.join("."));
    };
    let empty = Value::Table(Table::new());
    let only_found = found.keys().filter(|key| !expected.contains_key(*key));
    expected.keys().chain(only_found).find_map(|key| {
        path.push(key.clone());
        // A table on one side and nothing on the other: every key of it differs, if it has any.
        let difference = match (expected.get(key), found.get(key)) {
            (Some(left), Some(right)) => first_difference(left, right, path),
            (Some(left @ Value::Table(_)), None) => first_difference(left, &empty, path),
            (None, Some(right @ Value::Table(_))) => first_difference(&empty, right, path),
            _ => Some(path.join(".")),
        };
        path.pop();
        difference
    })
}
