use std::{borrow::Cow, path::Path};

use serde_saphyr::{Error as Fault, MessageFormatter, Options, SerializerOptions, UserMessageFormatter};

use super::Spec;
use crate::{Error, Result};

/// The two notations of a CDI file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// `.json`
    Json,
    /// `.yaml`
    Yaml,
}

impl Format {
    /// The notation of a file by its extension; CDI readers look at `.json` and `.yaml` only, not at `.yml`.
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "json" => Some(Self::Json),
            "yaml" => Some(Self::Yaml),
            _ => None,
        }
    }
}

impl Spec {
    /// The text of this spec, keys in CDI's order.
    ///
    /// YAML starts with `---`; JSON is one line without a line break at its end, as the CDI library writes them.
    ///
    /// # Errors
    /// [`Error::Encode`] if the serialiser refuses it, which no known spec makes it do.
    pub fn to_text(&self, format: Format) -> Result<String> {
        match format {
            Format::Json => serde_json::to_string(self).map_err(|error| Error::Encode {
                reason: error.to_string(),
            }),
            Format::Yaml => serde_saphyr::to_string_with_options(self, yaml_options())
                .map(|text| format!("---\n{text}"))
                .map_err(|error| Error::Encode {
                    reason: error.to_string(),
                }),
        }
    }

    /// Reads a spec; an unknown key is an error, and null is nothing, as for every CDI reader. YAML's numbers are those of
    /// version 1.1, in which `0666` is 438.
    ///
    /// The rules of CDI are not checked: see [`validate`](Self::validate).
    ///
    /// # Errors
    /// [`Error::Parse`] with line and column.
    pub fn from_text(text: &str, format: Format) -> Result<Self> {
        match format {
            Format::Json => serde_json::from_str(text).map_err(|error| Error::Parse {
                reason: error.to_string(),
            }),
            Format::Yaml => from_yaml(text).map_err(|fault| Error::Parse {
                reason: fault.render_with_formatter(&Words),
            }),
        }
    }
}

fn from_yaml(text: &str) -> Result<Spec, Fault> {
    match serde_saphyr::from_str_with_options(text, yaml_reading()) {
        // A mark after the only document makes no second one.
        Err(fault @ Fault::MultipleDocuments { .. }) => {
            let specs = serde_saphyr::from_multiple_with_options(text, yaml_reading());
            let only = specs.ok().and_then(|specs| <[Spec; 1]>::try_from(specs).ok());
            only.map(|[spec]| spec).ok_or(fault)
        }
        read => read,
    }
}

/// What is wrong, for whoever wrote the text: the library's own words advise on its settings and on types of Rust.
struct Words;

impl MessageFormatter for Words {
    fn format_message<'a>(&self, fault: &'a Fault) -> Cow<'a, str> {
        let text = match fault {
            Fault::Unexpected { expected, .. } => match *expected {
                "mapping start" => "expected keys with values",
                "sequence start" => "expected a list",
                "string scalar" => "expected a text",
                _ => return UserMessageFormatter.format_message(fault),
            },
            Fault::InvalidScalar { ty, .. } if ty.starts_with(['i', 'u']) => {
                "expected a whole number, and none that is too large"
            }
            Fault::MultipleDocuments { .. } => "there is more than one document",
            Fault::BinaryNotUtf8 { .. } => "what is tagged `!!binary` is no text",
            Fault::RecursiveReferencesRequireWeakTypes { .. } => "an alias is a part of what it stands for",
            Fault::Budget { .. }
            | Fault::AliasReplayCounterOverflow { .. }
            | Fault::AliasReplayLimitExceeded { .. }
            | Fault::AliasExpansionLimitExceeded { .. }
            | Fault::AliasReplayStackDepthExceeded { .. } => {
                "it is too large or too deep, or its aliases repeat too much"
            }
            _ => return UserMessageFormatter.format_message(fault),
        };
        Cow::Borrowed(text)
    }
}

/// Block lists, and long arguments on one line each: people read and grep these files.
fn yaml_options() -> SerializerOptions {
    serde_saphyr::ser_options! {
        compact_list_indent: false,
        prefer_block_scalars: false,
    }
}

