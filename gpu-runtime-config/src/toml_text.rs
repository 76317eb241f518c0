//! A TOML text that is changed by byte ranges, so that everything else keeps its bytes.
//!
//! `toml_edit`'s own writer would normalise what it rewrites (CRLF, a missing last line ending, a byte order mark), so
//! it serves here as the parser that knows where things are.

use std::{cell::OnceCell, ops::Range, path::Path};

use toml::de::DeTable;
use toml_edit::{Document, InlineTable, Item, Table as TomlTable, TableLike, Value as TomlValue};

use crate::{
    edit::{self, Editable, Op},
    error::{Error, Position, Result},
    splice::{Splice, splice},
    value::{Table, Value},
};

mod insert;
mod list;
mod meaning;
mod remove;
mod section;
mod write;

use section::Section;
pub(crate) use write::whole as block;

pub(crate) struct TomlText<'a> {
    path: &'a Path,
    text: &'a str,
    document: Document<&'a str>,
    /// In the order of the text, found when they are asked for; the first is the root, before any header.
    sections: OnceCell<Vec<Section>>,
    /// How the text indents, found when it is asked for.
    style: OnceCell<write::Indent>,
}

impl<'a> TomlText<'a> {
    pub(crate) fn parse(path: &'a Path, text: &'a str) -> Result<TomlText<'a>> {
        refuse_template(path, text)?;
        let document = Document::parse(text).map_err(|error| syntax(path, text, error.span(), error.message()))?;
        Ok(TomlText {
            path,
            text,
            document,
            sections: OnceCell::new(),
            style: OnceCell::new(),
        })
    }

    pub(crate) fn path(&self) -> &'a Path {
        self.path
    }

    pub(crate) fn text(&self) -> &'a str {
        self.text
    }

    fn sections(&self) -> &[Section] {
        self.sections
            .get_or_init(|| section::sections(self.document.as_table()))
    }

    /// What the text means.
    pub(crate) fn to_table(&self) -> Table {
        table(self.document.as_table())
    }

    /// Where the value at `path` is, for messages; the beginning of the text if there is none.
    pub(crate) fn position(&self, path: &[&str]) -> Position {
        let item = path.iter().try_fold(self.document.as_item(), |item, key| item.get(key));
        Position::of(self.text, item.and_then(Item::span).map_or(0, |span| span.start))
    }

    /// Where element `index` of the array at `path` is.
    pub(crate) fn element_position(&self, path: &[&str], index: usize) -> Position {
        let item = path.iter().try_fold(self.document.as_item(), |item, key| item.get(key));
        let element = item
            .and_then(Item::as_array)
            .and_then(|array| array.get(index))
            .and_then(TomlValue::span);
        element.map_or_else(|| self.position(path), |span| Position::of(self.text, span.start))
    }

    /// The text with the changes made.
    pub(crate) fn edit(&self, ops: &[Op]) -> Result<String> {
        let (additions, mut splices) = edit::places(self, ops)?;
        self.add(&additions, &mut splices)?;
        Ok(splice(self.text, splices))
    }

    fn array(&self, path: &[String]) -> Result<Option<&toml_edit::Array>> {
        match path.iter().try_fold(self.document.as_item(), |item, key| item.get(key)) {
            None => Ok(None),
            Some(Item::Value(TomlValue::Array(array))) => Ok(Some(array)),
            Some(other) => Err(self.wrong_type(path, other, "an array")),
        }
    }

    fn wrong_type(&self, path: &[String], item: &Item, expected: &'static str) -> Error {
        Error::WrongType {
            path: self.path.to_owned(),
            position: Position::of(self.text, item.span().map_or(0, |span| span.start)),
            key: path.join("."),
            expected,
            found: value(item).kind(),
        }
    }

    /// A key as it is written.
    fn raw_key(&self, table: &dyn TableLike, key: &str) -> &'a str {
        key_span(table, key).map_or("", |span| &self.text[span])
    }
}

/// What a text means.
///
/// # Errors
/// As for a text that is to be edited.
pub(crate) fn meaning(path: &Path, text: &str) -> Result<Table> {
    refuse_template(path, text)?;
    let table = DeTable::parse(text).map_err(|error| syntax(path, text, error.span(), error.message()))?;
    Ok(meaning::table(table.get_ref()))
}

fn refuse_template(path: &Path, text: &str) -> Result<()> {
    match text.find("{{") {
        None => Ok(()),
        Some(offset) => Err(Error::Template {
            path: path.to_owned(),
            position: Position::of(text, offset),
        }),
    }
}

fn syntax(path: &Path, text: &str, span: Option<Range<usize>>, message: &str) -> Error {
    Error::Syntax {
        path: path.to_owned(),
        position: Position::of(text, span.map_or(0, |span| span.start)),
        format: "TOML",
        message: message.trim().replace('\n', ", "),
    }
}

impl Editable for TomlText<'_> {
    fn append(&self, path: &[String], values: &[Value], splices: &mut Vec<Splice>) -> Result<Option<Vec<Value>>> {
        let Some(array) = self.array(path)? else {
            return Ok(Some(values.to_vec()));
        };
        list::append(self.text, array, values, splices);
        Ok(None)
    }

    fn take(&self, path: &[String], values: &[Value], splices: &mut Vec<Splice>) -> Result<()> {
        if let Some(array) = self.array(path)? {
            list::take(self.text, array, values, splices);
        }
        Ok(())
    }

    fn remove_keys(&self, paths: &[&[String]], splices: &mut Vec<Splice>) {
        self.remove_all(paths, splices);
    }
}

fn key_span(table: &dyn TableLike, key: &str) -> Option<Range<usize>> {
    table.key(key)?.span()
}

/// What an item means.
pub(crate) fn value(item: &Item) -> Value {
    match item {
        Item::None => Value::Null,
        Item::Value(scalar) => scalar_value(scalar),
        Item::Table(inner) => Value::Table(table(inner)),
        Item::ArrayOfTables(tables) => Value::Array(tables.iter().map(|inner| Value::Table(table(inner))).collect()),
    }
}

fn table(table: &TomlTable) -> Table {
    table.iter().map(|(key, item)| (key.to_owned(), value(item))).collect()
}

fn inline(table: &InlineTable) -> Table {
    table
        .iter()
        .map(|(key, value)| (key.to_owned(), scalar_value(value)))
        .collect()
}

fn scalar_value(value: &TomlValue) -> Value {
    match value {
        TomlValue::String(text) => Value::string(text.value()),
        TomlValue::Integer(number) => Value::Number(number.value().to_string()),
        TomlValue::Float(number) => Value::Number(write::float(*number.value())),
        TomlValue::Boolean(flag) => Value::Bool(*flag.value()),
        TomlValue::Datetime(date) => Value::Datetime(date.value().to_string()),
        TomlValue::Array(items) => Value::Array(items.iter().map(scalar_value).collect()),
        TomlValue::InlineTable(table) => Value::Table(inline(table)),
    }
}

#[cfg(test)]
mod tests;
