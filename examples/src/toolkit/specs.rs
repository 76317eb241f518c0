//! The CDI files of a node, written again when the node changes and only then.

use std::time::{Duration, Instant};

use anyhow::bail;

use super::{arguments::Arguments, child, description::Description, fingerprint::Fingerprint, nodes::Nodes};

/// How long a node is left alone that looks as it did, but could not be described in full or may be another all the same.
const TRY_AGAIN: Duration = Duration::from_mins(1);

/// The exit code of a child that could not write all files, since the node has nothing to describe yet.
const IN_PART: i32 = 3;

/// Has the files written.
#[derive(Debug)]
pub(super) struct Specs<'a> {
    arguments: &'a Arguments,
    last: Option<Attempt>,
}

/// One description of the node.
#[derive(Debug)]
struct Attempt {
    node: Fingerprint,
    /// Whether all files could be written.
    in_full: bool,
    when: Instant,
}

impl Attempt {
    /// Whether the node is to be described again, which looks like this after so long.
    fn is_outdated(&self, now: &Fingerprint, after: Duration) -> bool {
        self.node != *now || after >= TRY_AGAIN && (!self.in_full || now.may_differ_unseen())
    }
}

impl<'a> Specs<'a> {
    pub(super) fn new(arguments: &'a Arguments) -> Self {
        Self { arguments, last: None }
    }

    /// Has the node described, if it is not as it was described last.
    ///
    /// A node without a driver, or with one that does not work, has nothing to describe yet: that is logged, and tried again
    /// when the node changes or a minute has passed. So is one with MIG devices, whose UUIDs nothing tells but the driver.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(super) async fn update(&mut self) -> anyhow::Result<()> {
        let now = Fingerprint::of(self.arguments);
        if let Some(last) = &self.last
            && !last.is_outdated(&now, last.when.elapsed())
        {
            return Ok(());
        }
        let is_known = self.last.as_ref().is_some_and(|last| last.node == now);
        let in_full = have_described(is_known).await?;
        // As it is now: the child made nodes that were missing.
        self.last = Some(Attempt {
            node: Fingerprint::of(self.arguments),
            in_full,
            when: Instant::now(),
        });
        Ok(())
    }
}

/// Has a child describe the node, or say how it would; whether that was possible in full. Of a node that looks as it did the
/// child tells only what is new.
///
/// # Errors
/// If a file cannot be written.
pub(super) async fn have_described(is_known: bool) -> anyhow::Result<bool> {
    let argument = if is_known { "--describe=again" } else { "--describe" };
    match child::run(argument).await {
        Ok(status) if status.success() => Ok(true),
        Ok(status) if status.code() == Some(IN_PART) => Ok(false),
        Ok(status) if status.code().is_some() => bail!("the node could not be described: {status}"),
        // The driver broke it, or hung: no reason to leave the node as it is otherwise.
        Ok(status) => {
            tracing::warn!("the reader of the driver did not end by itself: {status}");
            Ok(false)
        }
        Err(error) => {
            tracing::warn!("the node is not described: {error:#}");
            Ok(false)
        }
    }
}

/// Describes the node, or says how it would: what the child does.
///
/// # Errors
/// If a file cannot be written.
pub(super) fn describe(arguments: &Arguments, again: bool) -> anyhow::Result<()> {
    if arguments.dry_run {
        Nodes::Mig.announce(arguments)?;
    } else {
        Nodes::Mig.make(arguments);
    }
    let description = Description::of(arguments);
    let mut is_new = !again;
    for file in &description.files {
        if arguments.dry_run {
            file.announce()?;
        } else {
            is_new |= file.put()?;
        }
    }
    // What is amiss on the node was told when it was described first.
    for remark in description.remarks.iter().filter(|_| is_new) {
        tracing::warn!("{remark}");
    }
    if !description.in_full {
        #[expect(clippy::exit, reason = "a third outcome, which only the parent sees")]
        std::process::exit(IN_PART);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_looks_as_it_did_is_described_again_after_a_minute_where_it_may_be_another() {
        #[track_caller]
        fn check(in_full: bool, instances: &[&str], after: Duration, expected: bool) {
            let last = Attempt {
                node: Fingerprint::with_instances(instances),
                in_full,
                when: Instant::now(),
            };
            assert_eq!(
                last.is_outdated(&Fingerprint::with_instances(instances), after),
                expected
            );
            assert!(last.is_outdated(&Fingerprint::with_instances(&["gpu7/mig/gi1"]), after));
        }
        let (soon, later) = (Duration::from_secs(59), Duration::from_mins(1));
        check(true, &[], later, false);
        check(false, &[], soon, false);
        check(false, &[], later, true);
        check(true, &["gpu0/mig/gi1"], soon, false);
        check(true, &["gpu0/mig/gi1"], later, true);
    }
}
