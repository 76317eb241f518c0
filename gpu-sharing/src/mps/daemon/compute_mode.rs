use std::{
    collections::BTreeMap,
    fmt, fs, io,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use gpu_core::{ComputeMode, GpuUuid};

use super::{Error, Result};

/// Sets the compute mode of a GPU and says which it had. It may take its time; it is called off the async runtime.
pub type SetComputeMode =
    dyn Fn(&GpuUuid, ComputeMode) -> Result<ComputeMode, Box<dyn std::error::Error + Send + Sync>> + Send + Sync;

/// The compute modes of GPUs, set for MPS and given back.
///
/// The modes that were found are kept in a file of the MPS root, so that a daemon that was killed knows at its next start
/// what to give back.
#[derive(Clone)]
pub struct ComputeModes {
    set: Arc<SetComputeMode>,
    /// Held while GPUs change and while the file does.
    file: Arc<Mutex<PathBuf>>,
}

impl fmt::Debug for ComputeModes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ComputeModes")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

type Found = BTreeMap<GpuUuid, ComputeMode>;

impl ComputeModes {
    /// Modes set by a function; those found are kept in `.compute-modes` of the MPS root.
    pub fn new(root: &super::super::Root, set: Arc<SetComputeMode>) -> Self {
        Self {
            set,
            file: Arc::new(Mutex::new(root.path().join(".compute-modes"))),
        }
    }

    /// Gives each GPU to one process at a time: the MPS server. Without it, a process outside MPS could take it as well.
    pub(super) fn exclusive(&self, gpus: &[GpuUuid]) -> Result<()> {
        let path = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = read(&path)?;
        for gpu in gpus {
            let mode = self.change(gpu, ComputeMode::ExclusiveProcess)?;
            if !found.contains_key(gpu) {
                found.insert(gpu.clone(), mode);
                write(&path, &found)?;
            }
        }
        Ok(())
    }

    /// Gives GPUs the modes that they had: all that take them, and the first error of those that do not.
    pub(super) fn restore(&self, gpus: &[GpuUuid]) -> Result<()> {
        let path = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = read(&path)?;
        let mut first = Ok(());
        for gpu in gpus {
            let Some(mode) = found.get(gpu) else { continue };
            match self.change(gpu, *mode) {
                Ok(_) => {
                    found.remove(gpu);
                    write(&path, &found)?;
                }
                Err(error) => first = first.and(Err(error)),
            }
        }
        first
    }

    fn change(&self, gpu: &GpuUuid, mode: ComputeMode) -> Result<ComputeMode> {
        (self.set)(gpu, mode).map_err(|source| Error::ComputeMode {
            gpu: gpu.clone(),
            source,
        })
    }
}

fn read(path: &PathBuf) -> Result<Found> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::new()),
        Err(error) => return Err(Error::file("read", path)(error)),
    };
    serde_json::from_str(&text).map_err(|error| Error::file("understand", path)(error.into()))
}

fn write(path: &PathBuf, found: &Found) -> Result<()> {
    if found.is_empty() {
        return super::files::remove(path);
    }
    let text = serde_json::to_string(found).map_err(|error| Error::file("write", path)(error.into()))?;
    super::files::replace(path, &text).map(drop)
}
