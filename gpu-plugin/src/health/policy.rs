use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
    time::Duration,
};

/// What an Xid says of its GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum XidClass {
    /// Nothing: it is not even logged.
    Ignore,
    /// An application caused it, or the driver has handled it: it is logged, and the GPU stays healthy.
    Application,
    /// The GPU is unhealthy until it has been sound for a while: after a reset, or after the application was started anew.
    ResetRequired,
    /// The GPU is unhealthy until it was away (lost, or its driver loaded anew) or waited for a reset and got it, and has been sound for
    /// a while since.
    Fatal,
}

impl XidClass {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Ignore, "ignore"),
        (Self::Application, "application"),
        (Self::ResetRequired, "reset-required"),
        (Self::Fatal, "fatal"),
    ];
}

impl fmt::Display for XidClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, word) = Self::ALL[*self as usize];
        f.pad(word)
    }
}

/// Xids that an application causes, or that the driver handles itself: they say nothing of the GPU
/// (k8s-device-plugin v0.20.0, `internal/rm/health.go`).
///
/// 13 graphics engine exception, 31 memory page fault, 43 stopped processing, 45 preemptive cleanup, 68 video processor
/// exception, 109 context switch timeout.
const APPLICATION_XIDS: [u64; 6] = [13, 31, 43, 45, 68, 109];

/// 79: the GPU has fallen off the bus. It cannot be sound before it is back, or was reset.
const FATAL_XIDS: [u64; 1] = [79];

/// Which events mark a GPU unhealthy, and when it is healthy again.
///
/// By default every Xid except those that an application causes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthPolicy {
    disabled: Xids,
    enabled: Xids,
    classes: BTreeMap<u64, XidClass>,
    /// How long a GPU must have been sound to be healthy again. Default: one minute.
    pub quiet: Duration,
    /// Between two looks at a GPU that is not healthy. Default: 5 seconds.
    pub probe_interval: Duration,
}

/// Some Xids, or all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Xids {
    all: bool,
    numbers: BTreeSet<u64>,
}

impl Xids {
    fn contains(&self, xid: u64) -> bool {
        self.all || self.numbers.contains(&xid)
    }

    /// Reads a comma-separated list; what it does not understand is returned beside it.
    fn parse(text: &str) -> (Self, Vec<String>) {
        let mut xids = Self::default();
        let mut unknown = Vec::new();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match (word.to_ascii_lowercase().as_str(), word.parse()) {
                ("all" | "xids", _) => xids.all = true,
                (_, Ok(number)) => drop(xids.numbers.insert(number)),
                (_, Err(_)) => unknown.push(word.to_owned()),
            }
        }
        (xids, unknown)
    }
}

impl HealthPolicy {
    /// From the vendor's two lists: [`DISABLE_HEALTHCHECKS`](crate::names::DISABLE_HEALTHCHECKS) and
    /// [`ENABLE_HEALTHCHECKS`](crate::names::ENABLE_HEALTHCHECKS).
    ///
    /// Enabled wins over disabled, also over `all`. Words that are neither a number nor `all` nor `xids` are returned beside
    /// the policy and have no effect.
    pub fn new(disabled: &str, enabled: &str) -> (Self, Vec<String>) {
        let (disabled, mut unknown) = Xids::parse(disabled);
        let (enabled, unknown_enabled) = Xids::parse(enabled);
        unknown.extend(unknown_enabled);
        let policy = Self {
            disabled,
            enabled,
            classes: BTreeMap::new(),
            quiet: Duration::from_mins(1),
            probe_interval: Duration::from_secs(5),
        };
        (policy, unknown)
    }

    /// The same, with these classes in the place of all else that speaks of their Xids.
    #[must_use]
    pub fn with_classes(mut self, classes: BTreeMap<u64, XidClass>) -> Self {
        self.classes = classes;
        self
    }

