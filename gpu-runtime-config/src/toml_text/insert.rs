//! Where new keys and tables go: beside their siblings, in the way the file writes those.

use std::collections::HashMap;

use toml_edit::{InlineTable, Item, Table as TomlTable, TableLike, Value as TomlValue};

use super::{
    TomlText,
    section::{Section, extent},
    write::{self, Indent},
};
use crate::{
    error::Result,
    splice::{BOM, Splice, indent, line_end, line_start, newline, next_line},
    value::{Table, Value},
};

/// A table of the text and how one gets there.
struct Place<'p> {
    table: Kind<'p>,
    path: Vec<String>,
    /// The path's keys as written.
    raw: Vec<&'p str>,
    /// How many keys of the path are above the dotted key or inline table that the table is part of.
    base: usize,
}

#[derive(Clone, Copy)]
enum Kind<'p> {
    Table(&'p TomlTable),
    Inline(&'p InlineTable),
}

impl<'p> Kind<'p> {
    fn table(self) -> &'p dyn TableLike {
        match self {
            Kind::Table(table) => table,
            Kind::Inline(table) => table,
        }
    }

    fn is_dotted(self) -> bool {
        match self {
            Kind::Table(table) => table.is_dotted(),
            Kind::Inline(table) => table.is_dotted(),
        }
    }
}

impl<'a> TomlText<'a> {
    /// Sets the keys of `additions`, recursively.
    pub(super) fn add(&self, additions: &Table, splices: &mut Vec<Splice>) -> Result<()> {
        let root = Place {
            table: Kind::Table(self.document.as_table()),
            path: vec![],
            raw: vec![],
            base: 0,
        };
        self.add_to(&root, additions, splices)
    }

    fn add_to(&self, place: &Place<'_>, additions: &Table, splices: &mut Vec<Splice>) -> Result<()> {
        let table = place.table.table();
        let mut missing = Table::new();
        for (key, value) in additions {
            let mut path = place.path.clone();
            path.push(key.clone());
            match (table.get(key), value) {
                (None | Some(Item::None), _) => drop(missing.insert(key.clone(), value.clone())),
                (Some(Item::Table(inner)), Value::Table(additions)) => {
                    let place = self.below(place, key, path, Kind::Table(inner));
                    self.add_to(&place, additions, splices)?;
                }
                (Some(Item::Value(TomlValue::InlineTable(inner))), Value::Table(additions)) => {
                    let place = self.below(place, key, path, Kind::Inline(inner));
                    self.add_to(&place, additions, splices)?;
                }
                (Some(Item::Value(old)), value) if !old.is_inline_table() && !matches!(value, Value::Table(_)) => {
                    if let Some(span) = old.span() {
                        splices.push(Splice::replace(span, write::inline(value)));
                    }
                }
                (Some(item), value) => return Err(self.wrong_type(&path, item, value.kind())),
            }
        }
        if !missing.is_empty() {
            self.insert(place, &missing, splices);
        }
        Ok(())
    }

    fn below<'p>(&self, place: &Place<'p>, key: &str, path: Vec<String>, table: Kind<'p>) -> Place<'p>
    where
        'a: 'p,
    {
        let mut raw = place.raw.clone();
        raw.push(self.raw_key(place.table.table(), key));
        // A dotted key begins below the last table that is not dotted.
        let base = if place.table.is_dotted() {
            place.base
        } else {
            place.path.len()
        };
        Place { table, path, raw, base }
    }

    fn insert(&self, place: &Place<'_>, missing: &Table, splices: &mut Vec<Splice>) {
        match place.table {
            Kind::Inline(table) => insert_inline(place, table, missing, splices),
            Kind::Table(table) if table.is_dotted() => self.insert_dotted(place, table, missing, splices),
            Kind::Table(table) => self.insert_section(place, table, missing, splices),
        }
    }

    fn insert_dotted(&self, place: &Place<'_>, table: &TomlTable, missing: &Table, splices: &mut Vec<Splice>) {
        let lines = write::dotted(&place.raw[place.base..].join("."), missing);
        if let Some(extent) = extent(table) {
            let indent = indent(self.text, extent.end.min(extent.start));
            self.insert_lines_after(extent.end, &lines, indent, splices);
        }
    }

