//! A node as its folder.

mod calls;
mod faults;
mod mig;
mod reload;
mod services;

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    Error, GpuEntry, NodeFile, NodeSpec, Result, board, driver,
    library::{self, Trailer},
    mig::ModeRules,
    profile,
    state::{Event, GpuRecord, State},
    tree,
};

pub use self::{
    faults::{Load, Recovery},
    mig::MigInstance,
    services::Service,
};

/// A simulated node: a folder with `node.yaml`, `state/`, `lib/libnvidia-ml.so.1` and `root/`.
///
/// Changes made through this value, or by another process, are seen at once by every process that uses the node.
#[derive(Debug)]
pub struct Node {
    folder: PathBuf,
    file: NodeFile,
    state: State,
}

impl Node {
    /// Makes a node in an empty or absent folder.
    ///
    /// Device nodes are character devices where this process may make them, else regular files.
    ///
    /// # Errors
    /// Where the folder is not empty, the profile, driver or number of GPUs is unknown, the library is not there, or a
    /// file cannot be written. What was written until then is removed again.
    pub fn create(spec: &NodeSpec, folder: impl AsRef<Path>) -> Result<Self> {
        let profile = profile::find(&spec.profile).ok_or_else(|| Error::UnknownProfile {
            name: spec.profile.clone(),
            known: profile::profiles().map(|profile| profile.name.clone()).collect(),
        })?;
        let driver = driver::find(spec.driver.as_deref().unwrap_or(&profile.driver))?;
        let file = NodeFile::new(spec, profile, driver)?;
        let library = match &spec.library {
            Some(path) => {
                library::check(path)?;
                path.clone()
            }
            None => library::library()?,
        };

        let folder = folder.as_ref();
        let existed = folder.exists();
        fs::create_dir_all(folder).map_err(Error::write(folder))?;
        if fs::read_dir(folder).map_err(Error::read(folder))?.next().is_some() {
            return Err(Error::NotEmpty {
                path: folder.to_owned(),
            });
        }
        // The library finds its node by this path, so it must hold wherever a process runs.
        let folder = folder.canonicalize().map_err(Error::read(folder))?;
        let node = Self {
            state: State::of(&folder),
            folder,
            file,
        };
        let made = node.write(&library, spec.nvidia_smi.as_deref());
        if made.is_err() {
            node.remove(existed);
        }
        made.map(|()| node)
    }

