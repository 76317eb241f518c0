//! A folder out of which no path leads.
//!
//! For what lies beneath a driver root, a host's root or an image: others decide what is in there, links included.
//!
//! ```
//! use gpu_core::root::Root;
//!
//! let folder = tempfile::tempdir()?;
//! std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link"))?;
//! let root = Root::open(folder.path())?;
//! assert!(root.read("link".as_ref(), 4096).is_err()); // there is no etc/passwd beneath it
//! # Ok::<(), std::io::Error>(())
//! ```

use std::{
    ffi::{OsStr, OsString},
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::{OsStrExt as _, OsStringExt as _},
    },
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat},
    io::Errno,
};

use crate::file::read_at_most;

pub use rustix; // its types are in the signatures

/// Most symbolic links that one path may go through, as in the kernel.
const MAX_LINKS: usize = 40;

/// How often the kernel is asked again that could not tell whether a path stayed beneath the root.
const ATTEMPTS: usize = 16;

/// Most entries of one folder; the largest that a driver root or an image needs to have read have some thousands.
const MOST_ENTRIES: usize = 1 << 16;

/// A folder that takes the place of `/`: every path is resolved beneath it, links too.
///
/// An absolute link starts again at this folder and `..` stops at it, also while others rename and replace what is
/// inside. The kernel does it (`openat2` with `RESOLVE_IN_ROOT`, Linux 5.6); where that call is missing or forbidden,
/// a walk does it one component at a time. What is read is bounded: an image chooses what lies beneath its root.
#[derive(Debug)]
pub struct Root {
    dir: OwnedFd,
}

impl Root {
    /// Opens a folder of the process's own root; links in `path` are followed as usual.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn open(path: &Path) -> io::Result<Self> {
        let dir = rustix::fs::openat(
            CWD,
            path,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        Ok(Self { dir })
    }

    /// The folder itself.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Opens what `path` leads to beneath this folder.
    ///
    /// The kernel gives up on a path with `..` (`EAGAIN`) if anything at all was renamed or mounted meanwhile. It is asked
    /// again some times; then a walk goes there one component at a time, which renames do not disturb: nobody can keep a path from being opened.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn open_at(&self, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..ATTEMPTS {
            match rustix::fs::openat2(&self.dir, relative(path), flags, mode, resolve) {
                // Someone renamed a folder on the way: the kernel cannot tell whether it got out.
                Err(Errno::AGAIN) => {}
                // An old kernel, or a seccomp filter that does not know the call.
                Err(Errno::NOSYS | Errno::PERM) => break,
                answer => return Ok(answer?),
            }
        }
        self.walk_open(path, flags, mode)
    }

    /// Reads a regular file of at most `limit` bytes.
    ///
    /// # Errors
    /// Also where it is no regular file, or a longer one.
    pub fn read(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        // Not to be held up by a FIFO that stands where a file should.
        let fd = self.open_at(path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())?;
        read_at_most(fd, limit)
    }

    /// What a folder holds, sorted by name, without `.` and `..`; an error if that is very much.
    ///
    /// # Errors
    /// What the operating system answers. Also where it holds very many.
    pub fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        self.list_at_most(path, MOST_ENTRIES)
    }

    /// What a folder of at most `most` entries holds, sorted by name, without `.` and `..`.
    ///
    /// # Errors
    /// What the operating system answers. Also where it holds more.
    pub fn list_at_most(&self, path: &Path, most: usize) -> io::Result<Vec<OsString>> {
        let fd = self.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        let mut names = Vec::new();
        for entry in Dir::new(fd)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name == b"." || name == b".." {
                continue;
            }
            if names.len() == most {
                return Err(io::Error::new(
                    io::ErrorKind::FileTooLarge,
                    format!("more than {most} entries"),
                ));
            }
            names.push(OsString::from_vec(name));
        }
        names.sort_unstable();
        Ok(names)
    }

    /// The status of what `path` leads to.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn stat(&self, path: &Path) -> io::Result<Stat> {
        let fd = self.open_at(path, OFlags::PATH, Mode::empty())?;
        Ok(rustix::fs::fstat(fd)?)
    }

    /// The status of `path` itself, also if it is a link.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn lstat(&self, path: &Path) -> io::Result<Stat> {
        let (parent, name) = self.parent(path)?;
        Ok(rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Where the link at `path` points, as written in it.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn read_link(&self, path: &Path) -> io::Result<OsString> {
        let (parent, name) = self.parent(path)?;
        let target = rustix::fs::readlinkat(parent, name, Vec::new())?;
        Ok(OsString::from_vec(target.into_bytes()))
    }

    /// The folder that holds `path`, and the name in it.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn parent<'p>(&self, path: &'p Path) -> io::Result<(OwnedFd, &'p OsStr)> {
        let name = path
            .file_name()
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path does not end in a name"))?;
        let parent = path.parent().unwrap_or(Path::new("/"));
        let fd = self.open_at(parent, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        Ok((fd, name))
    }

    /// The path beneath this folder that is left when all links are followed.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn resolve(&self, path: &Path) -> io::Result<Resolved> {
        let walk = Walk::to(self.as_fd(), path)?;
        Ok(Resolved {
            path: walk.path(),
            host_differs: walk.host_differs,
        })
    }

    fn walk_open(&self, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        let walk = Walk::to(self.as_fd(), path)?;
        match walk.steps.last() {
            Some((_, name)) => {
                let parent = walk
                    .steps
                    .iter()
                    .rev()
                    .nth(1)
                    .map_or(self.as_fd(), |(fd, _)| fd.as_fd());
                Ok(rustix::fs::openat(parent, name, flags | OFlags::NOFOLLOW, mode)?)
            }
            None => Ok(rustix::fs::openat(&self.dir, ".", flags, mode)?),
        }
    }
}

