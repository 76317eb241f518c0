//! A JSON text that is changed by byte ranges, so that key order, indentation and everything else stay.

use std::{ops::Range, path::Path};

use crate::{
    edit::{self, Editable, Op},
    error::{Error, Position, Result},
    splice::{BOM, Splice, indent, line_start, newline, splice},
    value::{Table, Value},
};

mod node;
mod write;

use node::{Kind, Member, Node};

pub(crate) struct JsonText<'a> {
    path: &'a Path,
    text: &'a str,
    /// `None` if the text is empty.
    root: Option<Node>,
}

impl<'a> JsonText<'a> {
    /// Reads a text whose root is an object; an empty text counts as an empty one.
    pub(crate) fn parse(path: &'a Path, text: &'a str) -> Result<JsonText<'a>> {
        let start = if text.starts_with(BOM) { BOM.len_utf8() } else { 0 };
        if text[start..].trim().is_empty() {
            return Ok(JsonText { path, text, root: None });
        }
        let root: serde_json::Value = serde_json::from_str(&text[start..]).map_err(|error| Error::Syntax {
            path: path.to_owned(),
            position: Position {
                line: error.line(),
                column: error.column().max(1),
            },
            format: "JSON",
            message: message(&error),
        })?;
        let position = Position::of(text, start);
        if !root.is_object() {
            let (expected, found) = ("an object", node::value(&root).kind());
            return Err(Error::WrongType {
                path: path.to_owned(),
                position,
                key: ".".to_owned(),
                expected,
                found,
            });
        }
        Ok(JsonText {
            path,
            text,
            root: node::node(text, start),
        })
    }

    pub(crate) fn to_value(&self) -> Value {
        self.root
            .as_ref()
            .map_or_else(|| Value::Table(Table::new()), |root| root.value(self.text))
    }

    /// The text with the changes made.
    pub(crate) fn edit(&self, ops: &[Op]) -> Result<String> {
        let (additions, mut splices) = edit::places(self, ops)?;
        match &self.root {
            None if additions.is_empty() => return Ok(self.text.to_owned()),
            None => {
                return Ok(format!(
                    "{}\n",
                    write::pretty(&Value::Table(additions), "", DEFAULT_INDENT, "\n")
                ));
            }
            Some(root) => self.add(root, &additions, &mut Vec::new(), &mut splices)?,
        }
        Ok(splice(self.text, splices))
    }

    fn find(&self, path: &[String]) -> Option<&Node> {
        path.iter()
            .try_fold(self.root.as_ref()?, |node, key| Some(&node.member(key)?.value))
    }

    fn add(&self, node: &Node, additions: &Table, path: &mut Vec<String>, splices: &mut Vec<Splice>) -> Result<()> {
        let mut missing = Table::new();
        for (key, value) in additions {
            path.push(key.clone());
            self.refuse_duplicate(node, key, path)?;
            match (node.member(key), value) {
                (None, _) => drop(missing.insert(key.clone(), value.clone())),
                (Some(Member { value: inner, .. }), Value::Table(additions)) => {
                    if !matches!(inner.kind, Kind::Object(_)) {
                        return Err(self.wrong_type(path, inner, "an object"));
                    }
                    self.add(inner, additions, path, splices)?;
                }
                (Some(Member { value: inner, .. }), value) => {
                    if matches!(inner.kind, Kind::Object(_)) {
                        return Err(self.wrong_type(path, inner, value.kind()));
                    }
                    splices.push(Splice::replace(inner.span.clone(), write::compact(value, " ")));
                }
            }
            path.pop();
        }
        if !missing.is_empty() {
            self.insert(node, &missing, splices);
        }
        Ok(())
    }

    /// Adds members to the end of an object, one a line if it is written so.
    fn insert(&self, object: &Node, missing: &Table, splices: &mut Vec<Splice>) {
        let Kind::Object(members) = &object.kind else { return };
        let (text, newline) = (self.text, newline(self.text));
        let Some(last) = members.last() else {
            let outer = indent(text, object.span.start);
            let added = Value::Table(missing.clone());
            let added = if self.is_compact() {
                write::compact(&added, self.space())
            } else {
                write::pretty(&added, outer, &self.indent_unit(), newline)
            };
            splices.push(Splice::replace(object.span.clone(), added));
            return;
        };
        let before_last = members
            .iter()
            .rev()
            .nth(1)
            .map_or(object.span.start + 1, |member| member.value.span.end);
        let added: Vec<String> = if text[before_last..last.key.start].contains('\n') {
            let outer = indent(text, last.key.start);
            let unit = self.indent_unit();
            missing
                .iter()
                .map(|(key, value)| {
                    format!(
                        ",{newline}{outer}{}: {}",
                        write::string(key),
                        write::pretty(value, outer, &unit, newline)
                    )
                })
                .collect()
        } else {
            let space = self.space();
            missing
                .iter()
                .map(|(key, value)| format!(",{space}{}:{space}{}", write::string(key), write::compact(value, space)))
                .collect()
        };
        splices.push(Splice::insert(last.value.span.end, added.concat()));
    }

    fn refuse_duplicate(&self, node: &Node, key: &str, path: &[String]) -> Result<()> {
        let Kind::Object(members) = &node.kind else {
            return Ok(());
        };
        match members.iter().filter(|member| member.name == key).nth(1) {
            None => Ok(()),
            Some(second) => Err(Error::DuplicateKey {
                path: self.path.to_owned(),
                position: Position::of(self.text, second.key.start),
                key: path.join("."),
            }),
        }
    }

    fn wrong_type(&self, path: &[String], node: &Node, expected: &'static str) -> Error {
        Error::WrongType {
            path: self.path.to_owned(),
            position: Position::of(self.text, node.span.start),
            key: path.join("."),
            expected,
            found: node.value(self.text).kind(),
        }
    }

    /// Whether the whole text is on one line and holds something.
    fn is_compact(&self) -> bool {
        let Some(root) = &self.root else { return false };
        !self.text[root.span.clone()].contains('\n') && root.first_member().is_some()
    }

    /// What the text puts behind colons and commas on one line.
    fn space(&self) -> &'static str {
        match self.root.as_ref().and_then(Node::first_member) {
            Some(member) if self.text[member.key.end..member.value.span.start].ends_with(':') => "",
            _ => " ",
        }
    }

    fn indent_unit(&self) -> String {
        let first = self.root.as_ref().and_then(Node::first_member);
        match first {
            Some(member) if line_start(self.text, member.key.start) > 0 => {
                indent(self.text, member.key.start).to_owned()
            }
            _ => DEFAULT_INDENT.to_owned(),
        }
    }
}

