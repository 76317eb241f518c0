//! XML as `nvidia-smi` writes it: tabs, and no element on the line of another.

use std::fmt::Write as _;

/// An element and what is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Element {
    /// Text beside its tags.
    Value(&'static str, String),
    /// Text on a line of its own.
    Line(&'static str, String),
    Group(&'static str, Vec<Element>),
}

/// A value, or that it is not there.
pub(super) fn value(name: &'static str, value: Option<impl ToString>) -> Element {
    let text = value.map_or_else(|| "N/A".to_owned(), |value| value.to_string());
    Element::Value(name, text)
}

pub(super) fn group(name: &'static str, elements: impl IntoIterator<Item = Element>) -> Element {
    Element::Group(name, elements.into_iter().collect())
}

/// Values that are not there.
pub(super) fn absent<const N: usize>(names: [&'static str; N]) -> [Element; N] {
    names.map(|name| value(name, None::<&str>))
}

impl Element {
    /// Appends the element with its line's end.
    pub(super) fn write(&self, depth: usize, text: &mut String) {
        let indent = "\t".repeat(depth);
        let _ = match self {
            Self::Value(name, value) => writeln!(text, "{indent}<{name}>{}</{name}>", escaped(value)),
            Self::Line(name, line) => {
                writeln!(text, "{indent}<{name}>\n{indent}\t{}\n{indent}</{name}>", escaped(line))
            }
            Self::Group(name, elements) => {
                let _ = writeln!(text, "{indent}<{name}>");
                for element in elements {
                    element.write(depth + 1, text);
                }
                writeln!(text, "{indent}</{name}>")
            }
        };
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_nested_and_text_is_escaped() {
        let element = group(
            "a",
            [
                value("b", Some("x < y & z")),
                group("c", []),
                Element::Line("d", "None".to_owned()),
            ],
        );
        let mut text = String::new();
        element.write(1, &mut text);
        assert_eq!(
            text,
            "\t<a>\n\t\t<b>x &lt; y &amp; z</b>\n\t\t<c>\n\t\t</c>\n\t\t<d>\n\t\t\tNone\n\t\t</d>\n\t</a>\n"
        );
    }
}
