//! New JSON text.

use crate::value::Value;

/// On one line, with `space` behind colons and commas.
pub(super) fn compact(value: &Value, space: &str) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(text) => text.clone(),
        Value::String(text) | Value::Datetime(text) => string(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| compact(item, space)).collect();
            format!("[{}]", items.join(&format!(",{space}")))
        }
        Value::Table(table) => {
            let members: Vec<String> = table
                .iter()
                .map(|(key, value)| format!("{}:{space}{}", string(key), compact(value, space)))
                .collect();
            format!("{{{}}}", members.join(&format!(",{space}")))
        }
    }
}

/// Objects with one member a line; `outer` is the indentation of the line it begins on.
pub(super) fn pretty(value: &Value, outer: &str, unit: &str, newline: &str) -> String {
    match value {
        Value::Table(table) if !table.is_empty() => {
            let inner = format!("{outer}{unit}");
            let members: Vec<String> = table
                .iter()
                .map(|(key, value)| format!("{inner}{}: {}", string(key), pretty(value, &inner, unit, newline)))
                .collect();
            format!("{{{newline}{}{newline}{outer}}}", members.join(&format!(",{newline}")))
        }
        value => compact(value, " "),
    }
}

pub(super) fn string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
