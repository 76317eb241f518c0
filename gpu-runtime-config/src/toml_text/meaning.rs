//! What a TOML text means, for those who need not know where it says so: at about half the cost of a text that can be edited.

use toml::de::{DeTable, DeValue};

use super::write;
use crate::value::{Table, Value};

pub(super) fn table(table: &DeTable<'_>) -> Table {
    let members = table.iter();
    members
        .map(|(key, member)| (key.get_ref().to_string(), value(member.get_ref())))
        .collect()
}

fn value(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::string(text.as_ref()),
        DeValue::Integer(number) => Value::Number(
            i64::from_str_radix(number.as_str(), number.radix())
                .map_or_else(|_| number.as_str().to_owned(), |number| number.to_string()),
        ),
        DeValue::Float(number) => Value::Number(write::float(number.as_str().parse().unwrap_or(f64::NAN))),
        DeValue::Boolean(flag) => Value::Bool(*flag),
        DeValue::Datetime(date) => Value::Datetime(date.to_string()),
        DeValue::Array(items) => Value::Array(items.iter().map(|item| self::value(item.get_ref())).collect()),
        DeValue::Table(members) => Value::Table(table(members)),
    }
}