/// A path without links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The path beneath the root, absolute.
    pub path: PathBuf,
    /// Whether the original path leads elsewhere if the root is a mere folder: a link on the way was absolute, or `..`
    /// stopped at the root.
    pub host_differs: bool,
}

/// A walk down from a root, one component at a time, that holds every folder on the way open.
///
/// `..` goes back to the folder that the walk came through, whatever has become of it, so nothing outside is reached.
struct Walk {
    steps: Vec<(OwnedFd, OsString)>,
    host_differs: bool,
}

impl Walk {
    fn to(root: BorrowedFd<'_>, path: &Path) -> io::Result<Self> {
        let mut walk = Self {
            steps: Vec::new(),
            host_differs: false,
        };
        let mut todo: Vec<OsString> = components(path).rev().collect();
        let mut links = 0;
        while let Some(name) = todo.pop() {
            if name == ".." {
                walk.host_differs |= walk.steps.pop().is_none();
                continue;
            }
            let parent = walk.steps.last().map_or(root, |(fd, _)| fd.as_fd());
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let fd = rustix::fs::openat(parent, &name, flags, Mode::empty())?;
            if FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode) != FileType::Symlink {
                walk.steps.push((fd, name));
                continue;
            }
            links += 1;
            if links > MAX_LINKS {
                return Err(Errno::LOOP.into());
            }
            let target = PathBuf::from(OsString::from_vec(
                rustix::fs::readlinkat(&fd, "", Vec::new())?.into_bytes(),
            ));
            if target.is_absolute() {
                walk.host_differs = true;
                walk.steps.clear();
            }
            todo.extend(components(&target).rev());
        }
        Ok(walk)
    }

    fn path(&self) -> PathBuf {
        let mut path = PathBuf::from("/");
        path.extend(self.steps.iter().map(|(_, name)| name));
        path
    }
}

/// The names and `..` of a path, without its root and `.`.
fn components(path: &Path) -> impl DoubleEndedIterator<Item = OsString> + '_ {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

