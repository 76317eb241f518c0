//! For a program that chooses its file itself, without a link and without a signal.

use std::{
    path::{Path, PathBuf},
    pin::pin,
    time::Duration,
};

use anyhow::Context;
use futures_util::{Stream, StreamExt as _};
use kube::Client;
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use super::{LOOK, Selection, labels, link::names};
use crate::{cluster, device_plugin::Chosen, program};

/// How long the API server may take to say what the label is before a file is chosen without it. It answers at once as a rule, and a
/// node whose label is not waited for would offer something else for a moment at each start of the program.
const PATIENCE: Duration = Duration::from_secs(5);

/// Follows, on a task of its own, which file of a folder the node's label chooses. None before the API server has said what the
/// label is, or has been silent for a while: then what is chosen without a label. After that what was chosen last, whatever happens.
///
/// In a tokio runtime.
pub(crate) async fn follow(
    node: &str,
    kubeconfig: Option<&Path>,
    selection: Selection,
    folder: PathBuf,
) -> anyhow::Result<watch::Receiver<Chosen>> {
    let config = cluster::config(kubeconfig).await?;
    let client = Client::try_from(config).context("cannot set up the way to the API server")?;
    let labels = labels(client, node, &selection.node_label);
    let chosen = watch::Sender::new(Chosen::default());
    let receiver = chosen.subscribe();
    tokio::spawn(async move { choose(labels, &selection, &folder, &chosen, PATIENCE).await });
    Ok(receiver)
}

/// Ends when the labels do, or when nobody listens any more.
async fn choose(
    labels: impl Stream<Item = String>,
    selection: &Selection,
    folder: &Path,
    chosen: &watch::Sender<Chosen>,
    patience: Duration,
) {
    let mut labels = pin!(labels);
    let mut label = None;
    let asked = Instant::now();
    loop {
        tokio::select! {
            next = labels.next() => match next {
                Some(next) => label = Some(next),
                None => return,
            },
            // The files may be others.
            () = sleep(LOOK.min(patience)) => {}
            () = chosen.closed() => return,
        }
        if label.is_none() && asked.elapsed() < patience {
            continue;
        }
        let before = chosen.borrow().clone();
        let now = look(label.as_deref(), selection, folder, &before);
        if now == before {
            continue;
        }
        if let Some(text) = now.complaint.as_ref().filter(|_| now.complaint != before.complaint) {
            tracing::warn!("{text}; it is tried again");
        }
        if let Some(file) = now.file.as_ref().filter(|_| now.file != before.file) {
            tracing::info!("the configuration file is `{}`", file.display());
        }
        chosen.send_replace(now);
    }
}

/// What to choose now. No label is one that is not known.
fn look(label: Option<&str>, selection: &Selection, folder: &Path, before: &Chosen) -> Chosen {
    let stays = |complaint| Chosen {
        file: before.file.clone(),
        complaint: Some(complaint),
    };
    let files = match names(folder) {
        Ok(files) => files,
        Err(error) => return stays(program::chain(&error)),
    };
    let choice = match label {
        Some(label) => selection.choose(label, &files).map_err(|error| error.to_string()),
        None => Err(format!(
            "the API server does not say what the node's label `{}` is",
            selection.node_label
        )),
    };
    match choice {
        Ok(choice) => Chosen {
            file: Some(choice.path(folder)),
            complaint: None,
        },
        Err(complaint) => {
            let mut chosen = stays(complaint);
            if chosen.file.is_none() {
                // Something has to be in force.
                chosen.file = selection.choose("", &files).ok().map(|choice| choice.path(folder));
            }
            chosen
        }
    }
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
        let mut chosen = Chosen::default();
        let mut check = |label: Option<&str>, expected: &str, complaint: Option<&str>| {
            chosen = look(label, &selection, folder.path(), &chosen);
            assert_eq!(chosen.file, Some(folder.path().join(expected)));
            assert_eq!(chosen.complaint.as_deref(), complaint);
        };
        let absent = Some("specified config no-such does not exist");
        let silent = Some("the API server does not say what the node's label `nvidia.com/device-plugin.config` is");
        check(None, "default", silent);
        check(Some("no-such"), "default", absent);
        check(Some("ts4"), "ts4", None);
        check(Some("no-such"), "ts4", absent);
        check(None, "ts4", silent);
        check(Some(""), "default", None);
        let nowhere = folder.path().join("gone");
        let chosen = look(Some("ts4"), &selection, &nowhere, &chosen);
        assert_eq!(chosen.file, Some(folder.path().join("default")));
        assert!(chosen.complaint.unwrap().starts_with("cannot read the folder"));
    }

    #[test]
    fn where_nothing_is_to_be_chosen_without_a_label_nothing_is() {
        let folder = folder(&["a", "b"]);
        let chosen = look(Some("no-such"), &selection(&[]), folder.path(), &Chosen::default());
        assert_eq!(chosen.file, None);
        assert!(chosen.complaint.is_some());
    }

    /// Chooses in a folder for as long as the test goes on, with labels that it is given.
    async fn choosing(
        patience: Duration,
        test: impl AsyncFnOnce(&TempDir, &tokio::sync::mpsc::UnboundedSender<String>, watch::Receiver<Chosen>),
    ) {
        let folder = folder(&["default"]);
        let selection = selection(&["--fallback-strategies=named"]);
        let chosen = watch::Sender::new(Chosen::default());
        let receiver = chosen.subscribe();
        let (label, mut labels) = tokio::sync::mpsc::unbounded_channel();
        let labels = stream::poll_fn(move |context| labels.poll_recv(context));
        tokio::select! {
            () = choose(labels, &selection, folder.path(), &chosen, patience) => panic!("it ended"),
            () = test(&folder, &label, receiver) => {}
        }
    }

    #[tokio::test]
    async fn nothing_is_chosen_before_the_label_is_known_and_a_file_that_comes_later_is() {
        choosing(Duration::from_mins(1), async |folder, label, mut receiver| {
            sleep(LOOK + LOOK / 2).await;
            assert_eq!(*receiver.borrow(), Chosen::default());
            label.send("mps".to_owned()).unwrap();
            receiver.changed().await.unwrap();
            assert_eq!(receiver.borrow_and_update().file, Some(folder.path().join("default")));
            std::fs::write(folder.path().join("mps"), "").unwrap();
            receiver.changed().await.unwrap();
            let now = Chosen {
                file: Some(folder.path().join("mps")),
                complaint: None,
            };
            assert_eq!(*receiver.borrow(), now);
        })
        .await;
    }

    #[tokio::test]
    async fn a_server_that_is_silent_is_not_waited_for_without_end() {
        choosing(Duration::from_millis(100), async |folder, label, mut receiver| {
            receiver.changed().await.unwrap();
            let now = receiver.borrow_and_update().clone();
            assert_eq!(now.file, Some(folder.path().join("default")));
            assert!(now.complaint.unwrap().starts_with("the API server does not say"));
            label.send("default".to_owned()).unwrap();
            receiver.changed().await.unwrap();
            assert_eq!(receiver.borrow().complaint, None);
        })
        .await;
    }
}
