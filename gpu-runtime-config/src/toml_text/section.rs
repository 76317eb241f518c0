//! The parts of a TOML text: what is before the first header, and what each header opens.

use std::ops::Range;

use toml_edit::{Item, Table as TomlTable, TableLike};

use super::key_span;

/// A header and the keys below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) path: Vec<String>,
    /// Where the header is; empty for the root.
    pub(super) header: Range<usize>,
    /// From the first key to the end of the last value.
    pub(super) keys: Option<Range<usize>>,
}

impl Section {
    /// Where the last thing of the section ends.
    pub(super) fn end(&self) -> usize {
        self.keys.as_ref().map_or(self.header.end, |keys| keys.end)
    }

    pub(super) fn is_root(&self) -> bool {
        self.path.is_empty()
    }
}

/// All sections in the order of the text; the root is first.
pub(super) fn sections(root: &TomlTable) -> Vec<Section> {
    let mut sections = vec![Section {
        path: Vec::new(),
        header: 0..0,
        keys: extent(root),
    }];
    collect(root, &mut Vec::new(), &mut sections);
    sections.sort_by_key(|section| (section.header.start, !section.is_root()));
    sections
}

fn collect(table: &TomlTable, path: &mut Vec<String>, sections: &mut Vec<Section>) {
    for (key, item) in table {
        path.push(key.to_owned());
        match item {
            Item::Table(inner) => open(inner, path, sections),
            Item::ArrayOfTables(tables) => tables.iter().for_each(|inner| open(inner, path, sections)),
            Item::Value(_) | Item::None => {}
        }
        path.pop();
    }
}

fn open(table: &TomlTable, path: &mut Vec<String>, sections: &mut Vec<Section>) {
    if table.position().is_some()
        && let Some(header) = table.span()
    {
        sections.push(Section {
            path: path.clone(),
            header,
            keys: extent(table),
        });
    }
    collect(table, path, sections);
}

/// From the first key of a table to the end of its last value, dotted tables included, tables with headers not.
pub(super) fn extent(table: &dyn TableLike) -> Option<Range<usize>> {
    leaves(table)
        .into_iter()
        .reduce(|all, leaf| all.start.min(leaf.start)..all.end.max(leaf.end))
}

/// From key to end of value of all that the table holds, dotted tables included, tables with headers not.
pub(super) fn leaves(table: &dyn TableLike) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (key, item) in table.iter() {
        match item {
            Item::Table(inner) if inner.is_dotted() => found.extend(leaves(inner)),
            Item::Value(toml_edit::Value::InlineTable(inner)) if inner.is_dotted() => found.extend(leaves(inner)),
            Item::Value(value) => {
                if let (Some(key), Some(value)) = (key_span(table, key), value.span()) {
                    found.push(key.start..value.end);
                }
            }
            Item::Table(_) | Item::ArrayOfTables(_) | Item::None => {}
        }
    }
    found
}
