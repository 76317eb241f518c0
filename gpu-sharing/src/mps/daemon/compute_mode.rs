use std::{
    collections::BTreeMap,
    fmt, fs, io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use gpu_core::{ComputeMode, GpuUuid};

use super::{Error, Result};

/// Sets the compute mode of a GPU and says which it had. It may take its time; it is called off the async runtime.
pub type SetComputeMode =
    dyn Fn(&GpuUuid, ComputeMode) -> Result<ComputeMode, Box<dyn std::error::Error + Send + Sync>> + Send + Sync;

/// The compute modes of GPUs, set for MPS and given back.
///
/// The modes that were found are kept in a file of the MPS root, so that a daemon that was killed knows at its next start
/// what to give back. A file that cannot be understood is put aside: a GPU that is found as MPS has it then gets CUDA's default mode
/// back, as the vendor's daemon does it.
#[derive(Clone)]
pub struct ComputeModes {
    set: Arc<SetComputeMode>,
    /// Held while the file changes, and while GPUs are taken.
    file: Arc<Mutex<File>>,
}

struct File {
    path: PathBuf,
    /// What it says, once it was read.
    found: Option<Found>,
    /// Whether there was one that could not be understood.
    lost: bool,
}

impl fmt::Debug for ComputeModes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ComputeModes").finish_non_exhaustive()
    }
}

type Found = BTreeMap<GpuUuid, ComputeMode>;

impl ComputeModes {
    /// Modes set by a function; those found are kept in `.compute-modes` of the MPS root.
    pub fn new(root: &super::super::Root, set: Arc<SetComputeMode>) -> Self {
        Self {
            set,
            file: Arc::new(Mutex::new(File {
                path: root.path().join(".compute-modes"),
                found: None,
                lost: false,
            })),
        }
    }

    /// Gives each GPU to one process at a time: the MPS server. Without it, a process outside MPS could take it as well. `tell` hears
    /// of a file that could not be understood.
    pub(super) fn exclusive(&self, gpus: &[GpuUuid], tell: impl FnOnce(Error)) -> Result<()> {
        let mut file = self.lock();
        file.read(tell)?;
        for gpu in gpus {
            let mode = match self.change(gpu, ComputeMode::ExclusiveProcess)? {
                ComputeMode::ExclusiveProcess if file.lost => ComputeMode::Default,
                mode => mode,
            };
            file.change(|found| {
                found.entry(gpu.clone()).or_insert(mode);
            })?;
        }
        Ok(())
    }

    /// Gives GPUs the modes that they had: all that take them, and the first error of those that do not. All at once, so that one
    /// that hangs keeps no other from it.
    pub(super) fn restore(&self, gpus: &[GpuUuid], tell: impl FnOnce(Error)) -> Result<()> {
        let found = self.lock().read(tell)?;
        let give_back = |gpu, mode| {
            self.change(gpu, mode)?;
            self.lock().change(|found| {
                found.remove(gpu);
            })
        };
        thread::scope(|scope| {
            let known = gpus.iter().filter_map(|gpu| Some((gpu, *found.get(gpu)?)));
            let threads: Vec<_> = known
                .map(|(gpu, mode)| scope.spawn(move || give_back(gpu, mode)))
                .collect();
            let results = threads
                .into_iter()
                .map(|thread| thread.join().expect("it does not panic"));
            results.fold(Ok(()), Result::and)
        })
    }

    fn lock(&self) -> MutexGuard<'_, File> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, gpu: &GpuUuid, mode: ComputeMode) -> Result<ComputeMode> {
        (self.set)(gpu, mode).map_err(|source| Error::ComputeMode {
            gpu: gpu.clone(),
            source,
        })
    }
}

impl File {
    /// What was found so far. The file is read once: what changes it afterwards is this value.
    fn read(&mut self, tell: impl FnOnce(Error)) -> Result<Found> {
        if let Some(found) = &self.found {
            return Ok(found.clone());
        }
        let path = &self.path;
        let found = match fs::read(path) {
            Ok(text) => serde_json::from_slice(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Found::new()),
            Err(error) => return Err(Error::file("read", path)(error)),
        };
        let found = match found {
            Ok(found) => found,
            Err(source) => {
                let aside = path.with_extension("damaged");
                fs::rename(path, &aside).map_err(Error::file("put aside", path))?;
                self.lost = true;
                tell(Error::Damaged {
                    path: path.clone(),
                    aside,
                    source,
                });
                Found::new()
            }
        };
        self.found = Some(found.clone());
        Ok(found)
    }

