//! Taking keys and tables away.

use toml_edit::{InlineTable, Item, TableLike, Value as TomlValue};

use super::{
    TomlText, key_span, list,
    section::{Section, leaves},
};
use crate::splice::{Splice, line_end, line_start, next_line};

impl TomlText<'_> {
    /// Removes what is at `path`; nothing if that is nothing. A comment behind a key stays, one inside a table goes with it.
    pub(super) fn remove(&self, path: &[String], splices: &mut Vec<Splice>) {
        let Some((last, parents)) = path.split_last() else {
            return;
        };
        let mut inline: Option<&InlineTable> = None;
        let mut parent: &dyn TableLike = self.document.as_table();
        for key in parents {
            match parent.get(key) {
                Some(Item::Table(table)) => parent = table,
                Some(Item::Value(TomlValue::InlineTable(table))) => {
                    // Commas are between the members of the outermost table that is not dotted.
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
        match (inline, parent.get(last)) {
            (_, None | Some(Item::None)) => {}
            (Some(table), Some(item)) => {
                let gone = match item {
                    Item::Value(TomlValue::InlineTable(inner)) if inner.is_dotted() => leaves(inner),
                    Item::Value(value) => {
                        let spans = key_span(parent, last).zip(value.span());
                        spans.map(|(key, value)| key.start..value.end).into_iter().collect()
                    }
                    _ => vec![],
                };
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
            (None, Some(Item::Value(value))) => {
                if let (Some(key), Some(value)) = (key_span(parent, last), value.span()) {
                    self.remove_line(key.start, value.end, splices);
                }
            }
            (None, Some(item)) => {
                if let Item::Table(table) = item
                    && table.is_dotted()
                {
                    for leaf in leaves(table) {
                        self.remove_line(leaf.start, leaf.end, splices);
                    }
                }
                for section in self.sections.iter().filter(|section| section.path.starts_with(path)) {
                    self.remove_section(section, splices);
                }
            }
        }
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
