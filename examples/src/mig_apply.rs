//! Making a node's GPUs what is wanted of them: read, plan, change, and take back what does not work out.

use std::{path::Path, process::Command};

use anyhow::{Context as _, anyhow, bail};
use gpu_core::{
    Inventory, Usage,
    nvml::{Library, Refusal},
};
use gpu_sharing::mig::{NodePlan, Wanted, parted::Selection, plan_node};

use crate::hardware::Hardware;

/// The GPUs of this node.
#[derive(Debug)]
pub(crate) struct Node<'a> {
    pub(crate) library: &'a Library,
    pub(crate) hardware: &'a Hardware,
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
pub(crate) trait Before {
    /// Whether processes that use GPUs now may be gone by then.
    fn frees_gpus(&self) -> bool {
        false
    }
    /// Before a MIG mode changes.
    fn mode(&mut self) -> anyhow::Result<()> {
        Ok(())
    }
    /// Before instances change.
    fn instances(&mut self) -> anyhow::Result<()> {
        Ok(())
    }
}

impl Node<'_> {
    pub(crate) fn inventory(&self) -> anyhow::Result<Inventory> {
        Ok(self.library.inventory(&self.hardware.host_root)?)
    }

    pub(crate) fn usage(&self) -> anyhow::Result<Usage> {
        Ok(self.library.usage(&self.hardware.host_root)?)
    }

    /// Makes the GPUs what `select` says they are to be.
    ///
    /// It is planned before anything is changed, and planned anew after `before`. All of it is taken back where a part fails,
    /// but for what the error names.
    pub(crate) fn change(
        &self,
        select: &dyn Fn(&Inventory) -> anyhow::Result<Selection>,
        extent: Extent,
        before: &mut dyn Before,
    ) -> anyhow::Result<Report> {
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
        self.carry_out(&selection, extent)
    }

    fn carry_out(&self, selection: &Selection, extent: Extent) -> anyhow::Result<Report> {
        let inventory = self.inventory()?;
        let planned = plan(&inventory, &self.usage()?, selection)?;
        if planned.by_catalogue.is_empty() {
            return match self.apply(&planned, &inventory) {
                Ok(report) => Ok(report),
                Err(NotApplied::TakesReset) => self.by_reset(selection, extent, &inventory),
                Err(NotApplied::Failed(error)) => Err(error),
            };
        }
        // The driver does not say yet what these GPUs can be divided into: mode first, then look again.
        let unknown = |uuid: &gpu_core::GpuUuid| planned.by_catalogue.contains(uuid);
        let modes = Selection {
            wanted: selection
                .wanted
                .iter()
                .filter(|(gpu, _)| unknown(gpu))
                .map(|(gpu, _)| (gpu.clone(), empty()))
                .collect(),
            notes: Vec::new(),
        };
        let mut report = match self.apply(&plan(&inventory, &self.usage()?, &modes)?, &inventory) {
            Ok(report) => report,
            Err(NotApplied::TakesReset) => return self.by_reset(selection, extent, &inventory),
            Err(NotApplied::Failed(error)) => return Err(error),
        };
        let second = || {
            let inventory = self.inventory()?;
            let planned = plan(&inventory, &self.usage()?, selection)?;
            self.apply(&planned, &inventory).map_err(NotApplied::into_error)
        };
        match second() {
            Ok(more) => {
                report.steps.extend(more.steps);
                Ok(report)
            }
            Err(error) => {
                let mut left = Vec::new();
                for gpu in modes.wanted.keys() {
                    if let Err(refused) = self.library.request_mig_mode(gpu, false) {
                        left.push(format!("MIG mode of {gpu} is still on: {refused}"));
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

    fn apply(&self, planned: &NodePlan, inventory: &Inventory) -> Result<Report, NotApplied> {
        let checked = planned.steps(inventory).map_err(anyhow::Error::from)?;
        let checked = checked.check(inventory).map_err(anyhow::Error::from)?;
        let steps = planned.plan.check(&planned.fleet).map_err(anyhow::Error::from)?;
        let steps: Vec<_> = steps
            .steps()
            .iter()
            .map(|step| indexed(&step.to_string(), inventory))
            .collect();
        match self.library.apply(&checked) {
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

    /// Modes that the driver only notes, then a reset of those GPUs and of no others, then the rest.
    fn by_reset(&self, selection: &Selection, extent: Extent, inventory: &Inventory) -> anyhow::Result<Report> {
        let mut report = Report::default();
        let differ: Vec<_> = selection
            .mode_differs(inventory)
            .iter()
            .map(|difference| difference.index)
            .collect();
        let gpus = || inventory.gpus.iter().filter(|gpu| differ.contains(&gpu.index));
        let off = |gpu: &&gpu_core::Gpu| selection.wanted.get(&gpu.uuid) == Some(&Wanted::Disabled);
        let emptied = Selection {
            wanted: gpus().filter(off).map(|gpu| (gpu.uuid.clone(), empty())).collect(),
            notes: Vec::new(),
        };
        let planned = plan(inventory, &self.usage()?, &emptied)?;
        report
            .steps
            .extend(self.apply(&planned, inventory).map_err(NotApplied::into_error)?.steps);
        for gpu in gpus() {
            let enabled = !off(&gpu);
            let pending = self.library.request_mig_mode(&gpu.uuid, enabled);
            let pending = pending.with_context(|| format!("cannot change MIG mode of GPU {}", gpu.index))?;
            report.steps.push(format!(
                "turn MIG mode of GPU {} {}",
                gpu.index,
                if enabled { "on" } else { "off" }
            ));
            report.pending.extend(pending.map(|_| gpu.index));
        }
        if extent.skip_reset && !report.pending.is_empty() {
            if extent.mode_only {
                return Ok(report);
            }
            bail!(
                "MIG mode of GPU {} changes with a reset, which is skipped; no instance was made",
                list(&report.pending)
            );
        }
        let pending = gpus().filter(|gpu| report.pending.contains(&gpu.index));
        let addresses: Vec<_> = pending.map(|gpu| gpu.pci.address.to_string()).collect();
        if let Err(error) = reset(&self.hardware.driver_root, &addresses) {
            for gpu in gpus() {
                // Best effort: a mode that waits for a reset would come into force with the next one, whoever asks for it.
                let _ = self.library.request_mig_mode(&gpu.uuid, off(&gpu));
            }
            return Err(error);
        }
        report.pending.clear();
        let after = self.inventory()?;
        if let Some(difference) = selection.mode_differs(&after).first() {
            bail!("after the reset, {difference}");
        }
        report.steps.push(format!("reset GPU {}", list(&differ)));
        let rest = narrowed(selection, extent, &after);
        let planned = plan(&after, &self.usage()?, &rest)?;
        report
            .steps
            .extend(self.apply(&planned, &after).map_err(NotApplied::into_error)?.steps);
        Ok(report)
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
    plan_node(inventory, usage, &selection.wanted).map_err(|refused| {
        let reasons: Vec<_> = refused
            .iter()
            .map(|refused| indexed(&refused.to_string(), inventory))
            .collect();
        anyhow!("{}", reasons.join("; "))
    })
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

fn list(indices: &[u32]) -> String {
    indices.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The driver's own tool resets GPUs: NVML has no call for it.
fn reset(driver_root: &Path, addresses: &[String]) -> anyhow::Result<()> {
    let mut command = if driver_root == Path::new("/") {
        Command::new("nvidia-smi")
    } else {
        let mut command = Command::new("chroot");
        command.arg(driver_root).arg("nvidia-smi");
        command
    };
    command.args(["-r", "-i"]).arg(addresses.join(","));
    let what = || {
        format!(
            "MIG mode changes with a reset, and `nvidia-smi` cannot reset {}",
            addresses.join(", ")
        )
    };
    let output = command.output().with_context(what)?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    bail!("{} ({}): {}", what(), output.status, said.trim().replace('\n', "; "))
}
