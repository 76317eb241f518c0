//! Where the parts of a JSON text are. The text has been parsed before, so that it is known to be valid.

use std::ops::Range;

use crate::value::{Table, Value};

#[derive(Debug)]
pub(super) struct Node {
    pub(super) span: Range<usize>,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    Object(Vec<Member>),
    Array(Vec<Node>),
    Scalar,
}

#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: String,
    /// With its quotes.
    pub(super) key: Range<usize>,
    pub(super) value: Node,
}

impl Node {
    /// The last member of that name, which is the one that counts for Go.
    pub(super) fn member(&self, name: &str) -> Option<&Member> {
        match &self.kind {
            Kind::Object(members) => members.iter().rfind(|member| member.name == name),
            _ => None,
        }
    }

    pub(super) fn first_member(&self) -> Option<&Member> {
        match &self.kind {
            Kind::Object(members) => members.first(),
            _ => None,
        }
    }

    pub(super) fn value(&self, text: &str) -> Value {
        match &self.kind {
            Kind::Object(members) => Value::Table(
                members
                    .iter()
                    .map(|member| (member.name.clone(), member.value.value(text)))
                    .collect(),
            ),
            Kind::Array(items) => Value::Array(items.iter().map(|item| item.value(text)).collect()),
            Kind::Scalar => scalar(&text[self.span.clone()]),
        }
    }
}

fn scalar(text: &str) -> Value {
    match text {
        "null" => Value::Null,
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        _ if text.starts_with('"') => Value::String(serde_json::from_str(text).unwrap_or_default()),
        number => Value::Number(number.to_owned()),
    }
}

/// A parsed value, for messages about a text that is not an object.
pub(super) fn value(parsed: &serde_json::Value) -> Value {
    match parsed {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(flag) => Value::Bool(*flag),
        serde_json::Value::Number(number) => Value::Number(number.to_string()),
        serde_json::Value::String(text) => Value::string(text),
        serde_json::Value::Array(items) => Value::Array(items.iter().map(value).collect()),
        serde_json::Value::Object(members) => Value::Table(
            members
                .iter()
                .map(|(key, member)| (key.clone(), value(member)))
                .collect::<Table>(),
        ),
    }
}

/// The value that begins at `start` or after white space.
pub(super) fn node(text: &str, start: usize) -> Option<Node> {
    Cursor { text, at: start }.node()
}

struct Cursor<'t> {
    text: &'t str,
    at: usize,
}

impl Cursor<'_> {
    fn peek(&mut self) -> Option<u8> {
        while let Some(byte) = self.text.as_bytes().get(self.at) {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' => self.at += 1,
                byte => return Some(*byte),
            }
        }
        None
    }

    /// Steps over `byte` if it is next.
    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    // Recursion is as deep as serde_json's, which stops at 128 levels.
    fn node(&mut self) -> Option<Node> {
        let first = self.peek()?;
        let start = self.at;
        let kind = match first {
            b'{' => Kind::Object(self.object()?),
            b'[' => Kind::Array(self.array()?),
            b'"' => {
                self.string()?;
                Kind::Scalar
            }
            _ => {
                let rest = &self.text[start..];
                self.at += rest.find([',', ']', '}', ' ', '\t', '\r', '\n']).unwrap_or(rest.len());
                Kind::Scalar
            }
        };
        Some(Node {
            span: start..self.at,
            kind,
        })
    }

    fn object(&mut self) -> Option<Vec<Member>> {
        let mut members = Vec::new();
        self.at += 1;
        while !self.eat(b'}') {
            self.peek()?;
            let key = self.at;
            self.string()?;
            let key = key..self.at;
            self.eat(b':');
            let value = self.node()?;
            members.push(Member {
                name: serde_json::from_str(&self.text[key.clone()]).ok()?,
                key,
                value,
            });
            self.eat(b',');
        }
        Some(members)
    }

    fn array(&mut self) -> Option<Vec<Node>> {
        let mut items = Vec::new();
        self.at += 1;
        while !self.eat(b']') {
            items.push(self.node()?);
            self.eat(b',');
        }
        Some(items)
    }

    fn string(&mut self) -> Option<()> {
        self.at += 1;
        loop {
            match self.text.as_bytes().get(self.at)? {
                b'"' => break,
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
        self.at += 1;
        Some(())
    }
}
