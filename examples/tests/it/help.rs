//! What `--help` says.

use std::collections::BTreeSet;

/// The flags that a help text names, but for those that every program has.
pub(crate) fn flags(text: &str) -> BTreeSet<String> {
    let flag = |line: &str| {
        let line = line.trim_start();
        let long = line.split_once(", ").filter(|(short, _)| short.len() == 2);
        let name = long.map_or(line, |(_, long)| long).strip_prefix("--")?;
        let end = name.find(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '-'));
        Some(name[..end.unwrap_or(name.len())].to_owned())
    };
    let mut flags: BTreeSet<_> = text.lines().filter_map(flag).collect();
    assert!(flags.remove("help") && flags.remove("version"), "{text}");
    flags
}