/// As Go's YAML reads it, by which CDI files are written: permissions in octal. What is wrong is said in one line, as of JSON.
fn yaml_reading() -> Options {
    serde_saphyr::options! {
        legacy_octal_numbers: true,
        with_snippet: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_text_is_one_line() {
        let reason = |text: &str, format| Spec::from_text(text, format).unwrap_err().to_string();
        assert_eq!(
            reason("kind: [\n x", Format::Yaml),
            "not a CDI spec: expected a text at line 1, column 7"
        );
        assert_eq!(
            reason("{", Format::Json),
            "not a CDI spec: EOF while parsing an object at line 1 column 1"
        );
    }

    const YAML: &str = "\
cdiVersion: 0.6.0
kind: v.com/c
devices:
- name: a
  containerEdits:
    env: [A=1]
";

    #[test]
    fn what_is_wrong_with_yaml_is_said_to_who_wrote_it() {
        #[track_caller]
        fn check(text: &str, expected: &str) {
            let error = Spec::from_text(text, Format::Yaml).unwrap_err().to_string();
            assert_eq!(error, format!("not a CDI spec: {expected}"));
        }
        #[track_caller]
        fn check_with(from: &str, to: &str, expected: &str) {
            assert!(YAML.contains(from));
            check(&YAML.replace(from, to), expected);
        }
        check("", "unexpected end of file at line 1, column 1");
        check("[]", "expected keys with values at line 1, column 1");
        check(
            &format!("{YAML}kind: x\n"),
            "duplicate mapping key `kind` is not allowed here at line 7, column 1",
        );
        check(
            &format!("{YAML}---\n{YAML}"),
            "there is more than one document at line 8, column 1",
        );
        check_with("name: a", "name: ~", "null is not allowed here at line 4, column 9");
        check_with("[A=1]", "A=1", "expected a list at line 6, column 10");
        check_with("A=1", "[]", "expected a text at line 6, column 11");
        check_with("A=1", "*x", "reference to unknown value at line 6, column 11");
        check_with(
            "A=1",
            "!!binary gIGC",
            "what is tagged `!!binary` is no text at line 6, column 20",
        );
        check_with(
            "env: [A=1]",
            "additionalGids: [-1]",
            "expected a whole number, and none that is too large at line 6, column 22",
        );
        let many = format!("[{}]", "a,".repeat(300_000));
        let error = Spec::from_text(&YAML.replace("[A=1]", &many), Format::Yaml)
            .unwrap_err()
            .to_string();
        let expected = "not a CDI spec: it is too large or too deep, or its aliases repeat too much";
        assert!(error.starts_with(expected), "{error}");
    }

    #[test]
    fn a_mark_after_the_document_makes_no_second_one() {
        let spec = Spec::from_text(YAML, Format::Yaml).unwrap();
        for end in [
            "...",
            "...\n# x\n",
            "---\n",
            "--- \n# x\n",
            "---\n---\n",
            "...\n---\n...\n",
            "---\nnull\n",
        ] {
            let read = Spec::from_text(&format!("---\n{YAML}{end}"), Format::Yaml);
            assert_eq!(read.as_ref().ok(), Some(&spec), "{end:?}: {read:?}");
        }
        for start in ["---\n---\n", "---\nnull\n---\n"] {
            assert!(
                Spec::from_text(&format!("{start}{YAML}"), Format::Yaml).is_err(),
                "the first document is the one that others read"
            );
        }
    }

    #[test]
    fn what_go_reads_is_read() {
        let yaml = "
cdiVersion: 0.6.0
kind: nvidia.com/gpu
annotations: null
containerEdits:
devices:
- name: a
  annotations: { x: ~, y: z }
  containerEdits:
    env:
    mounts: null
    hooks: ~
    netDevices: null
    additionalGids: null
    intelRdt: null
    deviceNodes:
    - path: /dev/nvidia0
      fileMode: 0666
      major: null
      hostPath: null
";
        let spec = Spec::from_text(yaml, Format::Yaml).unwrap();
        let annotations: Vec<_> = spec.devices[0].annotations.iter().collect();
        assert_eq!(
            annotations,
            [(&"x".to_owned(), &String::new()), (&"y".to_owned(), &"z".to_owned())]
        );
        let edits = &spec.devices[0].container_edits;
        assert_eq!(
            (edits.device_nodes[0].file_mode, edits.device_nodes[0].major),
            (Some(0o666), 0)
        );
        assert_eq!((edits.env.len(), edits.mounts.len(), &edits.intel_rdt), (0, 0, &None));
        spec.validate().unwrap();
        let modes = |text: &str| {
            let spec = Spec::from_text(&yaml.replace("0666", text), Format::Yaml).unwrap();
            spec.devices[0].container_edits.device_nodes[0].file_mode
        };
        assert_eq!((modes("438"), modes("0o666")), (Some(438), Some(438)));
        // Read again as we write it.
        let again = Spec::from_text(&spec.to_text(Format::Yaml).unwrap(), Format::Yaml).unwrap();
        assert_eq!(again, spec);

        let json = r#"{"cdiVersion": "0.6.0", "kind": "v.com/c", "annotations": null, "containerEdits": null,
            "devices": [{"name": "a", "annotations": null, "containerEdits": {"env": ["A=1"], "mounts": null}}]}"#;
        Spec::from_text(json, Format::Json).unwrap().validate().unwrap();
        for (key, format) in [("mount: null", Format::Yaml), ("\"x\": null", Format::Json)] {
            let text = match format {
                Format::Yaml => yaml.replace("mounts: null", key),
                Format::Json => json.replace("\"mounts\": null", key),
            };
            assert!(
                Spec::from_text(&text, format).is_err(),
                "an unknown key stays an error: {key}"
            );
        }
    }
}
