use std::{
    collections::{BTreeSet, VecDeque},
    io,
    path::{Path, PathBuf},
};

use super::{Container, FILE, LIMIT};

/// The folders that the configuration lists, with all that it includes.
///
/// A file that cannot be read, or that comes after the budget is spent, lists nothing here: at worst a folder is written
/// down twice.
pub(in crate::hook) fn listed(container: &Container) -> BTreeSet<String> {
    Reading::new(container, Budget::FULL).folders()
}

/// What an image's configuration may cost: it could include itself over and over, or folders without end.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Budget {
    files: usize,
    bytes: u64,
    includes: usize,
    entries: usize,
}

impl Budget {
    /// Many times what any distribution has.
    const FULL: Self = Self {
        files: 1000,
        bytes: 4 << 20,
        includes: 1000,
        entries: 20_000,
    };
}

/// Longest pattern of an `include`, as of any path in the kernel.
const LONGEST_PATTERN: usize = 4096;

struct Reading<'c> {
    container: &'c Container,
    left: Budget,
    seen: BTreeSet<PathBuf>,
    queue: VecDeque<PathBuf>,
}

impl<'c> Reading<'c> {
    fn new(container: &'c Container, budget: Budget) -> Self {
        let mut reading = Self {
            container,
            left: budget,
            seen: BTreeSet::new(),
            queue: VecDeque::new(),
        };
        reading.enqueue(PathBuf::from(FILE));
        reading
    }

    fn folders(&mut self) -> BTreeSet<String> {
        let mut folders = BTreeSet::new();
        while let Some(file) = self.queue.pop_front() {
            let content = self.read(&file);
            for line in String::from_utf8_lossy(&content).lines().map(str::trim) {
                match line.strip_prefix("include ").map(str::trim) {
                    Some(pattern) => self.include(pattern),
                    None if line.is_empty() || line.starts_with('#') => {}
                    None => _ = folders.insert(line.to_owned()),
                }
            }
        }
        folders
    }

    fn read(&mut self, file: &Path) -> Vec<u8> {
        let limit = LIMIT.min(self.left.bytes);
        let (content, cost) = match self.container.root.read(file, limit) {
            Ok(content) => {
                let cost = content.len() as u64;
                (content, cost)
            }
            // That much was read before it turned out to be too long.
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => (Vec::new(), limit),
            Err(_) => (Vec::new(), 0),
        };
        self.left.bytes -= cost;
        content
    }

    /// Adds the files that an `include` names: a path whose last part may have stars.
    fn include(&mut self, pattern: &str) {
        if pattern.len() > LONGEST_PATTERN || self.left.includes == 0 || self.left.files == 0 {
            return;
        }
        self.left.includes -= 1;
        let pattern = Path::new("/etc").join(pattern);
        let (Some(dir), Some(name)) = (pattern.parent(), pattern.file_name().and_then(|name| name.to_str())) else {
            return;
        };
        let names = match self.container.root.list_at_most(dir, self.left.entries) {
            Ok(names) => names,
            Err(error) => {
                if error.kind() == io::ErrorKind::FileTooLarge {
                    self.left.entries = 0;
                }
                return;
            }
        };
        self.left.entries -= names.len();
        for entry in names {
            if entry.to_str().is_some_and(|entry| crate::pattern::matches(name, entry)) {
                self.enqueue(dir.join(entry));
            }
        }
    }

    /// Each file is read once.
    fn enqueue(&mut self, file: PathBuf) {
        if self.left.files > 0 && !self.seen.contains(&file) {
            self.left.files -= 1;
            self.seen.insert(file.clone());
            self.queue.push_back(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// How many folders a configuration of these files lists, and what of the budget is left then.
    #[track_caller]
    fn check(files: &[(&str, &str)], budget: &Budget, folders: usize, left: &Budget) {
        let dir = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = dir.path().join("etc").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let container = Container::open(dir.path()).unwrap();
        let mut reading = Reading::new(&container, budget.clone());
        assert_eq!((reading.folders().len(), &reading.left), (folders, left));
    }

    const SMALL: Budget = Budget {
        files: 3,
        bytes: 100,
        includes: 2,
        entries: 4,
    };

    #[test]
    fn a_configuration_costs_what_is_read_of_it() {
        let files = [
            ("ld.so.conf", "include d/*.conf\n"),
            ("d/a.conf", "/a\n"),
            ("d/b.conf", "/b\n"),
        ];
        let left = Budget {
            files: 0,
            bytes: 77,
            includes: 1,
            entries: 2,
        };
        check(&files, &SMALL, 2, &left);
    }

    #[test]
    fn includes_that_go_in_circles_end() {
        let files = [("ld.so.conf", "include ld.so.conf\ninclude /etc/../../etc/ld.so.*\n/a\n")];
        let left = Budget {
            files: 1,
            bytes: 0,
            includes: 0,
            entries: 2,
        };
        check(&files, &SMALL, 1, &left);
    }

    #[test]
    fn no_more_files_are_queued_than_may_be_read() {
        let files = [
            ("ld.so.conf", "include d/*\n"),
            ("d/1", "/1\n"),
            ("d/2", "/2\n"),
            ("d/3", "/3\n"),
            ("d/4", "/4\n"),
        ];
        let left = Budget {
            files: 0,
            bytes: 82,
            includes: 1,
            entries: 0,
        };
        check(&files, &SMALL, 2, &left);
    }

    #[test]
    fn a_folder_of_too_many_entries_adds_nothing() {
        let files = ["ld.so.conf", "d/1", "d/2", "d/3", "d/4", "d/5"].map(|path| (path, "include d/1\n/a\n"));
        let left = Budget {
            files: 2,
            bytes: 85,
            includes: 1,
            entries: 0,
        };
        check(&files, &SMALL, 1, &left);
    }

    #[test]
    fn no_more_is_read_than_the_bytes_of_all_files() {
        let long = "/a\n".repeat(30);
        let files = [("ld.so.conf", "include d/*\n"), ("d/1", long.as_str()), ("d/2", "/b\n")];
        let left = Budget {
            files: 0,
            bytes: 0,
            includes: 1,
            entries: 2,
        };
        check(&files, &SMALL, 0, &left);
    }

    #[test]
    fn no_more_folders_are_listed_than_there_may_be_includes() {
        let files = [
            ("ld.so.conf", "include x/1\ninclude y/2\ninclude d/3\n"),
            ("d/3", "/a\n"),
        ];
        let left = Budget {
            files: 2,
            bytes: 64,
            includes: 0,
            entries: 4,
        };
        check(&files, &SMALL, 0, &left);
    }
}
