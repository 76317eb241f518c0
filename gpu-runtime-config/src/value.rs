//! What a configuration file means, without how it is written.

use std::collections::BTreeMap;

/// The keys of a table, in alphabetical order.
pub(crate) type Table = BTreeMap<String, Value>;

/// A TOML or JSON value, for comparing what two files mean.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    /// As canonical text: big numbers and NaN then compare without surprises.
    Number(String),
    String(String),
    /// TOML only.
    Datetime(String),
    Array(Vec<Value>),
    Table(Table),
}

impl Value {
    pub(crate) fn string(text: impl Into<String>) -> Value {
        Value::String(text.into())
    }

    pub(crate) fn strings<T: Into<String>>(items: impl IntoIterator<Item = T>) -> Value {
        Value::Array(items.into_iter().map(Value::string).collect())
    }

    /// `value` wrapped in one table for each key of `path`.
    pub(crate) fn nested(path: &[&str], value: Value) -> Value {
        path.iter().rev().fold(value, |inner, key| {
            Value::Table(Table::from([((*key).to_owned(), inner)]))
        })
    }

    pub(crate) fn get(&self, path: &[&str]) -> Option<&Value> {
        path.iter().try_fold(self, |value, key| value.as_table()?.get(*key))
    }

    pub(crate) fn as_table(&self) -> Option<&Table> {
        match self {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }

    pub(crate) fn as_array(&self) -> Option<&[Value]> {
        match self {
            Value::Array(items) => Some(items),
            _ => None,
        }
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// What Go calls empty: a later file does not override with it where containerd 2 merges.
    pub(crate) fn is_zero(&self) -> bool {
        match self {
            Value::Null | Value::Bool(false) => true,
            Value::Bool(true) | Value::Datetime(_) => false,
            Value::Number(number) => number.parse::<f64>().is_ok_and(|number| number == 0.0),
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Table(table) => table.is_empty(),
        }
    }

    /// How a message calls this kind of value.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Datetime(_) => "a date",
            Value::Array(_) => "an array",
            Value::Table(_) => "a table",
        }
    }

    /// Puts `other` over this value: tables key by key, everything else as a whole.
    pub(crate) fn overlay(&mut self, other: &Value) {
        match (self, other) {
            (Value::Table(under), Value::Table(over)) => {
                for (key, value) in over {
                    match under.get_mut(key) {
                        Some(existing) => existing.overlay(value),
                        None => drop(under.insert(key.clone(), value.clone())),
                    }
                }
            }
            (under, over) => *under = over.clone(),
        }
    }

    /// The part of this value that `present` does not hold already; `None` if it holds all of it.
    pub(crate) fn missing_from(&self, present: Option<&Value>) -> Option<Value> {
        match (self, present) {
            (Value::Table(wanted), Some(Value::Table(present))) => {
                let missing: Table = wanted
                    .iter()
                    .filter_map(|(key, value)| Some((key.clone(), value.missing_from(present.get(key))?)))
                    .collect();
                (!missing.is_empty()).then_some(Value::Table(missing))
            }
            (wanted, Some(present)) if wanted == present => None,
            (wanted, _) => Some(wanted.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_from_keeps_only_what_differs() {
        let wanted = Value::Table(Table::from([
            ("same".to_owned(), Value::Bool(true)),
            ("inner".to_owned(), Value::nested(&["a"], Value::string("new"))),
        ]));
        let mut present = Value::nested(&["inner", "a"], Value::string("old"));
        present.overlay(&Value::nested(&["same"], Value::Bool(true)));
        assert_eq!(
            wanted.missing_from(Some(&present)),
            Some(Value::nested(&["inner", "a"], Value::string("new")))
        );
        assert_eq!(wanted.missing_from(Some(&wanted)), None);
    }

    #[test]
    fn zero_is_what_go_calls_empty() {
        for zero in [
            Value::Bool(false),
            Value::Number("0".into()),
            Value::string(""),
            Value::Array(vec![]),
        ] {
            assert!(zero.is_zero(), "{zero:?}");
        }
        assert!(!Value::Number("1".into()).is_zero());
    }
}