    /// Reads classes as in `94=application,48=fatal`.
    ///
    /// # Errors
    /// For a pair that is not an Xid and a class.
    pub fn parse_classes(text: &str) -> Result<BTreeMap<u64, XidClass>, ParseXidClassError> {
        let pair = |pair: &str| {
            let error = || ParseXidClassError { text: pair.to_owned() };
            let (xid, class) = pair.split_once('=').ok_or_else(error)?;
            Ok((xid.trim().parse().map_err(|_| error())?, class.trim().parse()?))
        };
        text.split(',')
            .map(str::trim)
            .filter(|text| !text.is_empty())
            .map(pair)
            .collect()
    }

    /// What an Xid says of its GPU.
    pub fn class(&self, xid: u64) -> XidClass {
        if let Some(class) = self.classes.get(&xid) {
            return *class;
        }
        let usual = match xid {
            xid if FATAL_XIDS.contains(&xid) => XidClass::Fatal,
            xid if APPLICATION_XIDS.contains(&xid) => XidClass::Application,
            _ => XidClass::ResetRequired,
        };
        if self.enabled.contains(xid) {
            usual.max(XidClass::ResetRequired)
        } else if self.disabled.contains(xid) {
            XidClass::Application
        } else {
            usual
        }
    }

    /// Whether a GPU's own account of its memory counts: not where all checks are disabled.
    pub fn examines(&self) -> bool {
        !self.disabled.all
    }
}

impl Default for HealthPolicy {
    fn default() -> Self {
        Self::new("", "").0
    }
}

impl FromStr for XidClass {
    type Err = ParseXidClassError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|(_, word)| *word == text);
        found
            .map(|(class, _)| class)
            .ok_or_else(|| ParseXidClassError { text: text.to_owned() })
    }
}

/// A text that gives no Xid a class.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}`: expected an Xid and its class, as in `94=application`; classes are ignore, application, reset-required and fatal"
)]
pub struct ParseXidClassError {
    text: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(policy: &HealthPolicy, fatal: &[u64], harmless: &[u64]) {
        for xid in fatal {
            assert!(policy.class(*xid) >= XidClass::ResetRequired, "{xid}");
        }
        for xid in harmless {
            assert!(policy.class(*xid) <= XidClass::Application, "{xid}");
        }
    }

    #[track_caller]
    fn check_lists(disabled: &str, enabled: &str, fatal: &[u64], harmless: &[u64]) {
        check(&HealthPolicy::new(disabled, enabled).0, fatal, harmless);
    }

    #[test]
    fn application_xids_are_harmless_by_default() {
        check_lists("", "", &[48, 63, 74, 79, 94, 95, 119], &[13, 31, 43, 45, 68, 109]);
    }

    #[test]
    fn disabled_xids_are_harmless() {
        check_lists("79, 48", "", &[74], &[79, 48, 13]);
        check_lists("all", "", &[], &[13, 79]);
        check_lists("XIDS", "", &[], &[13, 79]);
    }

    #[test]
    fn enabled_xids_win() {
        check_lists("", "13", &[13, 79], &[31]);
        check_lists("", "all", &[13, 31, 79], &[]);
        check_lists("all", "79", &[79], &[13, 48]); // the vendor's plugin then watches nothing at all
        assert_eq!(HealthPolicy::new("all", "79").0.class(79), XidClass::Fatal);
    }

    #[test]
    fn classes_win_over_both_lists() {
        let classes = HealthPolicy::parse_classes("94=application, 79=ignore,13=fatal").unwrap();
        let (policy, _) = HealthPolicy::new("13", "79");
        let policy = policy.with_classes(classes);
        check(&policy, &[13, 95], &[79, 94]);
        for bad in ["94", "94=", "x=fatal", "94=deadly", "94=fatal;95=fatal"] {
            HealthPolicy::parse_classes(bad).unwrap_err();
        }
        assert_eq!("fatal".parse(), Ok(XidClass::Fatal));
        assert_eq!(XidClass::ResetRequired.to_string(), "reset-required");
    }

    #[test]
    fn words_without_meaning_are_named() {
        let (policy, unknown) = HealthPolicy::new("79,-3,ecc", "x");
        assert_eq!(unknown, ["-3", "ecc", "x"]);
        assert_eq!(policy.class(79), XidClass::Application);
    }
}