    fn change(&mut self, change: impl FnOnce(&mut Found)) -> Result<()> {
        let found = self.found.get_or_insert_default();
        let before = found.clone();
        change(found);
        if *found == before {
            return Ok(());
        }
        if found.is_empty() {
            return super::files::remove(&self.path);
        }
        let text = serde_json::to_string(found).map_err(|error| Error::file("write", &self.path)(error.into()))?;
        super::files::replace(&self.path, &text).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mps::Root;

    fn gpu(number: u8) -> GpuUuid {
        format!("GPU-00000000-0000-4000-8000-00000000000{number}")
            .parse()
            .unwrap()
    }

    /// GPUs with modes, of which some take no other.
    struct Gpus {
        modes: Arc<Mutex<Found>>,
        stubborn: Arc<Mutex<Vec<GpuUuid>>>,
        root: tempfile::TempDir,
    }

    impl Gpus {
        fn new(modes: &[ComputeMode]) -> Self {
            let modes = (0..).zip(modes).map(|(number, mode)| (gpu(number), *mode)).collect();
            Self {
                modes: Arc::new(Mutex::new(modes)),
                stubborn: Arc::default(),
                root: tempfile::tempdir().unwrap(),
            }
        }

        /// As a program that starts has it.
        fn compute_modes(&self) -> ComputeModes {
            let (modes, stubborn) = (Arc::clone(&self.modes), Arc::clone(&self.stubborn));
            let set = move |gpu: &GpuUuid, mode: ComputeMode| {
                if stubborn.lock().unwrap().contains(gpu) {
                    return Err("it is lost".into());
                }
                Ok(modes.lock().unwrap().insert(gpu.clone(), mode).unwrap())
            };
            ComputeModes::new(&Root::new(self.root.path()), Arc::new(set))
        }

        fn modes(&self) -> Vec<ComputeMode> {
            self.modes.lock().unwrap().values().copied().collect()
        }
    }

    fn nothing<E: fmt::Display>(error: E) {
        panic!("{error}");
    }

    const ALL: [ComputeMode; 3] = [
        ComputeMode::Default,
        ComputeMode::Prohibited,
        ComputeMode::ExclusiveProcess,
    ];

    #[test]
    fn every_other_gpu_gets_its_mode_back_where_one_takes_none() {
        let gpus = Gpus::new(&ALL);
        let (first, all) = (gpus.compute_modes(), [gpu(0), gpu(1), gpu(2)]);
        first.exclusive(&all, nothing).unwrap();
        assert_eq!(gpus.modes(), [ComputeMode::ExclusiveProcess; 3]);
        gpus.stubborn.lock().unwrap().push(gpu(0));
        let error = first.restore(&all, nothing).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("cannot set the compute mode of GPU {}", gpu(0))
        );
        assert_eq!(gpus.modes()[1..], ALL[1..]);
        // It has its own back later, from a program that knows it of the file alone.
        gpus.stubborn.lock().unwrap().clear();
        gpus.compute_modes().restore(&all, nothing).unwrap();
        assert_eq!(gpus.modes(), ALL);
        assert_eq!(fs::read_dir(gpus.root.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_that_cannot_be_understood_is_named_and_put_aside() {
        for text in [&b"{"[..], b"", b"[1]", b"\xff"] {
            let gpus = Gpus::new(&[ComputeMode::ExclusiveProcess, ComputeMode::Prohibited]);
            let path = gpus.root.path().join(".compute-modes");
            fs::write(&path, text).unwrap();
            let (modes, mut said) = (gpus.compute_modes(), Vec::new());
            modes
                .exclusive(&[gpu(0)], |error| said.push(error.to_string()))
                .unwrap();
            assert_eq!(said.len(), 1);
            assert!(said[0].contains(&format!("`{}`", path.display())), "{said:?}");
            modes.exclusive(&[gpu(1)], nothing).unwrap();
            modes.restore(&[gpu(0), gpu(1)], nothing).unwrap();
            assert_eq!(gpus.modes(), [ComputeMode::Default, ComputeMode::Prohibited]);
            assert_eq!(fs::read(path.with_extension("damaged")).unwrap(), text);
        }
    }
}
