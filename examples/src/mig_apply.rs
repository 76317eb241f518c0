//! Making a node's GPUs what is wanted of them: read, plan, change, and take back what does not work out.

use std::fs::{File, TryLockError};

use anyhow::{anyhow, bail};
use gpu_core::{
    GpuUuid, Inventory, Usage,
    nvml::{Library, Parts, Refusal},
};
use gpu_sharing::mig::{NodePlan, Wanted, parted::Selection, plan_node};

use crate::hardware::Hardware;

mod reset;

/// The GPUs of this node.
#[derive(Debug)]
pub(crate) struct Node {
    hardware: Hardware,
    /// Opened when it is needed, and kept; closed while GPUs are reset.
    library: Option<Library>,
}

/// What a change shall do and leave.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Extent {
    /// MIG mode alone.
    pub(crate) mode_only: bool,
    /// A mode that takes a reset is left noted for one.
    pub(crate) skip_reset: bool,
}

/// What a change did.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// The steps, in order.
    pub(crate) steps: Vec<String>,
    /// GPUs whose mode waits for a reset.
    pub(crate) pending: Vec<u32>,
}

/// What happens before GPUs are changed.
#[cfg(feature = "gpuctl")]
pub(crate) trait Before {
    /// Whether processes that use GPUs now may be gone by then.
    fn frees_gpus(&self) -> bool;
    /// Before a MIG mode changes.
    fn mode(&mut self) -> anyhow::Result<()>;
    /// Before instances change.
    fn instances(&mut self) -> anyhow::Result<()>;
}

/// What is read of the GPUs: how they can be divided, also those whose MIG mode is off.
const PARTS: Parts = Parts {
    idle_mig_profiles: true,
    ..Parts::DEVICES
};

impl Node {
    pub(crate) fn new(hardware: Hardware) -> Self {
        Self {
            hardware,
            library: None,
        }
    }

    fn library(&mut self) -> anyhow::Result<&Library> {
        let library = match self.library.take() {
            Some(library) => library,
            None => Library::open(&self.hardware.library_search())?.with_parts(PARTS),
        };
        Ok(self.library.insert(library))
    }

    /// Lets go of the driver library: what is asked next is asked of the one that is there then.
    pub(crate) fn close(&mut self) {
        self.library = None;
    }

    pub(crate) fn inventory(&mut self) -> anyhow::Result<Inventory> {
        let root = self.hardware.host_root.clone();
        Ok(self.library()?.inventory(&root)?)
    }

    pub(crate) fn usage(&mut self) -> anyhow::Result<Usage> {
        let root = self.hardware.host_root.clone();
        Ok(self.library()?.usage(&root)?)
    }

    /// Makes the GPUs what `select` says they are to be.
    ///
    /// It is planned before anything is changed, and planned anew after `before`. All of it is taken back where a part fails,
    /// but for what the error names.
    #[cfg(feature = "gpuctl")]
    pub(crate) fn change(
        &mut self,
        select: &dyn Fn(&Inventory) -> anyhow::Result<Selection>,
        extent: Extent,
        before: &mut dyn Before,
    ) -> anyhow::Result<Report> {
        let _alone = self.alone()?;
        let inventory = self.inventory()?;
        let selection = narrowed(&select(&inventory)?, extent, &inventory);
        let differences = selection.differs(&inventory);
        let usage = if before.frees_gpus() {
            Usage::default()
        } else {
            self.usage()?
        };
        let first = plan(&inventory, &usage, &selection)?;
        if differences.is_empty() {
            return Ok(Report::default());
        }
        if differences.iter().any(|difference| difference.mode) {
            before.mode()?;
        }
        let instances = first
            .plan
            .changes
            .iter()
            .any(|change| !(change.destroyed.is_empty() && change.created.is_empty() && change.compute.is_empty()));
        if instances {
            before.instances()?;
        }
        let inventory = self.inventory()?;
        self.carry_out(&inventory, &selection, extent)
    }

    /// The same where nothing is to happen before, with the one plan that is carried out.
    #[cfg(feature = "mig-manager")]
    pub(crate) fn change_now(
        &mut self,
        select: &dyn Fn(&Inventory) -> anyhow::Result<Selection>,
        extent: Extent,
    ) -> anyhow::Result<Report> {
        let _alone = self.alone()?;
        let inventory = self.inventory()?;
        let selection = narrowed(&select(&inventory)?, extent, &inventory);
        self.carry_out(&inventory, &selection, extent)
    }

