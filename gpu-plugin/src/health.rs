use std::collections::BTreeSet;

use gpu_core::nvml::HealthEventKind;

/// Xids that an application causes, or that the driver handles itself: they say nothing of the GPU
/// (k8s-device-plugin v0.20.0, `internal/rm/health.go`).
///
/// 13 graphics engine exception, 31 memory page fault, 43 stopped processing, 45 preemptive cleanup, 68 video processor
/// exception, 109 context switch timeout.
const APPLICATION_XIDS: [u64; 6] = [13, 31, 43, 45, 68, 109];

/// Which events mark a GPU unhealthy.
///
/// By default every Xid except those that an application causes. ECC events never do: an uncorrectable error that harms
/// the GPU comes with an Xid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthPolicy {
    disabled: Xids,
    enabled: Xids,
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
        let (mut disabled, mut unknown) = Xids::parse(disabled);
        let (enabled, unknown_enabled) = Xids::parse(enabled);
        disabled.numbers.extend(APPLICATION_XIDS);
        unknown.extend(unknown_enabled);
        (Self { disabled, enabled }, unknown)
    }

    /// Whether this event marks its GPU unhealthy.
    pub fn is_fatal(&self, event: HealthEventKind) -> bool {
        match event {
            HealthEventKind::Xid(xid) => self.enabled.contains(xid) || !self.disabled.contains(xid),
            _ => false,
        }
    }
}

impl Default for HealthPolicy {
    fn default() -> Self {
        Self::new("", "").0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(disabled: &str, enabled: &str, fatal: &[u64], harmless: &[u64]) {
        let (policy, _) = HealthPolicy::new(disabled, enabled);
        for xid in fatal {
            assert!(policy.is_fatal(HealthEventKind::Xid(*xid)), "{xid}");
        }
        for xid in harmless {
            assert!(!policy.is_fatal(HealthEventKind::Xid(*xid)), "{xid}");
        }
    }

    #[test]
    fn application_xids_are_harmless_by_default() {
        check("", "", &[48, 63, 74, 79, 95, 119], &[13, 31, 43, 45, 68, 109]);
        assert!(!HealthPolicy::default().is_fatal(HealthEventKind::DoubleBitEcc));
    }

    #[test]
    fn disabled_xids_are_harmless() {
        check("79, 48", "", &[74], &[79, 48, 13]);
        check("all", "", &[], &[13, 79]);
        check("XIDS", "", &[], &[13, 79]);
    }

    #[test]
    fn enabled_xids_win() {
        check("", "13", &[13, 79], &[31]);
        check("", "all", &[13, 31, 79], &[]);
        check("all", "79", &[79], &[13, 48]); // the vendor's plugin then watches nothing at all
    }

    #[test]
    fn words_without_meaning_are_named() {
        let (policy, unknown) = HealthPolicy::new("79,-3,ecc", "x");
        assert_eq!(unknown, ["-3", "ecc", "x"]);
        assert!(!policy.is_fatal(HealthEventKind::Xid(79)));
    }
}
