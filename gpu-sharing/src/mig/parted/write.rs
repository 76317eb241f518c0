use std::{cmp::Ordering, collections::BTreeMap, fmt::Write as _};

use super::{Configs, Devices, Spec};
use crate::mig::Profile;

impl Configs {
    /// The file as the vendor's programs write it, byte for byte.
    pub fn to_yaml(&self, form: Form) -> String {
        let mut text = "version: v1\nmig-configs:\n".to_owned();
        for name in natural(self.configs.keys().map(String::as_str)) {
            let _ = writeln!(text, "  {}:", plain(name));
            for spec in &self.configs[name] {
                spec.write(&mut text, form);
            }
        }
        text
    }

    /// The same as JSON, indented by two.
    pub fn to_json(&self, form: Form) -> String {
        let configs = self.configs.iter();
        let configs: BTreeMap<_, Vec<_>> = configs
            .map(|(name, specs)| (name, specs.iter().map(|spec| spec.json(form)).collect()))
            .collect();
        let version = "{\n  \"version\": \"v1\",\n  \"mig-configs\": ";
        let body = serde_json::to_string_pretty(&configs).unwrap_or_default();
        format!("{version}{}\n}}", body.replace('\n', "\n  "))
    }
}

/// Whose writing a file has; they are read alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The one of `export`: one device filter is a text.
    Exported,
    /// The one of `generate-config`: one device filter is a list, and JSON has no instances as `null` without MIG mode.
    Generated,
}

/// In the order in which the vendor writes the keys of JSON.
#[derive(serde::Serialize)]
#[serde(rename_all = "kebab-case")]
struct Json<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    device_filter: Option<OneOrMore<String>>,
    devices: OneOrMore<DeviceJson<'a>>,
    mig_enabled: bool,
    mig_devices: Option<BTreeMap<&'a str, u32>>,
}

#[derive(serde::Serialize)]
#[serde(untagged)]
enum OneOrMore<T> {
    One(T),
    More(Vec<T>),
}

#[derive(serde::Serialize)]
#[serde(untagged)]
enum DeviceJson<'a> {
    All(&'a str),
    Index(u32),
}

impl Spec {
    fn filters(&self, form: Form) -> Option<OneOrMore<String>> {
        match self.device_filter.as_slice() {
            [] => None,
            [filter] if form == Form::Exported => Some(OneOrMore::One(filter.to_string())),
            more => Some(OneOrMore::More(more.iter().map(ToString::to_string).collect())),
        }
    }

    fn json(&self, form: Form) -> Json<'_> {
        Json {
            device_filter: self.filters(form),
            devices: match &self.devices {
                Devices::All => OneOrMore::One(DeviceJson::All("all")),
                Devices::Indices(indices) => {
                    OneOrMore::More(indices.iter().map(|&index| DeviceJson::Index(index)).collect())
                }
            },
            mig_enabled: self.mig_enabled,
            mig_devices: (self.mig_enabled || form == Form::Exported).then(|| {
                let devices = self.mig_devices.iter();
                devices.map(|(profile, &n)| (profile.as_str(), n)).collect()
            }),
        }
    }

    fn write(&self, text: &mut String, form: Form) {
        let devices = match &self.devices {
            Devices::All => "all".to_owned(),
            Devices::Indices(indices) => {
                let indices: Vec<_> = indices.iter().map(ToString::to_string).collect();
                format!("[{}]", indices.join(", "))
            }
        };
        let start = match self.filters(form) {
            None => "  - ",
            Some(filters) => {
                let filters = match filters {
                    OneOrMore::One(one) => format!("\"{one}\""),
                    OneOrMore::More(more) => format!("[\"{}\"]", more.join("\", \"")),
                };
                let _ = writeln!(text, "  - device-filter: {filters}");
                "    "
            }
        };
        let _ = writeln!(text, "{start}devices: {devices}\n    mig-enabled: {}", self.mig_enabled);
        if self.mig_devices.is_empty() {
            text.push_str("    mig-devices: {}\n");
            return;
        }
        text.push_str("    mig-devices:\n");
        let names: Vec<_> = self.mig_devices.keys().map(Profile::as_str).collect();
        for name in natural(names.into_iter()) {
            let count = self.mig_devices.iter().find(|(profile, _)| profile.as_str() == name);
            let _ = writeln!(text, "      {name}: {}", count.map_or(0, |(_, &count)| count));
        }
    }
}

/// A name as YAML has it, in quotes where it would not be a text without.
fn plain(name: &str) -> String {
    let safe = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'+');
    let word = name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.bytes().all(safe);
    let reserved = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];
    if word && !reserved.contains(&name.to_ascii_lowercase().as_str()) {
        name.to_owned()
    } else {
        serde_json::to_string(name).unwrap_or_default()
    }
}

/// In the order of the vendor's writer: numbers within names count as numbers.
fn natural<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut names: Vec<_> = names.collect();
    names.sort_by(|a, b| compare(a, b));
    names
}

fn compare(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a, b);
    loop {
        let (left, right) = (digits(a), digits(b));
        if left > 0 && right > 0 {
            let number = |text: &str| text.parse::<u128>().unwrap_or(u128::MAX);
            let order = number(&a[..left]).cmp(&number(&b[..right])).then(left.cmp(&right));
            if order != Ordering::Equal {
                return order;
            }
            (a, b) = (&a[left..], &b[right..]);
            continue;
        }
        let (x, y) = match (a.chars().next(), b.chars().next()) {
            (Some(x), Some(y)) => (x, y),
            (x, y) => return x.cmp(&y),
        };
        if x != y {
            // Letters come after all that is none.
            return x.is_alphabetic().cmp(&y.is_alphabetic()).then(x.cmp(&y));
        }
        (a, b) = (&a[x.len_utf8()..], &b[y.len_utf8()..]);
    }
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_the_order_of_their_numbers() {
        let names = [
            "all-2g.20gb",
            "all-1g.10gb.me",
            "all-enabled",
            "all-1g.5gb",
            "all-1g.10gb",
            "a",
        ];
        let sorted = [
            "a",
            "all-1g.5gb",
            "all-1g.10gb",
            "all-1g.10gb.me",
            "all-2g.20gb",
            "all-enabled",
        ];
        assert_eq!(natural(names.into_iter()), sorted);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let text = "version: v1\nmig-configs:\n  \"7\":\n  - device-filter: \"0x20B010DE:0x134710DE\"\n    devices: [0, 2]\n    \
                    mig-enabled: true\n    mig-devices:\n      1g.5gb: 2\n      1g.5gb+me: 1\n  off:\n  - device-filter: \
                    [\"0x20B010DE\", \"0x233010DE\"]\n    devices: all\n    mig-enabled: false\n    mig-devices: {}\n";
        let text = text.replace("  off:", "  \"off\":");
        let configs = Configs::parse(&text).unwrap();
        assert_eq!(configs.to_yaml(Form::Exported), text);
        let list = text.replace("\"0x20B010DE:0x134710DE\"", "[\"0x20B010DE:0x134710DE\"]");
        assert_eq!(configs.to_yaml(Form::Generated), list);
        for form in [Form::Exported, Form::Generated] {
            assert_eq!(Configs::parse(&configs.to_yaml(form)).unwrap(), configs);
            assert_eq!(Configs::parse(&configs.to_json(form)).unwrap(), configs);
        }
        assert!(configs.to_json(Form::Exported).contains("\"mig-devices\": {}"));
        assert!(configs.to_json(Form::Generated).contains("\"mig-devices\": null"));
    }
}
