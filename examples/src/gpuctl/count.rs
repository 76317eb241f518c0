//! Numbers of things, for people.

/// `1 file`, `2 files`.
pub(super) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        assert_eq!([0, 1, 2].map(|n| count(n, "file")), ["0 files", "1 file", "2 files"]);
    }
}