    /// The lock that whoever changes GPUs holds: two would plan for what the other takes away. It ends with the process.
    fn alone(&self) -> anyhow::Result<Option<File>> {
        let path = self.hardware.host_root.join("run/gpu-mig.lock");
        // Who may not write there may not change GPUs, and the driver says so.
        let Ok(file) = File::create(&path) else { return Ok(None) };
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => bail!(
                "another program is changing the GPUs of this node: it holds `{}`",
                path.display()
            ),
            _ => Ok(Some(file)),
        }
    }

    fn carry_out(&mut self, inventory: &Inventory, selection: &Selection, extent: Extent) -> anyhow::Result<Report> {
        let planned = plan(inventory, &self.usage()?, selection)?;
        if planned.by_catalogue.is_empty() {
            return match self.apply(&planned, inventory) {
                Ok(report) => Ok(report),
                Err(NotApplied::TakesReset) => self.by_reset(selection, extent, inventory),
                Err(NotApplied::Failed(error)) => Err(error),
            };
        }
        // The driver does not say yet what these GPUs can be divided into: mode first, then look again.
        let unknown = |uuid: &GpuUuid| planned.by_catalogue.contains(uuid);
        let modes = Selection {
            wanted: selection
                .wanted
                .iter()
                .filter(|(gpu, _)| unknown(gpu))
                .map(|(gpu, _)| (gpu.clone(), empty()))
                .collect(),
            notes: Vec::new(),
        };
        let planned = plan(inventory, &self.usage()?, &modes)?;
        let mut report = match self.apply(&planned, inventory) {
            Ok(report) => report,
            Err(NotApplied::TakesReset) => return self.by_reset(selection, extent, inventory),
            Err(NotApplied::Failed(error)) => return Err(error),
        };
        let inventory = self.inventory();
        match inventory.and_then(|inventory| self.carried_out(&inventory, selection)) {
            Ok(more) => {
                report.steps.extend(more.steps);
                Ok(report)
            }
            Err(error) => {
                let mut left = Vec::new();
                for gpu in modes.wanted.keys() {
                    if let Err(refused) = self.request_mode(gpu, false) {
                        left.push(format!("MIG mode of {gpu} is still on: {refused:#}"));
                    }
                }
                if left.is_empty() {
                    Err(error)
                } else {
                    Err(error.context(left.join("; ")))
                }
            }
        }
    }

    fn carried_out(&mut self, inventory: &Inventory, selection: &Selection) -> anyhow::Result<Report> {
        let planned = plan(inventory, &self.usage()?, selection)?;
        self.apply(&planned, inventory).map_err(NotApplied::into_error)
    }

    fn apply(&mut self, planned: &NodePlan, inventory: &Inventory) -> Result<Report, NotApplied> {
        let checked = planned.steps(inventory).map_err(anyhow::Error::from)?;
        let checked = checked.check(inventory).map_err(anyhow::Error::from)?;
        let steps = planned.plan.check(&planned.fleet).map_err(anyhow::Error::from)?;
        let steps: Vec<_> = steps
            .steps()
            .iter()
            .map(|step| indexed(&step.to_string(), inventory))
            .collect();
        match self.library()?.apply(&checked) {
            Ok(_) => Ok(Report {
                steps,
                pending: Vec::new(),
            }),
            Err(error) => {
                let mode = matches!(error.step, gpu_core::Step::SetMode { .. });
                if mode && error.refused.refusal == Refusal::ResetRequired && error.left.is_empty() {
                    return Err(NotApplied::TakesReset);
                }
                Err(NotApplied::Failed(anyhow!(
                    "{}",
                    indexed(&error.to_string(), inventory)
                )))
            }
        }
    }

    /// Asks for a MIG mode; whether it waits for a reset.
    fn request_mode(&mut self, gpu: &GpuUuid, enabled: bool) -> anyhow::Result<bool> {
        Ok(self.library()?.request_mig_mode(gpu, enabled)?.is_some())
    }
}

enum NotApplied {
    TakesReset,
    Failed(anyhow::Error),
}

impl NotApplied {
    fn into_error(self) -> anyhow::Error {
        match self {
            Self::TakesReset => anyhow!("MIG mode changes with a reset only"),
            Self::Failed(error) => error,
        }
    }
}

impl From<anyhow::Error> for NotApplied {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

fn empty() -> Wanted {
    Wanted::Exactly(Vec::new())
}

fn narrowed(selection: &Selection, extent: Extent, inventory: &Inventory) -> Selection {
    if extent.mode_only {
        selection.mode_only(inventory)
    } else {
        selection.clone()
    }
}

/// The plan, or all reasons why there is none.
pub(crate) fn plan(inventory: &Inventory, usage: &Usage, selection: &Selection) -> anyhow::Result<NodePlan> {
    // It was there when it was selected.
    let gone: Vec<_> = selection
        .wanted
        .keys()
        .filter(|gpu| inventory.gpu(gpu).is_none())
        .map(|gpu| unreadable(inventory, gpu))
        .collect();
    if !gone.is_empty() {
        bail!("{}", gone.join("; "));
    }
    plan_node(inventory, usage, &selection.wanted).map_err(|refused| {
        let reasons: Vec<_> = refused
            .iter()
            .map(|refused| indexed(&refused.to_string(), inventory))
            .collect();
        anyhow!("{}", reasons.join("; "))
    })
}

/// Why a GPU is not in the inventory.
fn unreadable(inventory: &Inventory, gpu: &GpuUuid) -> String {
    let mut problems = inventory.problems.iter();
    match problems.find(|problem| problem.uuid.as_ref() == Some(gpu)) {
        Some(problem) => format!("GPU `{gpu}` {}: {}: {}", problem.kind, problem.call, problem.message),
        None => format!("GPU `{gpu}` is gone"),
    }
}

/// Messages name GPUs by UUID; people know them by their index.
pub(crate) fn indexed(text: &str, inventory: &Inventory) -> String {
    inventory.gpus.iter().fold(text.to_owned(), |text, gpu| {
        let (uuid, short) = (gpu.uuid.as_str(), format!("GPU {}", gpu.index));
        text.replace(&format!("{short} ({uuid})"), &short)
            .replace(&format!("GPU `{uuid}`"), &short)
            .replace(&format!("`{uuid}`"), &short)
            .replace(uuid, &short)
    })
}
