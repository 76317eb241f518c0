//! For a program that chooses its file itself, without a link and without a signal.

use std::{
    path::{Path, PathBuf},
    pin::pin,
};

use anyhow::Context;
use futures_util::{Stream, StreamExt as _};
use kube::Client;
use tokio::{sync::watch, time::sleep};

use super::{LOOK, Selection, labels, link::names};
use crate::{cluster, program};

/// Follows, on a task of its own, which file of a folder the node's label chooses. `None` before the API server has said what
/// the label is; then what was chosen last, whatever happens.
///
/// In a tokio runtime.
pub(crate) async fn follow(
    node: &str,
    kubeconfig: Option<&Path>,
    selection: Selection,
    folder: PathBuf,
) -> anyhow::Result<watch::Receiver<Option<PathBuf>>> {
    let config = cluster::config(kubeconfig).await?;
    let client = Client::try_from(config).context("cannot set up the way to the API server")?;
    let labels = labels(client, node, &selection.node_label);
    let chosen = watch::Sender::new(None);
    let receiver = chosen.subscribe();
    tokio::spawn(async move { choose(labels, &selection, &folder, &chosen).await });
    Ok(receiver)
}

/// Ends when the labels do, or when nobody listens any more.
async fn choose(
    labels: impl Stream<Item = String>,
    selection: &Selection,
    folder: &Path,
    chosen: &watch::Sender<Option<PathBuf>>,
) {
    let mut labels = pin!(labels);
    let mut label = None;
    let mut said = None;
    loop {
        tokio::select! {
            next = labels.next() => match next {
                Some(next) => label = Some(next),
                None => return,
            },
            // The files may be others.
            () = sleep(LOOK) => {}
            () = chosen.closed() => return,
        }
        let Some(label) = &label else { continue };
        let complaint = look(label, selection, folder, chosen)
            .err()
            .map(|error| program::chain(&error));
        if let Some(text) = complaint.as_ref().filter(|_| complaint != said) {
            tracing::warn!("{text}; the configuration file stays, and it is tried again");
        }
        said = complaint;
    }
}

fn look(
    label: &str,
    selection: &Selection,
    folder: &Path,
    chosen: &watch::Sender<Option<PathBuf>>,
) -> anyhow::Result<()> {
    let files = names(folder)?;
    let choice = match selection.choose(label, &files) {
        // Something has to be in force.
        Err(error) if chosen.borrow().is_none() => {
            tracing::warn!("{error}: as without a label");
            selection.choose("", &files)?
        }
        choice => choice?,
    };
    let path = choice.path(folder);
    chosen.send_if_modified(|known| {
        let changed = known.as_ref() != Some(&path);
        if changed {
            tracing::info!("the configuration is {choice}");
            *known = Some(path);
        }
        changed
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, FromArgMatches as _};
    use futures_util::stream;
    use tempfile::TempDir;

    use super::*;

    fn selection(arguments: &[&str]) -> Selection {
        let command = Selection::augment_args(clap::Command::new("test"));
        let matches = command.get_matches_from(["test"].iter().chain(arguments));
        Selection::from_arg_matches(&matches).unwrap()
    }

    fn folder(files: &[&str]) -> TempDir {
        let dir = tempfile::tempdir().unwrap();
        for name in files {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        dir
    }

    #[test]
    fn what_is_chosen_stays_where_a_label_names_no_file() {
        let folder = folder(&["default", "ts4"]);
        let selection = selection(&["--fallback-strategies=named"]);
        let chosen = watch::Sender::new(None);
        let check = |label: &str, expected: &str, error: Option<&str>| {
            let done = look(label, &selection, folder.path(), &chosen);
            assert_eq!(done.err().map(|error| error.to_string()).as_deref(), error);
            assert_eq!(*chosen.borrow(), Some(folder.path().join(expected)));
        };
        check("no-such", "default", None);
        check("ts4", "ts4", None);
        check("no-such", "ts4", Some("specified config no-such does not exist"));
        check("", "default", None);
    }

    #[tokio::test]
    async fn nothing_is_chosen_before_the_label_is_known_and_a_file_that_comes_later_is() {
        let folder = folder(&["default"]);
        let selection = selection(&["--fallback-strategies=named"]);
        let chosen = watch::Sender::new(None);
        let mut receiver = chosen.subscribe();
        let (label, mut labels) = tokio::sync::mpsc::unbounded_channel();
        let labels = stream::poll_fn(move |context| labels.poll_recv(context));
        let choosing = choose(labels, &selection, folder.path(), &chosen);
        let test = async {
            sleep(LOOK + LOOK / 2).await;
            assert_eq!(*receiver.borrow(), None);
            label.send("mps".to_owned()).unwrap();
            receiver.changed().await.unwrap();
            assert_eq!(*receiver.borrow_and_update(), Some(folder.path().join("default")));
            std::fs::write(folder.path().join("mps"), "").unwrap();
            receiver.changed().await.unwrap();
            assert_eq!(*receiver.borrow(), Some(folder.path().join("mps")));
        };
        tokio::select! {
            () = choosing => panic!("it ended"),
            () = test => {}
        }
    }
}
