use std::{
    env,
    ffi::OsStr,
    fs,
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::Mutex,
};

use crate::{BUILD_ID, Error, Result, build_id, elf};

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
}

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

        let mut trailer = self.node.as_os_str().as_bytes().to_vec();
        trailer.push(0);
        trailer.extend_from_slice(self.node_yaml.as_bytes());
        let size = trailer.len() as u64;
        trailer.extend_from_slice(&size.to_le_bytes());
        trailer.extend_from_slice(MAGIC);
        let new = copy.with_extension("new");
        let write = || -> io::Result<()> {
            let mut target = fs::File::create(&new)?;
            target.write_all(&bytes)?;
            target.write_all(&trailer)?;
            fs::rename(&new, copy)
        };
        write().map_err(Error::write(copy))
    }

    /// The driver version that the copy was made for.
    pub(crate) fn driver(&self) -> Option<&str> {
        let mut lines = self.node_yaml.lines();
        let value = lines.find_map(|line| line.strip_prefix("driver:"))?;
        Some(value.trim().trim_matches(['"', '\'']))
    }

    /// Reads the trailer of a copy; none if it has none.
    pub(crate) fn read(library: &Path) -> io::Result<Option<Self>> {
        let mut file = fs::File::open(library)?;
        let end = file.metadata()?.len();
        let start = length(&mut file)?;
        if start == end {
            return Ok(None);
        }
        let mut bytes = vec![0; usize::try_from(end - start - FOOTER).map_err(io::Error::other)?];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut bytes)?;
        let Some((node, yaml)) = bytes
            .iter()
            .position(|&byte| byte == 0)
            .and_then(|at| bytes.split_at_checked(at))
        else {
            return Ok(None);
        };
        let node_yaml = String::from_utf8(yaml.get(1..).unwrap_or_default().to_vec()).map_err(io::Error::other)?;
        Ok(Some(Self {
            node: PathBuf::from(OsStr::from_bytes(node)),
            node_yaml,
        }))
    }
}

/// Length of the library itself, without a trailer.
fn length(file: &mut fs::File) -> io::Result<u64> {
    let end = file.metadata()?.len();
    let Some(footer_at) = end.checked_sub(FOOTER) else {
        return Ok(end);
    };
    file.seek(SeekFrom::Start(footer_at))?;
    let (mut size, mut magic) = ([0; 8], [0; MAGIC.len()]);
    file.read_exact(&mut size)?;
    file.read_exact(&mut magic)?;
    let start = footer_at.checked_sub(u64::from_le_bytes(size));
    Ok(start.filter(|_| &magic == MAGIC).unwrap_or(end))
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
