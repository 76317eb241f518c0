//! Who may change which GPU: an agreement between the programs of one node.
//!
//! The device plugin, the DRA driver and the MIG manager may run side by side. Before one of them offers or changes a GPU it
//! claims it in a file, and keeps away from what another has claimed.
//!
//! ```
//! use gpu_core::ownership::{Owner, OwnerFile};
//!
//! let folder = tempfile::tempdir()?;
//! let file = OwnerFile::new(folder.path().join("owners.json"));
//! let gpu = "GPU-7a675969-0a3d-4f9c-8a6e-1b2c3d4e5f60".parse()?;
//! file.claim(Owner::DevicePlugin, std::slice::from_ref(&gpu))?;
//! assert!(file.claim(Owner::Dra, &[gpu]).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::{
    collections::BTreeMap,
    fmt,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

use crate::{FileError, GpuUuid, file::read};

/// Where the file lies beneath the host's root.
pub const FILE: &str = "var/run/nvidia-gpu-owners.json";

/// The socket of NVIDIA's DRA driver in the kubelet's folder. A driver that does not write the file owns all GPUs while it
/// listens there.
pub const DRA_SOCKET: &str = "plugins/gpu.nvidia.com/dra.sock";

/// The longest file that is read: room for some thousand GPUs.
const LONGEST: u64 = 1 << 20;

/// How long a lock is waited for, which is held for some milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often it is tried meanwhile.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// A program that may own GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Owner {
    /// The device plugin.
    DevicePlugin,
    /// The DRA driver.
    Dra,
    /// The MIG manager.
    MigManager,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::DevicePlugin => "device-plugin",
            Self::Dra => "dra",
            Self::MigManager => "mig-manager",
        })
    }
}

/// A claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Who.
    pub owner: Owner,
    /// Since when: seconds since 1970, UTC.
    pub since: u64,
}

/// All claims of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Owners {
    /// Version of the file: [`Owners::VERSION`].
    pub version: u32,
    /// The claims, by GPU.
    pub owners: BTreeMap<GpuUuid, Claim>,
}

impl Owners {
    /// The version of the file that this version of the crate writes and reads.
    pub const VERSION: u32 = 1;
}

impl Default for Owners {
    fn default() -> Self {
        Self {
            version: Self::VERSION,
            owners: BTreeMap::new(),
        }
    }
}

/// Why GPUs could not be claimed or released.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OwnershipError {
    /// Others own some of them. Nothing was claimed.
    #[error("{}", owned(others))]
    Owned {
        /// Which, and who.
        others: Vec<(GpuUuid, Owner)>,
    },
    /// A DRA driver that does not write the file owns all GPUs. Nothing was claimed.
    #[error("another DRA driver listens on `{}` and owns all GPUs", socket.display())]
    OtherDraDriver {
        /// Its socket.
        socket: PathBuf,
    },
    /// The file is of another version, or is not what a program of ours writes. Remove it if no such program runs.
    #[error("`{}` is no file of GPU owners: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and where.
        reason: String,
    },
    /// The file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
}

fn owned(others: &[(GpuUuid, Owner)]) -> String {
    let others: Vec<_> = others
        .iter()
        .map(|(gpu, owner)| format!("{gpu} is owned by {owner}"))
        .collect();
    others.join(", ")
}

/// The file of a node's claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerFile {
    path: PathBuf,
    kubelet: Option<PathBuf>,
    /// How long another program's lock is waited for.
    patience: Duration,
}

