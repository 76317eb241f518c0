//! The CDI files of a node, written again when the node changes and only then.

use std::time::{Duration, Instant};

use anyhow::bail;

use super::{arguments::Arguments, child, description::Description, fingerprint::Fingerprint, nodes::Nodes};

/// How long a node is left alone that could not be described in full, and is as it was.
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

impl<'a> Specs<'a> {
    pub(super) fn new(arguments: &'a Arguments) -> Self {
        Self { arguments, last: None }
    }

    /// Has the node described, if it is not as it was described last.
    ///
    /// A node without a driver, or with one that does not work, has nothing to describe yet: that is logged, and tried again
    /// when the node changes or a minute has passed.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(super) async fn update(&mut self) -> anyhow::Result<()> {
        let now = Fingerprint::of(self.arguments);
        if let Some(last) = &self.last
            && last.node == now
            && (last.in_full || last.when.elapsed() < TRY_AGAIN)
        {
            return Ok(());
        }
        let in_full = have_described().await?;
        // As it is now: the child made nodes that were missing.
        self.last = Some(Attempt {
            node: Fingerprint::of(self.arguments),
            in_full,
            when: Instant::now(),
        });
        Ok(())
    }
}

/// Has a child describe the node, or say how it would; whether that was possible in full.
///
/// # Errors
/// If a file cannot be written.
pub(super) async fn have_described() -> anyhow::Result<bool> {
    match child::run("--describe").await {
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
pub(super) fn describe(arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.dry_run {
        Nodes::Mig.announce(arguments)?;
    } else {
        Nodes::Mig.make(arguments);
    }
    let description = Description::of(arguments);
    for file in &description.files {
        if arguments.dry_run {
            file.announce()?;
        } else {
            file.put()?;
        }
    }
    if !description.in_full {
        #[expect(clippy::exit, reason = "a third outcome, which only the parent sees")]
        std::process::exit(IN_PART);
    }
    Ok(())
}
