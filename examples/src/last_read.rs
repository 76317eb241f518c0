//! When to read a configuration file again.

use crate::program;

/// What a configuration file said when it was read last, where there is one, or why it could not be read: what was refused is read again
/// when it is something else, and so is what is in force.
pub(crate) struct LastRead(Result<Option<String>, String>);

impl LastRead {
    pub(crate) fn new(text: Option<String>) -> Self {
        Self(Ok(text))
    }

    /// Takes note of what it says now. Whether that is something else.
    pub(crate) fn look(&mut self, text: anyhow::Result<Option<String>>) -> bool {
        let text = text.map_err(|error| program::chain(&error));
        let changed = self.0 != text;
        self.0 = text;
        changed
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn each_change_is_news_once_whether_it_can_be_read_or_not() {
        let mut last = LastRead::new(Some("a".to_owned()));
        let mut news = |text: Result<&str, &'static str>| {
            let text = || text.map(|text| Some(text.to_owned())).map_err(|error| anyhow!(error));
            let first = last.look(text());
            assert!(!last.look(text()), "it is no news the second time");
            first
        };
        assert!(!news(Ok("a")));
        assert!(news(Ok("b")));
        assert!(news(Err("no such file")));
        assert!(news(Err("it is no file")));
        assert!(news(Ok("a")));
        let mut none = LastRead::new(None);
        assert!(!none.look(Ok(None)));
        assert!(none.look(Ok(Some(String::new()))));
    }
}