    fn insert_section(&self, place: &Place<'_>, table: &TomlTable, missing: &Table, splices: &mut Vec<Splice>) {
        let (tables, leaves): (Table, Table) = missing
            .clone()
            .into_iter()
            .partition(|(_, value)| matches!(value, Value::Table(_)));
        let own = self.sections().iter().find(|section| {
            section.path == place.path && (section.is_root() || Some(&section.header) == table.span().as_ref())
        });
        match own {
            _ if leaves.is_empty() => {}
            Some(section) => self.insert_keys(section, &leaves, splices),
            // The table has no header of its own yet. It gets one, which may come after those of its sub-tables.
            None => {
                let block = write::block(&place.raw.join("."), &leaves, &self.indent(place));
                self.insert_lines_below(place, &block, splices);
            }
        }
        for (key, value) in &tables {
            self.insert_block(place, key, value, splices);
        }
    }

    fn insert_block(&self, place: &Place<'_>, key: &str, value: &Value, splices: &mut Vec<Splice>) {
        let Value::Table(table) = value else { return };
        let mut path: Vec<String> = place.raw.iter().map(|raw| (*raw).to_owned()).collect();
        path.push(write::key(key));
        self.insert_lines_below(
            place,
            &write::block(&path.join("."), table, &self.indent(place)),
            splices,
        );
    }

    /// New keys after those that the section has.
    fn insert_keys(&self, section: &Section, leaves: &Table, splices: &mut Vec<Splice>) {
        let lines: Vec<String> = leaves
            .iter()
            .map(|(key, value)| format!("{} = {}", write::key(key), write::inline(value)))
            .collect();
        match &section.keys {
            Some(keys) => {
                // Near the version is where people look for what concerns the whole file.
                let version = section
                    .is_root()
                    .then(|| self.document.as_table().get("version"))
                    .flatten();
                let after = version.and_then(Item::span).map_or(keys.end, |span| span.end);
                self.insert_lines_after(after, &lines, indent(self.text, keys.start), splices);
            }
            None if section.is_root() => self.insert_at_top(&lines, splices),
            None => {
                let header = indent(self.text, section.header.start);
                let indent = format!("{header}{}", self.style().keys);
                self.insert_lines_after(section.header.end, &lines, &indent, splices);
            }
        }
    }

    /// The first keys of the root: after the comment that the file begins with, if that stands alone.
    fn insert_at_top(&self, lines: &[String], splices: &mut Vec<Splice>) {
        let (text, newline) = (self.text, newline(self.text));
        let top = if text.starts_with(BOM) { BOM.len_utf8() } else { 0 };
        let mut after = top;
        while text[after..].starts_with('#') {
            after = next_line(text, after);
        }
        let stands_alone = text[after..line_end(text, after)].trim().is_empty();
        let at = if stands_alone { after } else { top };
        let before = if at > top && !text[..at].ends_with('\n') {
            newline
        } else {
            ""
        };
        let rest = if stands_alone || text[at..].trim().is_empty() {
            ""
        } else {
            newline
        };
        splices.push(Splice::insert(
            at,
            format!("{before}{}{newline}{rest}", lines.join(newline)),
        ));
    }

    fn insert_lines_after(&self, offset: usize, lines: &[String], indent: &str, splices: &mut Vec<Splice>) {
        let newline = newline(self.text);
        let lines: Vec<String> = lines.iter().map(|line| format!("{newline}{indent}{line}")).collect();
        splices.push(Splice::insert(line_end(self.text, offset), lines.concat()));
    }

    /// The lines of a new table after the last table that `place` holds.
    fn insert_lines_below(&self, place: &Place<'_>, lines: &[String], splices: &mut Vec<Splice>) {
        let (text, newline) = (self.text, newline(self.text));
        let last = self
            .sections()
            .iter()
            .rfind(|section| section.path.starts_with(&place.path));
        let last = last.unwrap_or(&self.sections()[0]);
        let blank = if self.separates_tables(place) { newline } else { "" };
        if last.is_root() && last.keys.is_none() {
            // Nothing but white space and comments, or nothing at all.
            let gap = if text.trim().is_empty() { "" } else { blank };
            let end = if text.is_empty() || text.ends_with(['\n', BOM]) {
                ""
            } else {
                newline
            };
            splices.push(Splice::insert(
                text.len(),
                format!("{end}{gap}{}{newline}", lines.join(newline)),
            ));
        } else {
            let at = self.end_with_comments(last);
            splices.push(Splice::insert(at, format!("{newline}{blank}{}", lines.join(newline))));
        }
    }