impl Editable for JsonText<'_> {
    fn append(&self, path: &[String], values: &[Value], _: &mut Vec<Splice>) -> Result<Option<Vec<Value>>> {
        let mut list = match self.find(path).map(|node| node.value(self.text)) {
            Some(Value::Array(list)) => list,
            _ => Vec::new(),
        };
        list.extend(values.iter().cloned());
        Ok(Some(list))
    }

    fn take(&self, path: &[String], values: &[Value], splices: &mut Vec<Splice>) -> Result<()> {
        if let Some(list) = self.find(path)
            && let Kind::Array(items) = &list.kind
        {
            let items: Vec<_> = items
                .iter()
                .map(|item| (item.span.clone(), values.contains(&item.value(self.text))))
                .collect();
            remove_items(&list.span, &items, splices);
        }
        Ok(())
    }

    fn remove_keys(&self, paths: &[&[String]], splices: &mut Vec<Splice>) {
        let paths: Vec<_> = paths.iter().copied().filter(|path| !path.is_empty()).collect();
        if let Some(root) = &self.root {
            remove(root, &paths, splices);
        }
    }
}

/// What the vendor's tools write.
const DEFAULT_INDENT: &str = "    ";

/// Takes away what is at these paths, all at once because they share commas.
fn remove(node: &Node, paths: &[&[String]], splices: &mut Vec<Splice>) {
    let Kind::Object(members) = &node.kind else { return };
    let mut items = Vec::new();
    for member in members {
        let below: Vec<&[String]> = paths
            .iter()
            .filter(|path| path.first() == Some(&member.name))
            .map(|path| &path[1..])
            .collect();
        let gone = below.iter().any(|path| path.is_empty());
        if !gone {
            remove(&member.value, &below, splices);
        }
        items.push((member.key.start..member.value.span.end, gone));
    }
    if items.iter().any(|(_, gone)| *gone) {
        remove_items(&node.span, &items, splices);
    }
}

fn remove_items(list: &Range<usize>, items: &[(Range<usize>, bool)], splices: &mut Vec<Splice>) {
    let Some(last_kept) = items.iter().rposition(|(_, gone)| !gone) else {
        if !items.is_empty() {
            splices.push(Splice::delete(list.start + 1..list.end - 1));
        }
        return;
    };
    for (index, (span, _)) in items.iter().enumerate().filter(|(_, (_, gone))| *gone) {
        if index < last_kept {
            splices.push(Splice::delete(span.start..items[index + 1].0.start));
        } else {
            splices.push(Splice::delete(items[last_kept].0.end..span.end));
        }
    }
}

/// The parser's message without the position, which the error has already.
fn message(error: &serde_json::Error) -> String {
    let message = error.to_string();
    message
        .rsplit_once(" at line ")
        .map_or(message.clone(), |(message, _)| message.to_owned())
}

#[cfg(test)]
mod tests;
