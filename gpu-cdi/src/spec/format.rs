use std::path::Path;

use serde_saphyr::{Options, SerializerOptions};

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
            Format::Yaml => serde_saphyr::from_str_with_options(text, yaml_reading()).map_err(|error| Error::Parse {
                reason: error.to_string(),
            }),
        }
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
            "not a CDI spec: expected string scalar at line 1, column 7"
        );
        assert_eq!(
            reason("{", Format::Json),
            "not a CDI spec: EOF while parsing an object at line 1 column 1"
        );
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
