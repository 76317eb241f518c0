//! What happens to a node while it runs: files in its `state/` folder.
//!
//! - `node` holds all that is true now ([`Record`]). A change replaces the file as a whole, under the lock `lock`; its
//!   modification time is the number of the change, so that readers, who take no lock, see with one `stat` whether they
//!   are up to date.
//! - `events` is only ever appended to: one line per event, `<uuid> <type> <data> <gpu instance> <compute instance>`.
//! - `calls` is only ever appended to, while the record says so: one line per NVML call.
//! - `written` holds the number of the change that the node's file tree shows. It lags only when a writer was killed; the
//!   next process that uses the node then mends the tree.

mod bounds;
mod calls;
mod event;
mod record;
#[cfg(test)]
mod tests;

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

pub use self::calls::Call;
pub(crate) use self::{
    calls::append as append_call,
    event::Event,
    record::{EccErrors, GpuRecord, Process, Record},
};
use crate::{Error, NodeFile, Result, document, library::Trailer, replace::replace, tree};

#[derive(Debug, Clone)]
pub(crate) struct State {
    node: PathBuf,
    folder: PathBuf,
}

impl State {
    /// The state of the node in that folder; nothing is read or written yet.
    pub(crate) fn of(node: &Path) -> Self {
        Self {
            node: node.to_owned(),
            folder: node.join("state"),
        }
    }

    /// The node's file tree.
    pub(crate) fn root(&self) -> PathBuf {
        self.node.join("root")
    }

    pub(crate) fn create(&self) -> Result<()> {
        fs::create_dir_all(&self.folder).map_err(Error::write(&self.folder))?;
        let events = self.events();
        fs::write(&events, "").map_err(Error::write(events))?;
        self.write(&Record::default())?;
        self.set_written(0)
    }

    /// What is true now.
    pub(crate) fn read(&self) -> Result<Record> {
        let path = self.record();
        match document::text(&path) {
            Ok(text) => Record::parse(&text, &path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Record::default()),
            Err(error) => Err(Error::read(path)(error)),
        }
    }

    /// Changes the record and what the file tree shows of it. Where `change` fails, nothing is changed.
    pub(crate) fn change<T, E: From<Error>>(
        &self,
        file: &NodeFile,
        change: impl FnOnce(&mut Record) -> Result<T, E>,
    ) -> Result<T, E> {
        let _lock = self.lock()?;
        let before = self.read()?;
        let mut record = before.clone();
        let answer = change(&mut record)?;
        record.generation += 1;
        let in_step = self.written() == Some(before.generation);
        self.write(&record)?;
        // The tree shows partitions and which GPUs there are, and looking through it takes longer than all the rest.
        if in_step && record.layouts().eq(before.layouts()) && record.unplugged().eq(before.unplugged()) {
            self.set_written(record.generation)?;
        } else {
            self.show(file, &record)?;
        }
        Ok(answer)
    }

    /// Brings the file tree up to date if a writer was killed before it could. Nobody waits for it: another writer who is
    /// at work does the same.
    pub(crate) fn mend(&self, file: &NodeFile) -> Result<()> {
        if self.written() == self.generation() {
            return Ok(());
        }
        let path = self.folder.join("lock");
        let lock = self.open_lock()?;
        match lock.try_lock() {
            Ok(()) => self.show(file, &self.read()?),
            Err(fs::TryLockError::WouldBlock) => Ok(()),
            Err(fs::TryLockError::Error(error)) => Err(Error::write(path)(error)),
        }
    }

    /// The number of the last change, and which file says so.
    fn stamp(&self) -> Option<Stamp> {
        let metadata = fs::metadata(self.record()).ok()?;
        Some(Stamp(metadata.mtime(), metadata.mtime_nsec(), metadata.ino()))
    }

    fn generation(&self) -> Option<u64> {
        self.stamp().and_then(|stamp| stamp.0.try_into().ok())
    }

    fn written(&self) -> Option<u64> {
        fs::read_to_string(self.folder.join("written"))
            .ok()?
            .trim()
            .parse()
            .ok()
    }

