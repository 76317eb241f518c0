//! Which configuration file is read, where a label of the node names one of several.

use std::path::PathBuf;

use gpu_plugin::Status;
use tokio::sync::watch;

use super::arguments::DevicePlugin;

/// What is chosen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Chosen {
    /// The configuration file; `None` before there is one.
    pub(crate) file: Option<PathBuf>,
    /// Why it is not the one that the label names.
    pub(crate) complaint: Option<String>,
}

impl Chosen {
    /// What is told of the plugin, with this besides.
    fn told(&self, status: &Status) -> Status {
        let mut told = status.clone();
        if self.file.is_none() {
            let unknown = || "which configuration file the node's label names is not known yet".to_owned();
            told.waiting = Some(self.complaint.clone().unwrap_or_else(unknown));
        }
        told.refused = told.refused.or_else(|| self.complaint.clone());
        told
    }
}

/// The configuration file that is chosen, as it changes.
pub(super) struct FileChoice {
    /// `None` where there is nothing to choose.
    chosen: Option<watch::Receiver<Chosen>>,
    /// The file that was given out last.
    file: Option<PathBuf>,
}

impl FileChoice {
    pub(super) fn new(chosen: Option<watch::Receiver<Chosen>>) -> Self {
        Self { chosen, file: None }
    }

    /// The program with the file that is chosen, once one is; the same program where there is nothing to choose.
    pub(super) async fn first(&mut self, plugin: &DevicePlugin) -> anyhow::Result<DevicePlugin> {
        match self.chosen {
            None => Ok(plugin.clone()),
            Some(_) => self.changed(plugin).await,
        }
    }

    /// The program with another file, once another is chosen.
    pub(super) async fn changed(&mut self, plugin: &DevicePlugin) -> anyhow::Result<DevicePlugin> {
        let Some(chosen) = &mut self.chosen else {
            return std::future::pending().await;
        };
        loop {
            let file = chosen.borrow_and_update().file.clone();
            if file != self.file
                && let Some(path) = file
            {
                self.file = Some(path.clone());
                return plugin.with_file(&path);
            }
            if chosen.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// What is told of the plugin, with what is amiss with the choice besides. In a tokio runtime.
    pub(super) fn told(&self, mut status: watch::Receiver<Status>) -> watch::Receiver<Status> {
        let Some(mut chosen) = self.chosen.clone() else {
            return status;
        };
        let told = watch::Sender::new(Status::default());
        let receiver = told.subscribe();
        let tell = move |status: &mut watch::Receiver<Status>, chosen: &mut watch::Receiver<Chosen>| {
            let now = chosen.borrow_and_update().told(&status.borrow_and_update());
            told.send_if_modified(|known| {
                let changed = *known != now;
                *known = now;
                changed
            });
        };
        tell(&mut status, &mut chosen);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    Ok(()) = status.changed() => {}
                    Ok(()) = chosen.changed() => {}
                    else => return,
                }
                tell(&mut status, &mut chosen);
            }
        });
        receiver
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_chosen_as_the_label_says_is_told_as_refused() {
        #[track_caller]
        fn check(file: Option<&str>, complaint: Option<&str>, waiting: Option<&str>, refused: Option<&str>) {
            let owned = |text: Option<&str>| text.map(str::to_owned);
            let chosen = Chosen {
                file: file.map(PathBuf::from),
                complaint: owned(complaint),
            };
            let told = chosen.told(&Status::default());
            assert_eq!((told.waiting, told.refused), (owned(waiting), owned(refused)));
        }
        let unknown = "which configuration file the node's label names is not known yet";
        check(None, None, Some(unknown), None);
        check(None, Some("no file"), Some("no file"), Some("no file"));
        check(Some("/a"), Some("no file"), None, Some("no file"));
        check(Some("/a"), None, None, None);
        let refused = Status {
            refused: Some("line 3".to_owned()),
            ..Status::default()
        };
        let chosen = Chosen {
            file: Some(PathBuf::from("/a")),
            complaint: None,
        };
        assert_eq!(chosen.told(&refused), refused);
    }
}
