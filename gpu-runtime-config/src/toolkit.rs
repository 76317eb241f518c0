//! The NVIDIA container toolkit's own `config.toml`, which `gpu-container-runtime` and the vendor's programs read.

use std::path::Path;

use crate::{
    edit::{Format, Op, edit, parse},
    error::{Error, Result},
    value::{Table, Value},
};

mod config;
mod key;
mod unknown;

pub use config::Config;
use key::{KEYS, Key, Kind, is_section};
pub use unknown::UnknownKey;

/// One change of the toolkit's configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Assignment {
    key: Key,
    /// `None` takes the key away, so that its default counts.
    value: Option<Value>,
}

impl Assignment {
    /// Reads `key=value` as `nvidia-ctk config --set` does.
    ///
    /// A flag without a value is set, `nil` takes a key away, and the elements of a list are divided by `separator` or,
    /// if there is none in the value, by commas.
    ///
    /// # Errors
    /// [`Error::UnknownKey`] and [`Error::InvalidValue`].
    pub fn parse(text: &str, separator: &str) -> Result<Assignment> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name.trim(), Some(value)),
            None => (text.trim(), None),
        };
        let key = KEYS.iter().find(|key| key.name() == name).copied();
        let key = key.ok_or_else(|| Error::UnknownKey { key: name.to_owned() })?;
        let value = match value {
            Some("nil") => None,
            value => Some(key.value(value, separator)?),
        };
        Ok(Assignment { key, value })
    }
}

/// The text with the assignments made; comments, order and everything else stay.
///
/// # Errors
/// When the text is not TOML, and when a key on the way holds something other than a table.
///
/// # Example
/// ```
/// use gpu_runtime_config::toolkit::{self, Assignment};
/// let set = [Assignment::parse("nvidia-container-runtime.log-level=debug", ":")?];
/// let text = toolkit::set("config.toml".as_ref(), "[nvidia-container-runtime]\nlog-level = \"info\" # quiet\n", &set)?;
/// assert_eq!(text, "[nvidia-container-runtime]\nlog-level = \"debug\" # quiet\n");
/// # Ok::<(), gpu_runtime_config::Error>(())
/// ```
pub fn set(path: &Path, text: &str, assignments: &[Assignment]) -> Result<String> {
    let mut result = text.to_owned();
    for Assignment { key, value } in assignments {
        let keys: Vec<&str> = key.path().collect();
        let op = match value {
            None => Op::Remove(keys.iter().map(|key| (*key).to_owned()).collect()),
            Some(value) => {
                match Value::nested(&keys, value.clone()).missing_from(Some(&parse(Format::Toml, path, &result)?)) {
                    Some(Value::Table(missing)) => Op::Merge(missing),
                    _ => continue,
                }
            }
        };
        result = edit(Format::Toml, path, &result, &[op])?;
    }
    Ok(result)
}

/// The vendor's defaults, as `nvidia-ctk config default` gives them: a key without a default is a comment with an example.
pub fn defaults() -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut section = "";
    for (key, line) in KEYS.iter().filter_map(|key| Some((key, key.line()?))) {
        if key.section != section {
            section = key.section;
            lines.extend([String::new(), format!("[{section}]")]);
        }
        lines.push(line);
    }
    lines.join("\n") + "\n"
}

/// Checks a whole file: that it is TOML and that every key is one of the toolkit's, with a value of its type.
///
/// # Errors
/// The first fault found, in the order of the keys.
pub fn check(path: &Path, text: &str) -> Result<()> {
    check_table(path, &parse(Format::Toml, path, text)?, "")
}

fn check_table(path: &Path, value: &Value, above: &str) -> Result<()> {
    let empty = Table::new();
    for (name, value) in value.as_table().unwrap_or(&empty) {
        let name = if above.is_empty() {
            name.clone()
        } else {
            format!("{above}.{name}")
        };
        match KEYS.iter().find(|key| key.name() == name) {
            Some(key) => key.check(value, Some(path))?,
            None if is_section(&name) && value.as_table().is_some() => check_table(path, value, &name)?,
            None => return Err(Error::UnknownKey { key: name }),
        }
    }
    Ok(())
}

