//! Seeing that something happens where the sockets lie.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use inotify::{Inotify, WatchMask};
use tokio::time;
use tokio_stream::StreamExt;

/// Looked at this often in any case: a directory that was replaced by a mount gives no event.
const INTERVAL: Duration = Duration::from_secs(2);

/// Wakes when something changes in the directory of the sockets, and every two seconds.
pub(crate) struct DirectoryWatch {
    directory: PathBuf,
    /// `None` as long as there is no such directory.
    events: Option<inotify::EventStream<[u8; 1024]>>,
}

impl DirectoryWatch {
    pub(crate) fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            events: events(directory).ok(),
        }
    }

    pub(crate) async fn changed(&mut self) {
        let Some(stream) = &mut self.events else {
            time::sleep(INTERVAL).await;
            self.events = events(&self.directory).ok();
            return;
        };
        match time::timeout(INTERVAL, stream.next()).await {
            Ok(Some(Ok(event))) if !event.mask.contains(inotify::EventMask::IGNORED) => {}
            Err(_) => {}
            // The directory is gone or the queue broke: what is there now has to be watched anew.
            Ok(_) => self.events = events(&self.directory).ok(),
        }
    }
}

fn events(directory: &Path) -> io::Result<inotify::EventStream<[u8; 1024]>> {
    let inotify = Inotify::init()?;
    let mask = WatchMask::CREATE | WatchMask::DELETE | WatchMask::MOVE | WatchMask::DELETE_SELF | WatchMask::ONLYDIR;
    inotify.watches().add(directory, mask)?;
    inotify.into_event_stream([0; 1024])
}
