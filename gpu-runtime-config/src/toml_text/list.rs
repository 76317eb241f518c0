//! Elements of arrays and members of inline tables, with the commas and comments between them.

use std::ops::Range;

use toml_edit::Array;

use super::{scalar_value, write};
use crate::{
    splice::{Splice, indent, line_end, line_start, newline, next_line},
    value::Value,
};

/// Adds elements to the end, one a line if the array is written so. Comments stay with the elements they follow.
pub(super) fn append(text: &str, array: &Array, values: &[Value], splices: &mut Vec<Splice>) {
    let Some(span) = array.span() else { return };
    let close = span.end - 1;
    let values: Vec<String> = values.iter().map(write::inline).collect();
    let newline = newline(text);
    let Some(last) = array.iter().filter_map(toml_edit::Value::span).last() else {
        if text[span.start + 1..close].trim().is_empty() {
            splices.push(Splice::replace(span.start + 1..close, values.join(", ")));
        } else {
            // Only comments inside: the elements go to lines of their own before the bracket.
            let at = line_start(text, close);
            let indent = indent(text, at);
            let lines: Vec<String> = values
                .iter()
                .map(|value| format!("{indent}  {value},{newline}"))
                .collect();
            splices.push(Splice::insert(at, lines.concat()));
        }
        return;
    };
    if !text[last.end..close].contains('\n') {
        splices.push(Splice::insert(last.end, format!(", {}", values.join(", "))));
        return;
    }
    let indent = indent(text, last.start);
    let lines = values
        .iter()
        .map(|value| format!("{newline}{indent}{value}"))
        .collect::<Vec<_>>()
        .join(",");
    if let Some(comma) = comma(text, last.end..close) {
        splices.push(Splice::insert(line_end(text, comma), lines + ","));
    } else {
        splices.push(Splice::insert(last.end, ","));
        splices.push(Splice::insert(line_end(text, last.end), lines));
    }
}

/// Takes elements out, and never a comment.
pub(super) fn take(text: &str, array: &Array, values: &[Value], splices: &mut Vec<Splice>) {
    let Some(span) = array.span() else { return };
    let elements: Vec<(Range<usize>, bool)> = array
        .iter()
        .filter_map(|element| Some((element.span()?, values.contains(&scalar_value(element)))))
        .collect();
    remove(text, span.start + 1..span.end - 1, &elements, splices);
}

/// Removes the marked elements of a list between brackets.
pub(super) fn remove(text: &str, inner: Range<usize>, elements: &[(Range<usize>, bool)], splices: &mut Vec<Splice>) {
    let last_kept = elements.iter().rposition(|(_, gone)| !gone);
    for (index, (span, _)) in elements.iter().enumerate().filter(|(_, (_, gone))| *gone) {
        let next = elements.get(index + 1).map_or(inner.end, |(next, _)| next.start);
        let comma = comma(text, span.end..next);
        let line = line_start(text, span.start)..next_line(text, span.end);
        let alone = text[line.start..span.start].trim().is_empty()
            && text[comma.map_or(span.end, |comma| comma + 1)..line_end(text, span.end)]
                .trim()
                .is_empty()
            && line.start >= inner.start
            && line.end <= inner.end;
        if alone {
            splices.push(Splice::delete(line));
        } else if last_kept.is_none_or(|kept| index < kept) && !text[span.end..next].contains('#') {
            let end = if next == inner.end {
                comma.map_or(span.end, |comma| comma + 1)
            } else {
                next
            };
            splices.push(Splice::delete(span.start..end));
        } else if let Some(kept) = last_kept.filter(|kept| index > *kept)
            && !text[elements[kept].0.end..span.start].contains('#')
        {
            splices.push(Splice::delete(elements[kept].0.end..span.end));
        } else {
            splices.push(Splice::delete(span.start..comma.map_or(span.end, |comma| comma + 1)));
        }
    }
}

/// The comma in a range that holds nothing but white space and comments besides.
fn comma(text: &str, range: Range<usize>) -> Option<usize> {
    let mut at = range.start;
    while at < range.end {
        match text.as_bytes()[at] {
            b',' => return Some(at),
            b'#' => at = line_end(text, at),
            _ => at += 1,
        }
    }
    None
}
