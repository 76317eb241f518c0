//! What a TOML text means, by another way than the crate's own.

use serde_json::Value;
use toml_edit::{DocumentMut, Item, Value as Toml};

/// The text as JSON; what JSON has no type for is text.
pub(crate) fn toml(text: &str) -> Value {
    meaning(text.parse::<DocumentMut>().expect("valid TOML").as_item())
}

/// Without tables that hold nothing.
pub(crate) fn without_empty_tables(value: &Value) -> Value {
    match value {
        Value::Object(table) => {
            let kept = table
                .iter()
                .map(|(key, value)| (key.clone(), without_empty_tables(value)));
            Value::Object(
                kept.filter(|(_, value)| value.as_object().is_none_or(|table| !table.is_empty()))
                    .collect(),
            )
        }
        other => other.clone(),
    }
}

fn meaning(of: &Item) -> Value {
    match of {
        Item::Table(table) => table
            .iter()
            .map(|(key, value)| (key.to_owned(), meaning(value)))
            .collect(),
        Item::ArrayOfTables(tables) => tables
            .iter()
            .map(|table| meaning(&Item::Table(table.clone())))
            .collect(),
        Item::Value(Toml::Array(items)) => items.iter().map(|value| meaning(&value.clone().into())).collect(),
        Item::Value(Toml::InlineTable(table)) => table
            .iter()
            .map(|(key, value)| (key.to_owned(), meaning(&value.clone().into())))
            .collect(),
        Item::Value(Toml::String(text)) => text.value().clone().into(),
        Item::Value(Toml::Boolean(flag)) => (*flag.value()).into(),
        Item::Value(value) => {
            let mut value = value.clone();
            value.decor_mut().clear();
            value.to_string().into()
        }
        Item::None => Value::Null,
    }
}
