use std::{
    env,
    ffi::OsStr,
    fs,
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _},
    path::{Path, PathBuf},
    sync::Mutex,
};

use crate::{BUILD_ID, Error, Result, build_id, elf, replace::replace};

/// What cargo calls this crate's library.
const FILE: &str = "libgpu_sim.so";

/// The simulated library of this build.
///
/// It looks beside the running program and in `deps/` there, where cargo puts the library of a dependency; then in the
/// target folder that this crate was compiled in, which is where it is for a documentation test. A library of another
/// build is passed over: cargo leaves an old one beside the program when only tests are built.
///
/// # Errors
/// Where there is none, or where all come from other sources than this program.
pub fn library() -> Result<PathBuf> {
    // Reading some 20 MB for each of many nodes is slow, so what was found is kept.
    static FOUND: Mutex<Option<PathBuf>> = Mutex::new(None);
    let mut found = FOUND.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(path) = found.as_ref().filter(|path| path.exists()) {
        return Ok(path.clone());
    }
    Ok(found.insert(find()?).clone())
}

fn find() -> Result<PathBuf> {
    let program = env::current_exe().map_err(Error::read("/proc/self/exe"))?;
    let folders = [program.parent(), option_env!("GPU_SIM_TARGET_DIR").map(Path::new)];
    let looked_for: Vec<PathBuf> = folders
        .into_iter()
        .flatten()
        .flat_map(|folder| [folder.join(FILE), folder.join("deps").join(FILE)])
        .collect();
    let mut refused = None;
    for path in looked_for.iter().filter(|path| path.is_file()) {
        match check(path) {
            Ok(()) => return Ok(path.clone()),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    Err(refused.unwrap_or(Error::LibraryNotFound { looked_for }))
}

/// What cargo calls the library of the package `gpu-sim-cuda`.
const CUDA: &str = "libgpu_sim_cuda.so";

/// The simulated `libcuda.so.1`, if it was built: the newest one beside this crate's library, in `deps/` there, or one folder
/// above.
pub(crate) fn cuda(library: &Path) -> Option<PathBuf> {
    let folder = library.parent()?;
    let places = [
        folder.join(CUDA),
        folder.join("deps").join(CUDA),
        folder.parent()?.join(CUDA),
    ];
    let changed = |path: &PathBuf| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    places
        .into_iter()
        .filter(|path| changed(path).is_some())
        .max_by_key(changed)
}

/// Copies the simulated `libcuda.so.1` and writes behind it which version of CUDA it is of. It is a copy for the reason that
/// [`Trailer::write_copy`] makes one.
pub(crate) fn write_cuda_copy(source: &Path, copy: &Path, version: i32) -> Result<()> {
    let mut bytes = fs::read(source).map_err(Error::read(source))?;
    bytes.extend_from_slice(format!("\ngpu-sim cuda {version}\n").as_bytes());
    replace(copy, |file| {
        file.write_all(&bytes)?;
        file.set_permissions(fs::Permissions::from_mode(0o755))
    })
}

/// Refuses a library that was built from other sources than this program.
pub(crate) fn check(path: &Path) -> Result<()> {
    let found = build_id::find(&fs::read(path).map_err(Error::read(path))?);
    if found.as_deref() == Some(BUILD_ID) {
        Ok(())
    } else {
        Err(Error::OtherBuild {
            path: path.to_owned(),
            found,
            expected: BUILD_ID,
        })
    }
}

/// What a private copy of the library carries behind its last byte, so that it knows its node.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Trailer {
    /// The node's folder, absolute.
    pub(crate) node: PathBuf,
    /// The text of `node.yaml` when the copy was made.
    pub(crate) node_yaml: String,
    /// The text of the state as of the last change of partitions; none before the first.
    pub(crate) state: Option<String>,
}

/// A copy is made anew when trailers of earlier states take more than this many bytes.
const MOST_TRAILERS: u64 = 1 << 20;

/// The file ends in the trailer's length (eight bytes, little endian) and this.
const MAGIC: &[u8; 16] = b"gpu-sim trailer\n";
const FOOTER: u64 = 8 + MAGIC.len() as u64;

impl Trailer {
    /// Copies the library, without the functions that `lacks` names, and appends the trailer. It is a copy and never a
    /// link: the loader takes one inode for one library, so two nodes in one process would share their state.
    ///
    /// What is at `copy` already is replaced, so that a process which has it loaded keeps what it has.
    pub(crate) fn write_copy(&self, library: &Path, copy: &Path, lacks: impl Fn(&str) -> bool) -> Result<()> {
        let mut source = fs::File::open(library).map_err(Error::read(library))?;
        let length = length(&mut source).map_err(Error::read(library))?;
        let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
        let mut read = || {
            source.rewind()?;
            (&source).take(length).read_to_end(&mut bytes)
        };
        read().map_err(Error::read(library))?;
        elf::hide_symbols(&mut bytes, lacks);

        replace(copy, |file| {
            file.write_all(&bytes)?;
            file.write_all(&self.bytes())
        })
    }

    /// Lets a copy carry another state: one more trailer behind the others, so that a container which got the file sees it
    /// too, and whoever reads meanwhile finds the one before. What is no copy, or not there, is left alone.
    pub(crate) fn set_state(copy: &Path, state: &str) -> Result<()> {
        let Some(mut trailer) = Self::read(copy).ok().flatten() else {
            return Ok(());
        };
        trailer.state = Some(state.to_owned());
        let append = || -> io::Result<bool> {
            let mut file = fs::File::options().read(true).append(true).open(copy)?;
            let trailers = file.metadata()?.len() - length(&mut file)?;
            if trailers > MOST_TRAILERS {
                return Ok(false);
            }
            file.write_all(&trailer.bytes()).map(|()| true)
        };
        if append().map_err(Error::write(copy))? {
            Ok(())
        } else {
            trailer.write_copy(copy, copy, |_| false)
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.node.as_os_str().as_bytes().to_vec();
        bytes.push(0);
        bytes.extend_from_slice(self.node_yaml.as_bytes());
        if let Some(state) = &self.state {
            bytes.push(0);
            bytes.extend_from_slice(state.as_bytes());
        }
        let size = bytes.len() as u64;
        bytes.extend_from_slice(&size.to_le_bytes());
        bytes.extend_from_slice(MAGIC);
        bytes
    }

    /// The driver version that the copy was made for.
    pub(crate) fn driver(&self) -> Option<&str> {
        let mut lines = self.node_yaml.lines();
        let value = lines.find_map(|line| line.strip_prefix("driver:"))?;
        Some(value.trim().trim_matches(['"', '\'']))
    }

    /// Reads the last whole trailer of a copy; none if it has none.
    pub(crate) fn read(library: &Path) -> io::Result<Option<Self>> {
        let mut file = fs::File::open(library)?;
        let end = file.metadata()?.len();
        let mut ends = start(&mut file, end)?.map(|_| end);
        if ends.is_none() {
            ends = earlier_end(&mut file, end)?;
        }
        let Some(end) = ends else { return Ok(None) };
        let Some(start) = start(&mut file, end)? else {
            return Ok(None);
        };
        let mut bytes = vec![0; usize::try_from(end - start - FOOTER).map_err(io::Error::other)?];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut bytes)?;
        let mut parts = bytes.splitn(3, |byte| *byte == 0);
        let (Some(node), Some(yaml)) = (parts.next(), parts.next()) else {
            return Ok(None);
        };
        let text = |part: &[u8]| String::from_utf8(part.to_vec()).map_err(io::Error::other);
        Ok(Some(Self {
            node: PathBuf::from(OsStr::from_bytes(node)),
            node_yaml: text(yaml)?,
            state: parts.next().map(text).transpose()?,
        }))
    }
}

/// Length of the library itself, without trailers.
fn length(file: &mut fs::File) -> io::Result<u64> {
    let mut end = file.metadata()?.len();
    while let Some(start) = start(file, end)? {
        end = start;
    }
    Ok(end)
}

/// Where the trailer that ends at `end` starts, if there is one: it begins with an absolute path.
fn start(file: &mut fs::File, end: u64) -> io::Result<Option<u64>> {
    let Some(footer_at) = end.checked_sub(FOOTER) else {
        return Ok(None);
    };
    file.seek(SeekFrom::Start(footer_at))?;
    let (mut size, mut magic, mut first) = ([0; 8], [0; MAGIC.len()], [0]);
    file.read_exact(&mut size)?;
    file.read_exact(&mut magic)?;
    let size = u64::from_le_bytes(size);
    let Some(start) = footer_at.checked_sub(size).filter(|_| &magic == MAGIC && size > 1) else {
        return Ok(None);
    };
    file.seek(SeekFrom::Start(start))?;
    file.read_exact(&mut first)?;
    Ok(Some(start).filter(|_| first == *b"/"))
}

/// Where the last whole trailer ends, if something follows it: somebody is writing another one, or was killed at that.
fn earlier_end(file: &mut fs::File, end: u64) -> io::Result<Option<u64>> {
    let from = end.saturating_sub(MOST_TRAILERS);
    let mut tail = vec![0; usize::try_from(end - from).map_err(io::Error::other)?];
    file.seek(SeekFrom::Start(from))?;
    file.read_exact(&mut tail)?;
    let mut upto = tail.len();
    while let Some(at) = (0..upto.saturating_sub(MAGIC.len() - 1))
        .rev()
        .find(|at| tail[*at..].starts_with(MAGIC))
    {
        let end = from + (at + MAGIC.len()) as u64;
        if start(file, end)?.is_some() {
            return Ok(Some(end));
        }
        upto = at + MAGIC.len() - 1;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_a_copy_carries_one_trailer() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("a"), "library").unwrap();
        let trailer = |node: &str| Trailer {
            node: node.into(),
            node_yaml: format!("of: {node}\n"),
            state: None,
        };
        assert_eq!(Trailer::read(&path("a")).unwrap(), None);
        trailer("/one").write_copy(&path("a"), &path("b"), |_| false).unwrap();
        trailer("/two").write_copy(&path("b"), &path("c"), |_| false).unwrap();
        assert_eq!(Trailer::read(&path("b")).unwrap(), Some(trailer("/one")));
        assert_eq!(Trailer::read(&path("c")).unwrap(), Some(trailer("/two")));
        assert_eq!(
            fs::metadata(path("b")).unwrap().len(),
            fs::metadata(path("c")).unwrap().len()
        );
    }

    #[test]
    fn the_last_whole_state_counts_and_the_library_stays_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("a"), "library").unwrap();
        Trailer::set_state(&path("a"), "ignored").unwrap();
        Trailer::set_state(&path("absent"), "ignored").unwrap();
        assert_eq!(fs::read(path("a")).unwrap(), b"library");
        let trailer = Trailer {
            node: "/node".into(),
            node_yaml: "driver: 1\n".to_owned(),
            state: None,
        };
        trailer.write_copy(&path("a"), &path("b"), |_| false).unwrap();
        let state = || Trailer::read(&path("b")).unwrap().unwrap().state;
        for text in ["one", "two"] {
            Trailer::set_state(&path("b"), text).unwrap();
            assert_eq!(state().as_deref(), Some(text));
        }
        // A writer is killed at any byte of the next one.
        let whole = fs::read(path("b")).unwrap();
        Trailer::set_state(&path("b"), "three").unwrap();
        let next = fs::read(path("b")).unwrap();
        for length in whole.len()..next.len() {
            fs::write(path("b"), &next[..length]).unwrap();
            assert_eq!(state().as_deref(), Some("two"), "{length}");
        }
        // So many that the copy is made anew.
        let long = "x".repeat(1 << 18);
        for _ in 0..6 {
            Trailer::set_state(&path("b"), &long).unwrap();
        }
        assert_eq!(state(), Some(long));
        assert!(fs::metadata(path("b")).unwrap().len() < 4 << 18);
        assert!(fs::read(path("b")).unwrap().starts_with(b"library/node"));
    }

    #[test]
    fn a_trailer_with_a_length_beyond_the_file_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, [&u64::MAX.to_le_bytes()[..], MAGIC].concat()).unwrap();
        assert_eq!(Trailer::read(&path).unwrap(), None);
    }

    #[test]
    fn a_library_of_other_sources_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        fs::write(&path, build_id::MARKER).unwrap();
        check(&path).unwrap();
        fs::write(&path, build_id::MARKER.replace(BUILD_ID, &"0".repeat(BUILD_ID.len()))).unwrap();
        let message = check(&path).unwrap_err().to_string();
        assert!(message.contains("00000000") && message.contains(BUILD_ID), "{message}");
    }
}