    fn set_written(&self, generation: u64) -> Result<()> {
        let path = self.folder.join("written");
        fs::write(&path, format!("{generation}\n")).map_err(Error::write(path))
    }

    fn show(&self, file: &NodeFile, record: &Record) -> Result<()> {
        tree::show(&self.root(), file, record)?;
        self.publish(file, record)?;
        self.set_written(record.generation)
    }

    /// Writes the record into the tree's copy of the library, which is all that a container gets.
    pub(crate) fn publish(&self, file: &NodeFile, record: &Record) -> Result<()> {
        let name = format!("libnvidia-ml.so.{}", file.driver);
        let copy = self.root().join(tree::library_folder()).join(name);
        Trailer::set_state(&copy, &record.to_text(&copy)?)
    }

    /// Replaces the record; readers find the old one or the new one.
    fn write(&self, record: &Record) -> Result<()> {
        let path = self.record();
        let text = record.to_text(&path)?;
        replace(&path, |file| {
            file.write_all(text.as_bytes())?;
            file.set_modified(UNIX_EPOCH + Duration::from_secs(record.generation))
        })
    }

    /// Waits for other writers. The lock goes with the value, also when the process is killed.
    fn lock(&self) -> Result<File> {
        let lock = self.open_lock()?;
        lock.lock().map_err(Error::write(self.folder.join("lock")))?;
        Ok(lock)
    }

    fn open_lock(&self) -> Result<File> {
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true);
        self.open(&self.folder.join("lock"), &options)
    }

    /// Opens a file of the state. Somebody may have removed the folder, which means that nothing has happened yet.
    fn open(&self, path: &Path, options: &OpenOptions) -> Result<File> {
        let file = match options.open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Not above it: without the node there is nothing to have a state.
                let _ = fs::create_dir(&self.folder);
                options.open(path)
            }
            file => file,
        };
        file.map_err(Error::write(path))
    }

    pub(crate) fn append(&self, event: &Event) -> Result<()> {
        let path = self.events();
        let file = self.open(&path, OpenOptions::new().read(true).append(true).create(true))?;
        append_line(file, event.line()).map_err(Error::write(path))
    }

    /// Where the next event will be.
    pub(crate) fn end_of_events(&self) -> u64 {
        fs::metadata(self.events()).map_or(0, |metadata| metadata.len())
    }

    /// The events from an offset on, each with its own offset and the next one's. A line still being written is left
    /// for later, one that is no event is passed over.
    pub(crate) fn events_from(&self, offset: u64) -> Vec<(u64, u64, Event)> {
        let read = || -> io::Result<String> {
            let mut file = File::open(self.events())?;
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

    fn record(&self) -> PathBuf {
        self.folder.join("node")
    }

    fn events(&self) -> PathBuf {
        self.folder.join("events")
    }
}

/// Appends a line by one write. A writer that found no room for all of its own has left a part of it, which must not take this
/// one with it.
fn append_line(mut file: File, mut line: String) -> io::Result<()> {
    let mut last = [b'\n'];
    if file.metadata()?.len() > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    if last != [b'\n'] {
        line.insert(0, '\n');
    }
    file.write_all(line.as_bytes())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp(i64, i64, u64);

/// A state and what it was when last looked at.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) state: State,
    seen: Option<Stamp>,
    now: Arc<Record>,
}

impl Watched {
    pub(crate) fn new(state: State) -> Result<Self> {
        let mut watched = Self {
            state,
            seen: None,
            now: Arc::default(),
        };
        watched.now()?;
        Ok(watched)
    }

    /// What is true now; read again only if it has changed.
    pub(crate) fn now(&mut self) -> Result<Arc<Record>> {
        let stamp = self.state.stamp();
        if stamp.is_none() || stamp != self.seen {
            self.now = Arc::new(self.state.read()?);
            self.seen = stamp; // taken before reading: at worst it is read once more
        }
        Ok(Arc::clone(&self.now))
    }
}
