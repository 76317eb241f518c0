//! What happens to a node while it runs: files in its `state/` folder, read at every call that depends on them.
//!
//! - `lost/<uuid>` exists while that GPU is lost.
//! - `events` is only ever appended to: one line per event, `<uuid> <type> <data> <gpu instance> <compute instance>`.
//! - `init-error` holds the NVML code that initialisation answers, if it fails.

use std::{
    fs::{self, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::PathBuf,
};

use crate::{Error, Result};

#[derive(Debug, Clone)]
pub(crate) struct State {
    folder: PathBuf,
}

/// An NVML event, for every event set that waits for its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) uuid: String,
    /// `nvmlEventType…`.
    pub(crate) kind: u64,
    pub(crate) data: u64,
    pub(crate) gpu_instance: u32,
    pub(crate) compute_instance: u32,
}

impl Event {
    /// `nvmlEventTypeXidCriticalError`.
    pub(crate) const XID: u64 = 8;

    /// Stands for "the whole GPU" where an instance is named.
    pub(crate) const NO_INSTANCE: u32 = u32::MAX;

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let event = Self {
            uuid: words.next()?.to_owned(),
            kind: words.next()?.parse().ok()?,
            data: words.next()?.parse().ok()?,
            gpu_instance: words.next()?.parse().ok()?,
            compute_instance: words.next()?.parse().ok()?,
        };
        words.next().is_none().then_some(event)
    }
}

impl State {
    /// The state of the node in that folder; nothing is read or written yet.
    pub(crate) fn of(node: &std::path::Path) -> Self {
        Self {
            folder: node.join("state"),
        }
    }

    pub(crate) fn create(&self) -> Result<()> {
        let lost = self.folder.join("lost");
        fs::create_dir_all(&lost).map_err(Error::write(lost))?;
        let events = self.events();
        fs::write(&events, "").map_err(Error::write(events))
    }

    pub(crate) fn is_lost(&self, uuid: &str) -> bool {
        self.lost(uuid).exists()
    }

    pub(crate) fn set_lost(&self, uuid: &str, lost: bool) -> Result<()> {
        let path = self.lost(uuid);
        let done = if lost { fs::write(&path, "") } else { remove(&path) };
        done.map_err(Error::write(path))
    }

    pub(crate) fn append(&self, event: &Event) -> Result<()> {
        let path = self.events();
        let Event {
            uuid,
            kind,
            data,
            gpu_instance,
            compute_instance,
        } = event;
        let line = format!("{uuid} {kind} {data} {gpu_instance} {compute_instance}\n");
        let write = || {
            OpenOptions::new()
                .append(true)
                .create(true)
                .open(&path)?
                .write_all(line.as_bytes())
        };
        write().map_err(Error::write(&path))
    }

    /// Where the next event will be.
    pub(crate) fn end_of_events(&self) -> u64 {
        fs::metadata(self.events()).map_or(0, |metadata| metadata.len())
    }

    /// The events from an offset on, each with its own offset and the next one's. A line still being written is left
    /// for later, one that is no event is passed over.
    pub(crate) fn events_from(&self, offset: u64) -> Vec<(u64, u64, Event)> {
        let read = || -> io::Result<String> {
            let mut file = fs::File::open(self.events())?;
            file.seek(SeekFrom::Start(offset))?;
            let mut text = String::new();
            file.read_to_string(&mut text)?;
            Ok(text)
        };
        let text = read().unwrap_or_default();
        let mut at = offset;
        let mut events = Vec::new();
        for line in text.split_inclusive('\n') {
            let Some(content) = line.strip_suffix('\n') else { break };
            let next = at + line.len() as u64;
            if let Some(event) = Event::parse(content) {
                events.push((at, next, event));
            }
            at = next;
        }
        events
    }

    pub(crate) fn init_error(&self) -> Option<u32> {
        fs::read_to_string(self.folder.join("init-error"))
            .ok()?
            .trim()
            .parse()
            .ok()
    }

    pub(crate) fn set_init_error(&self, code: Option<u32>) -> Result<()> {
        let path = self.folder.join("init-error");
        let done = code.map_or_else(|| remove(&path), |code| fs::write(&path, format!("{code}\n")));
        done.map_err(Error::write(path))
    }

    fn lost(&self, uuid: &str) -> PathBuf {
        self.folder.join("lost").join(uuid)
    }

    fn events(&self) -> PathBuf {
        self.folder.join("events")
    }
}

/// Removes a file; that it is absent is fine.
fn remove(path: &std::path::Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_half_written_event_waits_and_a_foreign_line_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::of(folder.path());
        state.create().unwrap();
        let event = Event {
            uuid: "GPU-1".into(),
            kind: Event::XID,
            data: 79,
            gpu_instance: 1,
            compute_instance: 2,
        };
        fs::write(state.events(), "nonsense\n").unwrap();
        state.append(&event).unwrap();
        fs::write(
            state.events(),
            fs::read_to_string(state.events()).unwrap() + "GPU-1 8 4",
        )
        .unwrap();
        let events = state.events_from(0);
        assert_eq!(events, [(9, 9 + "GPU-1 8 79 1 2\n".len() as u64, event)]);
        assert_eq!(state.events_from(events[0].1), []);
    }
}
