use std::{fmt, str::FromStr};

/// The value of a label: at most 63 letters, digits, `-`, `_` and `.`, with a letter or digit at either end; or nothing.
///
/// Any text becomes one by [`sanitized`](Self::sanitized), any text with an ending that has to stay by
/// [`suffixed`](Self::suffixed).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LabelValue(String);

impl LabelValue {
    /// The longest value.
    pub const MAX_LEN: usize = 63;

    /// The value.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The value that a text becomes.
    ///
    /// What Kubernetes does not take is left out, runs of blanks become one dash, and so far this is the vendor's rule. Then,
    /// so that every value is valid: of a text that is too long the last words are left out, words being what stands between
    /// dashes, or the last characters where the first word is too long already; and what is neither letter nor digit is
    /// left out at either end.
    ///
    /// ```
    /// use gpu_labels::LabelValue;
    /// assert_eq!(LabelValue::sanitized("NVIDIA H100 80GB HBM3").as_str(), "NVIDIA-H100-80GB-HBM3");
    /// assert_eq!(LabelValue::sanitized("To Be Filled By O.E.M.").as_str(), "To-Be-Filled-By-O.E.M");
    /// ```
    pub fn sanitized(text: &str) -> Self {
        Self(shortened(&cleaned(text), Self::MAX_LEN).to_owned())
    }

    /// A text with an ending: where the two are too long, the text gives way, by the rule of
    /// [`sanitized`](Self::sanitized), and the ending stays.
    ///
    /// ```
    /// use gpu_labels::LabelValue;
    /// let name = "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition";
    /// let value = LabelValue::suffixed(name, "-MIG-1g.24gb");
    /// assert_eq!(value.as_str(), "NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workstation-MIG-1g.24gb");
    /// ```
    pub fn suffixed(text: &str, suffix: &str) -> Self {
        let suffix = cleaned(suffix);
        match Self::MAX_LEN.checked_sub(suffix.len()) {
            Some(room) if room > 0 => {
                let whole = format!("{}{suffix}", shortened(&cleaned(text), room));
                Self(shortened(&whole, Self::MAX_LEN).to_owned())
            }
            // An ending as long as that says enough.
            _ => Self(shortened(&suffix, Self::MAX_LEN).to_owned()),
        }
    }
}

/// The vendor's rule (k8s-device-plugin v0.20.0, `internal/lm`).
fn cleaned(text: &str) -> String {
    let kept = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ' ');
    let text: String = text.chars().filter(kept).collect();
    text.split_whitespace().collect::<Vec<_>>().join("-")
}

/// The start of a cleaned text that fits, without what may not be at an end.
fn shortened(text: &str, room: usize) -> &str {
    let text = trimmed(text);
    if text.len() <= room {
        return text;
    }
    // The character after the last one that fits may be the dash that ends a word.
    let cut = match text[..=room].rfind('-') {
        Some(dash) if !trimmed(&text[..dash]).is_empty() => dash,
        _ => room,
    };
    trimmed(&text[..cut])
}

fn trimmed(text: &str) -> &str {
    text.trim_matches(|c: char| !c.is_ascii_alphanumeric())
}

pub(crate) fn is_label_value(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    text.len() <= LabelValue::MAX_LEN && text.bytes().all(inner) && trimmed(text).len() == text.len()
}

impl fmt::Display for LabelValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for LabelValue {
    type Err = ParseLabelValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if is_label_value(text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(ParseLabelValueError { text: text.to_owned() })
        }
    }
}

impl From<u64> for LabelValue {
    fn from(number: u64) -> Self {
        Self(number.to_string())
    }
}

impl From<u32> for LabelValue {
    fn from(number: u32) -> Self {
        Self(number.to_string())
    }
}

impl From<bool> for LabelValue {
    fn from(value: bool) -> Self {
        Self(value.to_string())
    }
}

/// A text that is no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not the value of a label: expected at most 63 letters, digits, `-`, `_` and `.`, with a letter or digit at \
     either end"
)]
pub struct ParseLabelValueError {
    text: String,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_become_values_as_the_vendors_do() {
        #[track_caller]
        fn check(text: &str, expected: &str) {
            assert_eq!(LabelValue::sanitized(text).as_str(), expected);
        }
        check("NVIDIA A100-SXM4-40GB", "NVIDIA-A100-SXM4-40GB");
        check("Tesla  V100\t(SXM2)", "Tesla-V100SXM2");
        check("NVIDIA TITAN X_1 (Pascal)", "NVIDIA-TITAN-X_1-Pascal");
        check("ГПУ 1", "1");
        check("", "");
        check("...", "");
        check("unknown", "unknown");
    }

    #[test]
    fn what_is_too_long_loses_its_last_words_and_keeps_its_ending() {
        #[track_caller]
        fn check(text: &str, suffix: &str, expected: &str) {
            assert_eq!(LabelValue::suffixed(text, suffix).as_str(), expected);
        }
        let name = "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition";
        check(name, "", "NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workstation-Edition");
        check(
            name,
            "-MIG-1g.24gb-SHARED",
            "NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-MIG-1g.24gb-SHARED",
        );
        check(&"x".repeat(70), "-SHARED", &format!("{}-SHARED", "x".repeat(56)));
        check("A ()", "-SHARED", "A-SHARED");
        check("", "-SHARED", "SHARED");
        check("A", &"y".repeat(80), &"y".repeat(63));
    }

    proptest! {
        #[test]
        fn any_text_becomes_a_value(text in ".{0,90}", suffix in ".{0,70}") {
            for value in [LabelValue::sanitized(&text), LabelValue::suffixed(&text, &suffix)] {
                prop_assert!(value.as_str().parse::<LabelValue>().is_ok(), "{value}");
            }
        }

        #[test]
        fn a_valid_value_stays_as_it_is(text in "[a-zA-Z0-9]([a-zA-Z0-9_.-]{0,60}[a-zA-Z0-9])?") {
            let value = LabelValue::sanitized(&text);
            prop_assert_eq!(value.as_str(), text);
        }
    }
}
