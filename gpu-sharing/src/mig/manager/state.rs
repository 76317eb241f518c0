use std::{fmt, time::Duration};

use super::{Change, NodeMeta, lease::restored, names};

/// How far a node is with the configuration that it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// It is being applied, and who uses GPUs waits.
    Pending,
    /// It is applied but for a reboot.
    Rebooting,
    /// It is applied.
    Success,
    /// It is not.
    Failed,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pending => "pending",
            Self::Rebooting => "rebooting",
            Self::Success => "success",
            Self::Failed => "failed",
        })
    }
}

/// A state and the value that it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome<'a> {
    /// The state.
    pub state: State,
    /// The value of [`names::CONFIG`].
    pub value: &'a str,
    /// Why not, in a few sentences.
    pub reason: Option<&'a str>,
}

impl Outcome<'_> {
    /// Reports the state with its value, and lets everybody go on: always both in one patch. Services of the host that did not
    /// start stay noted in the lease.
    pub fn end(&self, node: &NodeMeta, unstarted: &[String]) -> Change {
        let mut change = self.report();
        if self.state == State::Success || node.rebooted_for() != Some(self.value) {
            change.annotations.insert(names::REBOOTED.to_owned(), None);
        }
        let restored = restored(node, unstarted);
        change.labels.extend(restored.labels);
        change.annotations.extend(restored.annotations);
        node.missing(&change)
    }

    /// Reports the state with its value, and lets those wait who wait.
    pub fn report(&self) -> Change {
        let mut change = Change::default();
        change
            .labels
            .insert(names::STATE.to_owned(), Some(self.state.to_string()));
        change
            .annotations
            .insert(names::STATE_VALUE.to_owned(), Some(self.value.to_owned()));
        change
            .annotations
            .insert(names::STATE_REASON.to_owned(), self.reason.map(shortened));
        if self.state == State::Rebooting {
            let value = Some(self.value.to_owned());
            change.annotations.insert(names::REBOOTED.to_owned(), value);
        }
        change
    }

    /// Whether this is what a node reports already.
    pub fn is_reported(&self, node: &NodeMeta) -> bool {
        node.missing(&self.report()).is_empty()
    }
}

/// As much as an annotation should hold.
fn shortened(text: &str) -> String {
    const MOST: usize = 1000;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The pauses between attempts: each twice as long as the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackOff {
    next: Duration,
}

impl BackOff {
    /// The first pause.
    pub const FIRST: Duration = Duration::from_secs(5);
    /// The longest.
    pub const MOST: Duration = Duration::from_mins(5);

    /// From the first pause on.
    pub fn new() -> Self {
        Self { next: Self::FIRST }
    }

    /// The pause before the next attempt.
    pub fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(Self::MOST);
        pause
    }
}

impl Default for BackOff {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_says_of_which_value_and_an_old_reason_goes() {
        let mut node = NodeMeta::default();
        let failed = Outcome {
            state: State::Failed,
            value: "a",
            reason: Some("no room"),
        };
        node.apply(&failed.end(&node, &[]));
        assert_eq!(node.annotations[names::STATE_REASON], "no room");
        assert!(failed.is_reported(&node));
        let good = Outcome {
            state: State::Success,
            value: "b",
            reason: None,
        };
        assert!(!good.is_reported(&node));
        node.apply(&good.end(&node, &[]));
        assert_eq!(
            (
                node.labels[names::STATE].as_str(),
                node.annotations[names::STATE_VALUE].as_str()
            ),
            ("success", "b")
        );
        assert!(!node.annotations.contains_key(names::STATE_REASON));
        assert!(good.end(&node, &[]).is_empty(), "nothing is written twice");
    }

    #[test]
    fn a_reboot_is_remembered_until_success_or_another_value() {
        #[track_caller]
        fn check(state: State, value: &str, expected: Option<&str>) {
            let mut node = NodeMeta::default();
            let outcome = |state, value| Outcome {
                state,
                value,
                reason: None,
            };
            node.apply(&outcome(State::Rebooting, "a").report());
            assert_eq!(node.rebooted_for(), Some("a"));
            node.apply(&outcome(state, value).end(&node, &[]));
            assert_eq!(node.rebooted_for(), expected);
        }
        check(State::Failed, "a", Some("a"));
        check(State::Success, "a", None);
        check(State::Failed, "b", None);
    }

    #[test]
    fn pauses_double_up_to_a_limit() {
        let mut pauses = BackOff::new();
        let seconds: Vec<_> = (0..8).map(|_| pauses.pause().as_secs()).collect();
        assert_eq!(seconds, [5, 10, 20, 40, 80, 160, 300, 300]);
    }

    #[test]
    fn a_reason_is_cut_between_characters() {
        let long = "ä".repeat(2000);
        let outcome = Outcome {
            state: State::Failed,
            value: "x",
            reason: Some(&long),
        };
        let change = outcome.report();
        assert_eq!(
            change.annotations[names::STATE_REASON]
                .as_ref()
                .unwrap()
                .chars()
                .count(),
            1001
        );
    }
}
