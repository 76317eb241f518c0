use std::{
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
    path::PathBuf,
};

/// How much of a log is read at once: a daemon that logs without end must not fill the memory.
const AT_ONCE: u64 = 64 << 10;

/// The lines of a log that grows.
#[derive(Debug)]
pub(super) struct Tail {
    path: PathBuf,
    read: u64,
    /// The beginning of a line whose end is not there yet.
    rest: Vec<u8>,
}

impl Tail {
    /// From the first line on.
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            read: 0,
            rest: Vec::new(),
        }
    }

    /// The lines since the last call. A log that is not there has none; one that became shorter is read from the start.
    pub(super) fn lines(&mut self) -> io::Result<Vec<String>> {
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        if file.metadata()?.len() < self.read {
            (self.read, self.rest) = (0, Vec::new());
        }
        file.seek(SeekFrom::Start(self.read))?;
        let length = file.take(AT_ONCE).read_to_end(&mut self.rest)?;
        self.read += length as u64;
        let mut lines = Vec::new();
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            lines.push(String::from_utf8_lossy(&line).trim_end().to_owned());
        }
        if self.rest.len() as u64 >= AT_ONCE {
            lines.push(String::from_utf8_lossy(&std::mem::take(&mut self.rest)).into_owned());
        }
        Ok(lines)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write as _};

    use super::*;

    #[test]
    fn lines_come_once_and_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.log");
        let mut tail = Tail::new(path.clone());
        assert!(tail.lines().unwrap().is_empty());
        let mut log = File::create(&path).unwrap();
        log.write_all(b"one\ntw").unwrap();
        assert_eq!(tail.lines().unwrap(), ["one"]);
        log.write_all(b"o\n").unwrap();
        assert_eq!(tail.lines().unwrap(), ["two"]);
        fs::write(&path, "a\n").unwrap();
        assert_eq!(tail.lines().unwrap(), ["a"], "it was begun anew");
    }
}
