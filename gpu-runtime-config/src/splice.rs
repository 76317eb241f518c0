//! Changes of a text by byte range, so that everything else keeps its bytes.

use std::ops::Range;

/// One replacement: an insertion if the range is empty, a deletion if the text is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Splice {
    pub(crate) range: Range<usize>,
    pub(crate) text: String,
}

impl Splice {
    pub(crate) fn insert(at: usize, text: impl Into<String>) -> Splice {
        Splice {
            range: at..at,
            text: text.into(),
        }
    }

    pub(crate) fn replace(range: Range<usize>, text: impl Into<String>) -> Splice {
        Splice {
            range,
            text: text.into(),
        }
    }

    pub(crate) fn delete(range: Range<usize>) -> Splice {
        Splice {
            range,
            text: String::new(),
        }
    }
}

/// The text with all splices made. Those at one offset keep their order; a deletion inside another is absorbed by it.
pub(crate) fn splice(text: &str, mut splices: Vec<Splice>) -> String {
    splices.sort_by_key(|splice| splice.range.start);
    let mut result = String::with_capacity(text.len() + splices.iter().map(|splice| splice.text.len()).sum::<usize>());
    let mut done = 0;
    for splice in &splices {
        result.push_str(&text[done..splice.range.start.max(done)]);
        result.push_str(&splice.text);
        done = done.max(splice.range.end);
    }
    result.push_str(&text[done..]);
    result
}

/// The line ending that a text uses: that of its first line.
pub(crate) fn newline(text: &str) -> &'static str {
    match text.find('\n') {
        Some(at) if text[..at].ends_with('\r') => "\r\n",
        _ => "\n",
    }
}

/// Where the line of `at` begins.
pub(crate) fn line_start(text: &str, at: usize) -> usize {
    let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    if start == 0 && text.starts_with(BOM) {
        BOM.len_utf8().min(at)
    } else {
        start
    }
}

/// Where the line of `at` ends, before its line ending.
pub(crate) fn line_end(text: &str, at: usize) -> usize {
    let end = text[at..].find('\n').map_or(text.len(), |newline| at + newline);
    if end > at && text[..end].ends_with('\r') {
        end - 1
    } else {
        end
    }
}

/// Where the line after that of `at` begins.
pub(crate) fn next_line(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |newline| at + newline + 1)
}

/// The white space that the line of `at` begins with.
pub(crate) fn indent(text: &str, at: usize) -> &str {
    let line = &text[line_start(text, at)..];
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// Some editors put this first.
pub(crate) const BOM: char = '\u{feff}';

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splices_leave_the_rest_alone() {
        let splices = vec![
            Splice::insert(3, "X"),
            Splice::delete(0..1),
            Splice::replace(1..2, "yy"),
            Splice::insert(3, "Z"),
        ];
        assert_eq!(splice("abc", splices), "yycXZ");
    }

    #[test]
    fn lines_are_found_with_either_ending() {
        assert_eq!(
            (
                line_start("a\r\n  b\r\n", 5),
                line_end("a\r\n  b\r\n", 5),
                next_line("a\r\n  b\r\n", 5)
            ),
            (3, 6, 8)
        );
        assert_eq!(
            (newline("a\r\nb\n"), newline("a\nb\r\n"), newline("")),
            ("\r\n", "\n", "\n")
        );
        assert_eq!(indent("a\n\t b", 4), "\t ");
    }
}