impl Kind {
    fn expected(self) -> String {
        match self {
            Kind::Flag => "true or false".to_owned(),
            Kind::Text => "a string".to_owned(),
            Kind::Choice(choices) => format!("one of {}", choices.join(", ")),
            Kind::List => "a list of strings".to_owned(),
        }
    }
}

impl Key {
    fn value(&self, text: Option<&str>, separator: &str) -> Result<Value> {
        let value = match (self.kind, text) {
            (Kind::Flag, None) => Value::Bool(true),
            (Kind::Flag, Some("true" | "false")) => Value::Bool(text == Some("true")),
            (Kind::Text | Kind::Choice(_), Some(text)) => Value::string(text),
            (Kind::List, Some("")) => Value::Array(vec![]),
            (Kind::List, Some(text)) if !separator.is_empty() && text.contains(separator) => {
                Value::strings(text.split(separator))
            }
            (Kind::List, Some(text)) => Value::strings(text.split(',')),
            (_, text) => return Err(self.invalid(text.unwrap_or_default(), None)),
        };
        self.check(&value, None).map(|()| value)
    }

    fn check(&self, value: &Value, path: Option<&Path>) -> Result<()> {
        let fits = match (self.kind, value) {
            (Kind::Flag, Value::Bool(_)) | (Kind::Text, Value::String(_)) => true,
            (Kind::Choice(choices), Value::String(text)) => choices.contains(&text.as_str()),
            (Kind::List, Value::Array(items)) => items.iter().all(|item| item.as_str().is_some()),
            _ => false,
        };
        if fits {
            Ok(())
        } else {
            Err(self.invalid(value.as_str().unwrap_or(value.kind()), path))
        }
    }

    fn invalid(&self, value: &str, path: Option<&Path>) -> Error {
        Error::InvalidValue {
            path: path.map(Path::to_owned),
            key: self.name(),
            value: value.to_owned(),
            expected: self.kind.expected(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_set(assignment: &str, text: &str, expected: &str) {
        let assignment = Assignment::parse(assignment, ":").unwrap();
        let edited = set(Path::new("c"), text, std::slice::from_ref(&assignment)).unwrap();
        assert_eq!(edited, expected);
        assert_eq!(set(Path::new("c"), &edited, &[assignment]).unwrap(), expected, "twice");
    }

    #[test]
    fn the_defaults_are_valid() {
        check(Path::new("c"), &defaults()).unwrap();
    }

    #[test]
    fn values_are_read_by_the_type_of_their_key() {
        check_set(
            "features.allow-ldconfig-from-container",
            "",
            "[features]\nallow-ldconfig-from-container = true\n",
        );
        check_set(
            "nvidia-container-runtime.runtimes=crun:runc",
            "# mine\n[nvidia-container-runtime]\nruntimes = [\"runc\"] # x\n",
            "# mine\n[nvidia-container-runtime]\nruntimes = [\"crun\", \"runc\"] # x\n",
        );
        check_set(
            "disable-require=nil",
            "disable-require = true\n[features]\n",
            "[features]\n",
        );
        check_set("swarm-resource=a=b", "", "swarm-resource = \"a=b\"\n");
    }

    #[test]
    fn wrong_keys_and_values_are_named() {
        let refuse = |text: &str| Assignment::parse(text, ":").unwrap_err().to_string();
        assert_eq!(refuse("b/"), "the toolkit's configuration has no key `b/`");
        assert_eq!(
            refuse("disable-require=maybe"),
            "`maybe` does not fit `disable-require`: true or false"
        );
        assert_eq!(
            refuse("nvidia-container-runtime.modes.legacy.cuda-compat-mode=x"),
            "`x` does not fit `nvidia-container-runtime.modes.legacy.cuda-compat-mode`: one of ldconfig, mount, hook, disabled"
        );
        let wrong = check(Path::new("c"), "[nvidia-ctk]\npath = 1\n")
            .unwrap_err()
            .to_string();
        assert_eq!(wrong, "`a number` does not fit `nvidia-ctk.path` of `c`: a string");
        let unknown = check(Path::new("c"), "[nvidia-ctk]\npaht = \"\"\n")
            .unwrap_err()
            .to_string();
        assert_eq!(unknown, "the toolkit's configuration has no key `nvidia-ctk.paht`");
    }
}
