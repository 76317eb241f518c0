//! New TOML text.

use crate::value::{Table, Value};

/// A key, bare where TOML allows it.
pub(crate) fn key(key: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if !key.is_empty() && key.bytes().all(bare) {
        key.to_owned()
    } else {
        string(key)
    }
}

/// A value on one line.
pub(crate) fn inline(value: &Value) -> String {
    match value {
        Value::Null => string(""), // TOML has none; nothing here makes one
        Value::Bool(flag) => flag.to_string(),
        Value::Number(text) | Value::Datetime(text) => text.clone(),
        Value::String(text) => string(text),
        Value::Array(items) => format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", ")),
        Value::Table(table) if table.is_empty() => "{}".to_owned(),
        Value::Table(table) => {
            let members: Vec<String> = table
                .iter()
                .map(|(name, value)| format!("{} = {}", key(name), inline(value)))
                .collect();
            format!("{{ {} }}", members.join(", "))
        }
    }
}

/// How the lines of a new table are indented.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Indent {
    pub(crate) header: String,
    /// What keys have more than their header.
    pub(crate) keys: String,
    /// What the header of a table inside has more.
    pub(crate) nested: String,
}

/// The lines of a table with its header: its keys, then the tables inside. `path` is the header's text.
pub(crate) fn block(path: &str, table: &Table, indent: &Indent) -> Vec<String> {
    let (tables, leaves): (Vec<_>, Vec<_>) = table.iter().partition(|(_, value)| matches!(value, Value::Table(_)));
    let mut lines = Vec::new();
    let has_header = !leaves.is_empty() || tables.is_empty();
    if has_header {
        lines.push(format!("{}[{path}]", indent.header));
        let keys = format!("{}{}", indent.header, indent.keys);
        lines.extend(
            leaves
                .iter()
                .map(|(name, value)| format!("{keys}{} = {}", key(name), inline(value))),
        );
    }
    for (name, value) in tables {
        if let Value::Table(inner) = value {
            let nested = if has_header { indent.nested.as_str() } else { "" };
            let deeper = Indent {
                header: format!("{}{nested}", indent.header),
                ..indent.clone()
            };
            lines.extend(block(&format!("{path}.{}", key(name)), inner, &deeper));
        }
    }
    lines
}

/// The lines of a table at `path` as the whole of a file writes them.
pub(crate) fn whole(path: &[&str], table: &Table) -> Vec<String> {
    let indent = Indent {
        header: String::new(),
        keys: "  ".to_owned(),
        nested: "  ".to_owned(),
    };
    block(
        &path.iter().map(|name| key(name)).collect::<Vec<_>>().join("."),
        table,
        &indent,
    )
}

/// All leaves of a table with their dotted keys.
pub(crate) fn dotted(prefix: &str, table: &Table) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, value) in table {
        let path = format!("{prefix}.{}", key(name));
        match value {
            Value::Table(inner) if !inner.is_empty() => lines.extend(dotted(&path, inner)),
            value => lines.push(format!("{path} = {}", inline(value))),
        }
    }
    lines
}

/// A float as TOML writes it, with a dot, an exponent or a name.
pub(crate) fn float(number: f64) -> String {
    if number.is_nan() {
        "nan".to_owned()
    } else {
        format!("{number:?}")
    }
}

fn string(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            control if control.is_control() => {
                let code = format!("\\u{:04X}", u32::from(control));
                quoted.push_str(&code);
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}