    /// Opens the node in that folder.
    ///
    /// # Errors
    /// Where the folder has no `node.yaml`, or that file or the state cannot be read or understood.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let path = folder.join(NodeFile::NAME);
        if !path.exists() {
            return Err(Error::NotANode {
                path: folder.to_owned(),
            });
        }
        let file = NodeFile::read(&path)?;
        let folder = folder.canonicalize().map_err(Error::read(folder))?;
        let state = State::of(&folder);
        state.mend(&file)?;
        Ok(Self { folder, file, state })
    }

    /// The node's folder, absolute.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The library to load: `lib/libnvidia-ml.so.1` in the node's folder.
    pub fn library(&self) -> PathBuf {
        self.folder.join("lib/libnvidia-ml.so.1")
    }

    /// The node's file tree: `dev`, `proc`, `sys`, `usr`, `run`, `etc` as the driver leaves them.
    pub fn root(&self) -> PathBuf {
        self.folder.join("root")
    }

    /// What `node.yaml` held when the node was made or opened.
    pub fn file(&self) -> &NodeFile {
        &self.file
    }

    /// The GPUs in the order of NVML's indices, those that were taken out among them.
    pub fn gpus(&self) -> &[GpuEntry] {
        &self.file.gpus
    }

    /// The environment variables that point a program at this node.
    pub fn env(&self) -> Vec<(&'static str, PathBuf)> {
        vec![
            ("GPU_SIM_DIR", self.folder.clone()),
            ("LD_LIBRARY_PATH", self.folder.join("lib")),
            ("GPU_NVML_LIBRARY", self.library()),
            ("GPU_HOST_ROOT", self.root()),
            ("NVIDIA_DRIVER_ROOT", self.root()),
            ("CONTAINER_DRIVER_ROOT", self.root()),
        ]
    }

    /// Reports an Xid of a GPU, once to every event set that waits for Xids of that GPU now.
    ///
    /// The GPU goes on answering. What follows an Xid on hardware is not implied: see [`lose`](Self::lose).
    ///
    /// # Errors
    /// Where there is no such GPU, or the state cannot be written.
    pub fn inject_xid(&self, gpu: usize, code: u64) -> Result<()> {
        self.state
            .append(&Event::of_gpu(&self.gpu(gpu)?.uuid, Event::XID, code))
    }

    /// The same for a MIG device: the event names the GPU instance and the compute instance, which need not be there.
    ///
    /// # Errors
    /// Where there is no such GPU, or the state cannot be written.
    pub fn inject_xid_of_instance(&self, gpu: usize, code: u64, instance: (u32, u32)) -> Result<()> {
        let mut event = Event::of_gpu(&self.gpu(gpu)?.uuid, Event::XID, code);
        (event.gpu_instance, event.compute_instance) = instance;
        self.state.append(&event)
    }

    /// Lets a GPU fall off the bus: it stays counted, and every call for it answers `GPU_IS_LOST`.
    ///
    /// No event is reported, and who waits for events goes on waiting; for what a driver reports at this point, also
    /// inject Xid 79.
    ///
    /// # Errors
    /// Where there is no such GPU, or the state cannot be written.
    pub fn lose(&self, gpu: usize) -> Result<()> {
        self.change(gpu, |record| record.lost = true)
    }

    /// Takes a GPU off the PCI bus, as a removal through sysfs or by a hand does: it is counted no more, NVML's indices of those
    /// behind it go down by one, its handles are invalid arguments, and the kernel and the driver show nothing of it. This type counts
    /// GPUs as before. No event is reported. Its device node stays.
    ///
    /// # Errors
    /// Where there is no such GPU, it is out already, simulated processes use it (unless it is [lost](Self::lose)), or the state
    /// cannot be written.
    pub fn unplug(&self, gpu: usize) -> Result<()> {
        let rules = self.mode_rules(self.gpu(gpu)?);
        let done = self.change(gpu, |record| record.unplug(rules))?;
        done.map_err(|refusal| mig::refused(format!("take out GPU {gpu}"), refusal))
    }

    /// Puts a GPU back that was taken out: the bus is looked through anew, and the driver finds it, without partitions, faults
    /// and settings. One that is there stays as it is.
    ///
    /// # Errors
    /// Where there is no such GPU, or the state cannot be written.
    pub fn plug(&self, gpu: usize) -> Result<()> {
        self.change(gpu, |record| record.unplugged = false)
    }

    /// Brings a GPU back that was lost, denied, hung or slow. One that is well stays as it is.
    ///
    /// # Errors
    /// Where there is no such GPU, or the state cannot be written.
    pub fn restore(&self, gpu: usize) -> Result<()> {
        self.change(gpu, GpuRecord::restore)
    }

    /// Lets initialisation of NVML fail with that code (9: driver not loaded, 18: driver and library differ), or succeed
    /// again. Processes that have initialised already go on.
    ///
    /// # Errors
    /// Where the state cannot be written.
    pub fn set_init_error(&self, code: Option<u32>) -> Result<()> {
        self.state.change(&self.file, |record| {
            record.init_error = code;
            Ok(())
        })
    }

    /// What a restart of the machine does: MIG instances, simulated processes, faults and settings are gone, and a GPU that was taken
    /// out is found. MIG mode stays where the board keeps it (Ampere), and a change that waited for it is in force.
    ///
    /// Processes that use the node go on; on hardware there would be none.
    ///
    /// # Errors
    /// Where the state cannot be written.
    pub fn reboot(&self) -> Result<()> {
        self.state.change(&self.file, |record| {
            for gpu in self.gpus() {
                record.gpu_mut(&gpu.uuid).reboot(self.mode_rules(gpu));
            }
            Ok(())
        })
    }

    fn change<T>(&self, gpu: usize, change: impl FnOnce(&mut GpuRecord) -> T) -> Result<T> {
        let uuid = &self.gpu(gpu)?.uuid;
        self.state.change(&self.file, |record| Ok(change(record.gpu_mut(uuid))))
    }

    fn mode_rules(&self, gpu: &GpuEntry) -> ModeRules {
        board_of(gpu).map_or(
            ModeRules {
                by_reset: false,
                passed_through: false,
            },
            |board| board.mode_rules(self.file.virtualization),
        )
    }

    fn gpu(&self, index: usize) -> Result<&GpuEntry> {
        self.gpus().get(index).ok_or(Error::NoSuchGpu {
            index,
            count: self.gpus().len(),
        })
    }

    fn write(&self, library: &Path, nvidia_smi: Option<&Path>) -> Result<()> {
        let path = self.folder.join(NodeFile::NAME);
        let text = self.file.to_text(&path)?;
        let trailer = Trailer {
            node: self.folder.clone(),
            node_yaml: text.clone(),
            state: None,
        };

        self.state.create()?;
        let lib = self.folder.join("lib");
        fs::create_dir(&lib).map_err(Error::write(&lib))?;
        let lacks = self.lacks()?;
        trailer.write_copy(library, &self.library(), &lacks)?;
        tree::write(&self.root(), &self.file, nvidia_smi, |copy| {
            trailer.write_copy(library, copy, &lacks)
        })?;
        self.write_cuda(library)?;
        // Last, because a folder with this file is a node.
        fs::write(&path, text).map_err(Error::write(path))
    }

    /// Puts `libcuda.so.1` into both places, if it was built; else the tree's stays an empty one.
    fn write_cuda(&self, library: &Path) -> Result<()> {
        let Some(source) = library::cuda(library) else {
            return Ok(());
        };
        let driver = driver::find(&self.file.driver)?;
        let tree = self.root().join(tree::library_folder());
        let name = format!("libcuda.so.{}", driver.version);
        library::write_cuda_copy(&source, &tree.join(name), driver.cuda_number())?;
        library::write_cuda_copy(&source, &self.folder.join("lib/libcuda.so.1"), driver.cuda_number())
    }

    /// Clears up after a failure; what cannot be removed stays, as the failure is reported anyway.
    fn remove(&self, keep_folder: bool) {
        for name in ["state", "lib", "root"] {
            let _ = fs::remove_dir_all(self.folder.join(name));
        }
        let _ = fs::remove_file(self.folder.join(NodeFile::NAME));
        if !keep_folder {
            let _ = fs::remove_dir(&self.folder);
        }
    }
}

/// The board of a GPU whose node file was checked.
pub(crate) fn board_of(gpu: &GpuEntry) -> Option<&'static crate::Board> {
    board::find(&gpu.board)
}