/// `path` without its leading slash, and `.` if nothing is left: what a call relative to a folder takes.
fn relative(path: &Path) -> &Path {
    let bytes = path.as_os_str().as_bytes();
    let start = bytes.iter().position(|&b| b != b'/').unwrap_or(bytes.len());
    match &bytes[start..] {
        [] => Path::new("."),
        rest => Path::new(OsStr::from_bytes(rest)),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        io::Read as _,
        os::unix::fs::symlink,
    };

    use super::*;

    /// A root `in` beside a file `secret` that no path in it may reach.
    fn tree() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let inside = dir.path().join("in");
        fs::create_dir_all(inside.join("a/b")).unwrap();
        fs::write(dir.path().join("secret"), "secret").unwrap();
        fs::write(inside.join("a/file"), "file").unwrap();
        symlink("a/file", inside.join("relative")).unwrap();
        symlink("/a/file", inside.join("absolute")).unwrap();
        symlink("../../../../a/file", inside.join("a/b/up")).unwrap();
        symlink("../secret", inside.join("escape")).unwrap();
        symlink(dir.path().join("secret"), inside.join("escape-absolute")).unwrap();
        symlink("loop", inside.join("loop")).unwrap();
        symlink("/", inside.join("root")).unwrap();
        let root = Root::open(&inside).unwrap();
        (dir, root)
    }

    #[test]
    fn both_ways_of_opening_stay_beneath_the_root() {
        #[track_caller]
        fn check(root: &Root, path: &str, expected: Option<&str>) {
            let path = Path::new(path);
            let read = |fd: io::Result<OwnedFd>| {
                let mut text = String::new();
                File::from(fd.ok()?).read_to_string(&mut text).ok().map(|_| text)
            };
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let kernel = read(root.open_at(path, flags, Mode::empty()));
            let walk = read(root.walk_open(path, flags, Mode::empty()));
            assert_eq!(
                (kernel.as_deref(), walk.as_deref()),
                (expected, expected),
                "{}",
                path.display()
            );
        }
        let (_dir, root) = tree();
        check(&root, "/a/file", Some("file"));
        check(&root, "a/./file", Some("file"));
        check(&root, "/relative", Some("file"));
        check(&root, "/absolute", Some("file"));
        check(&root, "/a/b/up", Some("file"));
        check(&root, "/root/root/a/file", Some("file"));
        check(&root, "/../../a/file", Some("file"));
        check(&root, "/../secret", None);
        check(&root, "/escape", None);
        check(&root, "/escape-absolute", None);
        check(&root, "/loop", None);
        check(&root, "/nothing", None);
    }

    #[test]
    fn resolving_tells_whether_the_host_would_end_elsewhere() {
        #[track_caller]
        fn check(root: &Root, path: &str, expected: &str, host_differs: bool) {
            let resolved = root.resolve(Path::new(path)).unwrap();
            assert_eq!(
                (resolved.path.to_str().unwrap(), resolved.host_differs),
                (expected, host_differs)
            );
        }
        let (_dir, root) = tree();
        check(&root, "/relative", "/a/file", false);
        check(&root, "/a/b/../file", "/a/file", false);
        check(&root, "/absolute", "/a/file", true);
        check(&root, "/a/b/up", "/a/file", true);
        check(&root, "/", "/", false);
    }

    #[test]
    fn renames_at_the_same_time_keep_no_path_from_being_opened() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let (dir, root) = tree();
        let (here, there) = (dir.path().join("in/x"), dir.path().join("in/y"));
        fs::create_dir(&here).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    fs::rename(&here, &there).unwrap();
                    fs::rename(&there, &here).unwrap();
                }
            });
            let path = Path::new("a/b/../b/../b/../b/../b/../b/../b/../b/../file");
            let read: Vec<_> = (0..5000).map(|_| root.read(path, 4)).collect();
            stop.store(true, Ordering::Relaxed);
            for content in read {
                assert_eq!(content.unwrap(), b"file");
            }
        });
    }

    #[test]
    fn listing_stops_at_the_limit() {
        let (_dir, root) = tree();
        assert_eq!(root.list_at_most(Path::new("/a"), 2).unwrap(), ["b", "file"]);
        let error = root.list_at_most(Path::new("/a"), 1).unwrap_err();
        assert_eq!(error.to_string(), "more than 1 entries");
    }

    #[test]
    fn reading_stops_at_the_limit_and_at_what_is_no_file() {
        let (_dir, root) = tree();
        assert_eq!(root.read(Path::new("/a/file"), 4).unwrap(), b"file");
        assert_eq!(
            root.read(Path::new("/a/file"), 3).unwrap_err().kind(),
            io::ErrorKind::FileTooLarge
        );
        assert_eq!(
            root.read(Path::new("/a"), 4).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
    }
}