impl OwnerFile {
    /// The file of that path. Use the one at [`FILE`] beneath the host's root, so that all programs agree.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            kubelet: None,
            patience: PATIENCE,
        }
    }

    /// Also respects a DRA driver that does not write the file, by its [socket](DRA_SOCKET) in the kubelet's folder
    /// (`/var/lib/kubelet`). It counts only while the file does not exist.
    #[must_use]
    pub fn kubelet(mut self, folder: impl Into<PathBuf>) -> Self {
        self.kubelet = Some(folder.into());
        self
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The files by which it shows that owners have changed: this one, and the socket of a DRA driver that is respected.
    pub fn signs(&self) -> impl Iterator<Item = PathBuf> + '_ {
        std::iter::once(self.path.clone()).chain(self.socket())
    }

    /// A DRA driver that does not write the file, and so owns all GPUs: its socket. None where there is a file.
    pub fn other_driver(&self) -> Option<PathBuf> {
        // A socket that nobody listens on is a left-over.
        let listens = |socket: &PathBuf| UnixStream::connect(socket).is_ok();
        let absent = self.path.symlink_metadata().is_err();
        self.socket().filter(|_| absent).filter(listens)
    }

    fn socket(&self) -> Option<PathBuf> {
        self.kubelet.as_ref().map(|kubelet| kubelet.join(DRA_SOCKET))
    }

    /// All claims; none where there is no file. It waits for nobody: the file is replaced as a whole.
    ///
    /// # Errors
    /// [`OwnershipError::Malformed`] or [`OwnershipError::File`].
    pub fn read(&self) -> Result<Owners, OwnershipError> {
        Ok(self.existing()?.unwrap_or_default())
    }

    /// Claims the GPUs for `owner`: all of them, or none. What it owns already stays its own, since when it was.
    ///
    /// # Errors
    /// Where another owns one of them, where the file cannot be read or written, and where another program has not let go of its
    /// lock for ten seconds.
    pub fn claim(&self, owner: Owner, gpus: &[GpuUuid]) -> Result<(), OwnershipError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let since = now.map_or(0, |since| since.as_secs());
        self.change(|owners| {
            let others = gpus.iter().filter_map(|gpu| {
                let claim = owners.get(gpu)?;
                (claim.owner != owner).then(|| (gpu.clone(), claim.owner))
            });
            let others: Vec<_> = others.collect();
            if !others.is_empty() {
                return Err(OwnershipError::Owned { others });
            }
            for gpu in gpus {
                owners.entry(gpu.clone()).or_insert(Claim { owner, since });
            }
            Ok(())
        })
    }

    /// Gives up the GPUs that `owner` owns among these; the others stay as they are.
    ///
    /// # Errors
    /// Where the file cannot be read or written.
    pub fn release(&self, owner: Owner, gpus: &[GpuUuid]) -> Result<(), OwnershipError> {
        self.change(|owners| {
            owners.retain(|gpu, claim| claim.owner != owner || !gpus.contains(gpu));
            Ok(())
        })
    }

    /// Gives up all that `owner` owns.
    ///
    /// # Errors
    /// Where the file cannot be read or written.
    pub fn release_all(&self, owner: Owner) -> Result<(), OwnershipError> {
        self.change(|owners| {
            owners.retain(|_, claim| claim.owner != owner);
            Ok(())
        })
    }

    fn existing(&self) -> Result<Option<Owners>, OwnershipError> {
        let Some(text) = read(&self.path, LONGEST)? else {
            return Ok(None);
        };
        let malformed = |reason: String| OwnershipError::Malformed {
            path: self.path.clone(),
            reason,
        };
        let owners: Owners = serde_json::from_str(&text).map_err(|error| malformed(error.to_string()))?;
        if owners.version != Owners::VERSION {
            return Err(malformed(format!(
                "it has version {}, and {} is known",
                owners.version,
                Owners::VERSION
            )));
        }
        Ok(Some(owners))
    }

    /// Changes the claims while nobody else does. Where `change` fails, nothing is changed.
    fn change(
        &self,
        change: impl FnOnce(&mut BTreeMap<GpuUuid, Claim>) -> Result<(), OwnershipError>,
    ) -> Result<(), OwnershipError> {
        // The lock is another file: this one is replaced, and a lock would go with what it replaces.
        let _lock = self.lock()?;
        let existing = self.existing()?;
        if let Some(socket) = self.other_driver() {
            return Err(OwnershipError::OtherDraDriver { socket });
        }
        let before = existing.unwrap_or_default();
        let mut owners = before.clone();
        change(&mut owners.owners)?;
        if owners != before {
            self.write(&owners)?;
        }
        Ok(())
    }

    fn beside(&self, extension: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(extension);
        name.into()
    }

    /// Goes with the value, also when the process is killed. Whoever holds it does so for a moment; one that does not let go is
    /// told and not waited for.
    fn lock(&self) -> Result<File, FileError> {
        let path = self.beside(".lock");
        let mut options = OpenOptions::new();
        let file = options.create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(FileError::new("open", &path))?;
        let deadline = Instant::now() + self.patience;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => thread::sleep(LOOK_AGAIN),
                Err(TryLockError::WouldBlock) => {
                    let error = io::Error::new(io::ErrorKind::TimedOut, "another program does not let go of it");
                    return Err(FileError::new("lock", &path)(error));
                }
                Err(TryLockError::Error(error)) => return Err(FileError::new("lock", &path)(error)),
            }
        }
    }

    /// Readers find the old claims or the new ones.
    fn write(&self, owners: &Owners) -> Result<(), FileError> {
        let new = self.beside(".new");
        let write = || -> io::Result<()> {
            let mut file = File::create(&new)?;
            file.write_all(&serde_json::to_vec(owners)?)?;
            file.sync_all()?;
            fs::rename(&new, &self.path)
        };
        write().map_err(FileError::new("write", &self.path))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn gpu(number: u32) -> GpuUuid {
        format!("GPU-{number:08}-0000-0000-0000-000000000000").parse().unwrap()
    }

    fn file() -> (tempfile::TempDir, OwnerFile) {
        let folder = tempfile::tempdir().unwrap();
        let file = OwnerFile::new(folder.path().join("nvidia-gpu-owners.json"));
        (folder, file)
    }

    #[test]
    fn the_file_is_as_agreed() {
        let (_folder, file) = file();
        file.claim(Owner::MigManager, &[gpu(1)]).unwrap();
        let text = fs::read_to_string(file.path()).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["version"], 1);
        let claim = &value["owners"][gpu(1).as_str()];
        assert_eq!(claim["owner"], "mig-manager");
        assert!(claim["since"].as_u64().unwrap() > 1_700_000_000);
        for (owner, text) in [(Owner::DevicePlugin, "device-plugin"), (Owner::Dra, "dra")] {
            assert_eq!(serde_json::to_value(owner).unwrap(), text);
            assert_eq!(owner.to_string(), text);
        }
    }

    #[test]
    fn gpus_are_claimed_all_or_none() {
        let (_folder, file) = file();
        assert_eq!(file.read().unwrap(), Owners::default());
        file.claim(Owner::Dra, &[gpu(1)]).unwrap();
        let error = file.claim(Owner::DevicePlugin, &[gpu(0), gpu(1)]).unwrap_err();
        assert_eq!(error.to_string(), format!("{} is owned by dra", gpu(1)));
        assert!(!file.read().unwrap().owners.contains_key(&gpu(0)));

        file.claim(Owner::Dra, &[gpu(1), gpu(2)]).unwrap();
        file.release(Owner::DevicePlugin, &[gpu(1)]).unwrap();
        file.release(Owner::Dra, &[gpu(1)]).unwrap();
        file.claim(Owner::DevicePlugin, &[gpu(0), gpu(1)]).unwrap();
        file.release_all(Owner::DevicePlugin).unwrap();
        assert_eq!(file.read().unwrap().owners.keys().collect::<Vec<_>>(), [&gpu(2)]);
    }

    #[test]
    fn claims_from_many_threads_do_not_get_lost() {
        let (_folder, file) = file();
        thread::scope(|scope| {
            for number in 0..16 {
                let file = &file;
                scope.spawn(move || file.claim(Owner::Dra, &[gpu(number)]).unwrap());
            }
        });
        assert_eq!(file.read().unwrap().owners.len(), 16);
    }

    #[test]
    fn a_lock_that_is_not_let_go_of_is_an_error() {
        let (_folder, mut file) = file();
        let _lock = file.lock().unwrap();
        file.patience = Duration::from_millis(20);
        let error = file.claim(Owner::Dra, &[gpu(0)]).unwrap_err();
        assert!(error.to_string().ends_with("nvidia-gpu-owners.json.lock`"), "{error}");
        assert_eq!(file.read().unwrap(), Owners::default());
    }

    #[test]
    fn a_file_of_another_make_is_refused_and_kept() {
        let (_folder, file) = file();
        for (text, reason) in [
            (r#"{"version":2,"owners":{}}"#, "it has version 2, and 1 is known"),
            (
                r#"{"version":1,"owners":{"GPU-x":{"owner":"dra","since":1}}}"#,
                "is not a GPU UUID",
            ),
            ("", "EOF while parsing"),
        ] {
            fs::write(file.path(), text).unwrap();
            for error in [file.read().unwrap_err(), file.claim(Owner::Dra, &[gpu(0)]).unwrap_err()] {
                assert!(matches!(error, OwnershipError::Malformed { .. }), "{error:?}");
                assert!(error.to_string().contains(reason), "{error}");
            }
            assert_eq!(fs::read_to_string(file.path()).unwrap(), text);
        }
    }

    #[test]
    fn a_dra_driver_that_writes_no_file_owns_all_while_it_listens() {
        let (folder, file) = file();
        let file = file.kubelet(folder.path());
        let socket = folder.path().join(DRA_SOCKET);
        fs::create_dir_all(socket.parent().unwrap()).unwrap();
        let listener = UnixListener::bind(&socket).unwrap();
        let error = file.claim(Owner::DevicePlugin, &[gpu(0)]).unwrap_err();
        assert!(matches!(error, OwnershipError::OtherDraDriver { .. }), "{error:?}");
        drop(listener);
        file.claim(Owner::DevicePlugin, &[gpu(0)]).unwrap(); // what is left of the socket does not count
        let _listener = (fs::remove_file(&socket).unwrap(), UnixListener::bind(&socket).unwrap());
        file.claim(Owner::DevicePlugin, &[gpu(1)]).unwrap(); // nor does it where there is a file
        assert_eq!(file.other_driver(), None);
        assert_eq!(
            file.signs().collect::<Vec<_>>(),
            [file.path().to_owned(), socket.clone()]
        );
        fs::remove_file(file.path()).unwrap();
        assert_eq!(file.other_driver(), Some(socket));
    }
}
