use std::{
    collections::{BTreeMap, btree_map},
    fmt,
};

use crate::{LabelKey, LabelValue, ParseLabelKeyError, ParseLabelValueError};

/// Labels, by key.
///
/// Displayed as a feature file of Node Feature Discovery: a line `key=value` for each, sorted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels(BTreeMap<LabelKey, LabelValue>);

impl Labels {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&LabelValue> {
        self.0.get(key)
    }

    /// Sets a label, in the place of what it was.
    pub fn insert(&mut self, key: LabelKey, value: LabelValue) {
        self.0.insert(key, value);
    }

    /// All labels, sorted by key.
    pub fn iter(&self) -> btree_map::Iter<'_, LabelKey, LabelValue> {
        self.0.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads a feature file as it is [displayed](fmt::Display); blank lines and comments are passed over.
    ///
    /// # Errors
    /// For a line that is no label.
    pub fn parse_feature_file(text: &str) -> Result<Self, ParseLabelsError> {
        let mut labels = Self::default();
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let (key, value) = text.split_once('=').unwrap_or((text, ""));
            let fail = |source: LineError| ParseLabelsError { line, source };
            let key = key.parse().map_err(|error| fail(LineError::Key(error)))?;
            let value = value.parse().map_err(|error| fail(LineError::Value(error)))?;
            labels.insert(key, value);
        }
        Ok(labels)
    }
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().try_for_each(|(key, value)| writeln!(f, "{key}={value}"))
    }
}

impl FromIterator<(LabelKey, LabelValue)> for Labels {
    fn from_iter<T: IntoIterator<Item = (LabelKey, LabelValue)>>(labels: T) -> Self {
        Self(labels.into_iter().collect())
    }
}

impl Extend<(LabelKey, LabelValue)> for Labels {
    fn extend<T: IntoIterator<Item = (LabelKey, LabelValue)>>(&mut self, labels: T) {
        self.0.extend(labels);
    }
}

impl IntoIterator for Labels {
    type Item = (LabelKey, LabelValue);
    type IntoIter = btree_map::IntoIter<LabelKey, LabelValue>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Labels {
    type Item = (&'a LabelKey, &'a LabelValue);
    type IntoIter = btree_map::Iter<'a, LabelKey, LabelValue>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// A text that is no feature file of labels.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is no label")]
pub struct ParseLabelsError {
    line: usize,
    source: LineError,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum LineError {
    #[error(transparent)]
    Key(ParseLabelKeyError),
    #[error(transparent)]
    Value(ParseLabelValueError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_file_is_read_as_it_is_written() {
        let text = "nvidia.com/gpu.count=8\nnvidia.com/gpu.sharing-strategy=\n";
        let labels = Labels::parse_feature_file(&format!("# ours\n\n{text}")).unwrap();
        assert_eq!(labels.to_string(), text);
        assert_eq!(
            Labels::parse_feature_file("a=b").unwrap_err().to_string(),
            "line 1 is no label"
        );
    }
}
