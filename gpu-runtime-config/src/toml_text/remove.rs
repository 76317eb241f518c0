//! Taking keys and tables away.

use std::{collections::BTreeMap, ops::Range};

use toml_edit::{InlineTable, Item, TableLike, Value as TomlValue};

use super::{
    TomlText, key_span, list,
    section::{Section, leaves},
};
use crate::splice::{Splice, line_end, line_start, next_line};

/// The inline tables that lose members, by where they begin, and those members.
type Losses<'t> = BTreeMap<usize, (&'t InlineTable, Vec<Range<usize>>)>;

impl TomlText<'_> {
    /// Removes what is at these paths. A comment behind a key stays, one inside a table goes with it.
    pub(super) fn remove_all(&self, paths: &[&[String]], splices: &mut Vec<Splice>) {
        let mut losses = Losses::new();
        for path in paths {
            self.remove(path, &mut losses, splices);
        }
        // All at once because they share commas.
        for (table, gone) in losses.values() {
            self.remove_members(table, gone, splices);
        }
    }

    fn remove<'t>(&'t self, path: &[String], losses: &mut Losses<'t>, splices: &mut Vec<Splice>) {
        let Some((last, parents)) = path.split_last() else {
            return;
        };
        let mut inline: Option<&InlineTable> = None;
        let mut parent: &dyn TableLike = self.document.as_table();
        for key in parents {
            match parent.get(key) {
                Some(Item::Table(table)) => parent = table,
                Some(Item::Value(TomlValue::InlineTable(table))) => {
                    // Commas are between the members of the last table that is not dotted.
                    inline = if table.is_dotted() && inline.is_some() {
                        inline
                    } else {
                        Some(table)
                    };
                    parent = table;
                }
                _ => return,
            }
        }
        let Some(item) = parent.get(last) else { return };
        let spans = match item {
            Item::Table(table) if table.is_dotted() => leaves(table),
            Item::Value(TomlValue::InlineTable(inner)) if inner.is_dotted() => leaves(inner),
            Item::Value(value) => {
                let spans = key_span(parent, last).zip(value.span());
                spans.map(|(key, value)| key.start..value.end).into_iter().collect()
            }
            _ => vec![],
        };
        if let Some(table) = inline {
            let start = table.span().map_or(0, |span| span.start);
            losses.entry(start).or_insert((table, vec![])).1.extend(spans);
            return;
        }
        for span in spans {
            self.remove_line(span.start, span.end, splices);
        }
        if !item.is_value() {
            for section in self.sections().iter().filter(|section| section.path.starts_with(path)) {
                self.remove_section(section, splices);
            }
        }
    }

    fn remove_members(&self, table: &InlineTable, gone: &[Range<usize>], splices: &mut Vec<Splice>) {
        let Some(span) = table.span() else { return };
        let mut members = leaves(table);
        members.sort_by_key(|member| member.start);
        let mut begin = span.start + 1;
        let members: Vec<_> = members
            .into_iter()
            .map(|member| {
                // A dotted member begins before its last key.
                let start = self.skip_separators(begin, member.start);
                begin = member.end;
                (start..member.end, gone.contains(&member))
            })
            .collect();
        list::remove(self.text, span.start + 1..span.end - 1, &members, splices);
    }

    /// The first place from `at` that is not white space, a comma or a comment.
    fn skip_separators(&self, mut at: usize, end: usize) -> usize {
        while at < end {
            match self.text.as_bytes()[at] {
                b' ' | b'\t' | b'\r' | b'\n' | b',' => at += 1,
                b'#' => at = line_end(self.text, at),
                _ => return at,
            }
        }
        end
    }

    fn remove_line(&self, key: usize, value_end: usize, splices: &mut Vec<Splice>) {
        let (start, end) = (line_start(self.text, key), line_end(self.text, value_end));
        let rest = &self.text[value_end..end];
        if rest.trim().is_empty() {
            splices.push(Splice::delete(start..next_line(self.text, value_end)));
        } else {
            let comment = value_end + (rest.len() - rest.trim_start().len());
            let key_start = start + (self.text[start..key].len() - self.text[start..key].trim_start().len());
            splices.push(Splice::delete(key_start..comment));
        }
    }

    fn remove_section(&self, section: &Section, splices: &mut Vec<Splice>) {
        let start = line_start(self.text, section.header.start);
        let end = next_line(self.text, line_end(self.text, section.end()));
        let above = if start > 0 { line_start(self.text, start - 1) } else { 0 };
        let start = if self.text[above..start].trim().is_empty() {
            above
        } else {
            start
        };
        splices.push(Splice::delete(start..end));
    }
}