    /// The end of a section and of the comment lines that follow it without a gap, unless they introduce the next header.
    fn end_with_comments(&self, section: &Section) -> usize {
        let text = self.text;
        let last_line = line_end(text, section.end());
        let mut end = last_line;
        loop {
            let next = next_line(text, end);
            let line = text[next..line_end(text, next)].trim_start();
            match line.bytes().next() {
                Some(b'#') if next < text.len() => end = line_end(text, next),
                Some(b'[') => return last_line,
                _ => return end,
            }
        }
    }

    /// Whether there is an empty line before the file's tables (or would be: a file without says nothing).
    fn separates_tables(&self, place: &Place<'_>) -> bool {
        let sibling = self
            .sibling(place)
            .or_else(|| self.sections().iter().filter(|section| !section.is_root()).nth(1));
        sibling.is_none_or(|section| {
            let start = line_start(self.text, section.header.start);
            start == 0 || self.text[line_start(self.text, start - 1)..start].trim().is_empty()
        })
    }

    /// The last table directly below `place`.
    fn sibling(&self, place: &Place<'_>) -> Option<&Section> {
        let depth = place.path.len() + 1;
        self.sections()
            .iter()
            .rfind(|section| section.path.len() == depth && section.path.starts_with(&place.path))
    }

    /// How a new table below `place` is indented.
    fn indent(&self, place: &Place<'_>) -> Indent {
        let style = self.style();
        let header = self.sibling(place).map_or_else(
            || {
                let is_above = |section: &&Section| place.path.starts_with(&section.path);
                let above = self
                    .sections()
                    .iter()
                    .filter(is_above)
                    .max_by_key(|section| section.path.len());
                let above = above.filter(|section| !section.is_root());
                let base = above.map_or("", |section| indent(self.text, section.header.start));
                // The tables of the root are not indented.
                let levels = above.map_or(place.path.len(), |section| place.path.len() + 1 - section.path.len());
                format!("{base}{}", style.nested.repeat(levels))
            },
            |sibling| indent(self.text, sibling.header.start).to_owned(),
        );
        Indent { header, ..style }
    }

    /// How far the file indents keys below headers and headers below headers, judged by the first that shows it.
    fn style(&self) -> Indent {
        self.style.get_or_init(|| self.find_style()).clone()
    }

    fn find_style(&self) -> Indent {
        let headers = || self.sections().iter().filter(|section| !section.is_root());
        let of = |offset: usize| indent(self.text, offset);
        let keys = headers().find_map(|section| {
            let keys = section.keys.as_ref()?;
            of(keys.start).strip_prefix(of(section.header.start)).map(str::to_owned)
        });
        let by_path: HashMap<&[String], &Section> =
            headers().map(|section| (section.path.as_slice(), section)).collect();
        let nested = headers().find_map(|section| {
            let above = (1..section.path.len())
                .rev()
                .find_map(|depth| by_path.get(&section.path[..depth]))?;
            of(section.header.start)
                .strip_prefix(of(above.header.start))
                .map(str::to_owned)
        });
        Indent {
            header: String::new(),
            keys: keys.unwrap_or_default(),
            nested: nested.unwrap_or_default(),
        }
    }
}

fn insert_inline(place: &Place<'_>, table: &InlineTable, missing: &Table, splices: &mut Vec<Splice>) {
    let members: Vec<String> = if table.is_dotted() {
        write::dotted(&place.raw[place.base..].join("."), missing)
    } else {
        missing
            .iter()
            .map(|(key, value)| format!("{} = {}", write::key(key), write::inline(value)))
            .collect()
    };
    let members = members.join(", ");
    match (extent(table), table.span()) {
        (Some(extent), _) => splices.push(Splice::insert(extent.end, format!(", {members}"))),
        (None, Some(span)) => splices.push(Splice::insert(span.start + 1, format!(" {members} "))),
        (None, None) => {}
    }
}
