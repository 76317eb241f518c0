//! MIG modes that the driver only notes, and that are in force after a reset.

use std::{path::Path, process::Command};

use anyhow::{Context as _, anyhow, bail};
use gpu_core::{Gpu, Inventory};
use gpu_sharing::mig::{Wanted, parted::Selection};

use super::{Extent, Node, Report, empty, indexed, narrowed};
use crate::program::chain;

impl Node {
    /// Notes the modes, resets those GPUs and no others, and does the rest then. All of it is taken back where a part fails,
    /// but for what the error names.
    pub(super) fn by_reset(
        &mut self,
        selection: &Selection,
        extent: Extent,
        inventory: &Inventory,
    ) -> anyhow::Result<Report> {
        let differ: Vec<_> = selection
            .mode_differs(inventory)
            .iter()
            .map(|difference| difference.index)
            .collect();
        if extent.skip_reset && !extent.mode_only {
            bail!(
                "MIG mode of GPU {} changes with a reset, which is skipped: nothing was changed",
                list(&differ)
            );
        }
        let gpus = inventory.gpus.iter().filter(|gpu| differ.contains(&gpu.index));
        let gpus: Vec<_> = gpus.collect();
        self.reset_for(&gpus, selection, extent, inventory).map_err(|error| {
            let left = self.take_back(&gpus);
            let ended = if left.is_empty() {
                "what was done before was taken back".to_owned()
            } else {
                format!("not taken back: {}", left.join("; "))
            };
            anyhow!("{}", indexed(&format!("{}; {ended}", chain(&error)), inventory))
        })
    }

    fn reset_for(
        &mut self,
        gpus: &[&Gpu],
        selection: &Selection,
        extent: Extent,
        inventory: &Inventory,
    ) -> anyhow::Result<Report> {
        let off = |gpu: &Gpu| selection.wanted.get(&gpu.uuid) == Some(&Wanted::Disabled);
        let emptied = gpus.iter().filter(|gpu| off(gpu));
        let emptied = Selection {
            wanted: emptied.map(|gpu| (gpu.uuid.clone(), empty())).collect(),
            notes: Vec::new(),
        };
        let mut report = self.carried_out(inventory, &emptied)?;
        let mut waiting = Vec::new();
        for gpu in gpus {
            let word = if off(gpu) { "off" } else { "on" };
            let step = format!("turn MIG mode of GPU {} {word}", gpu.index);
            let waits = self.request_mode(&gpu.uuid, !off(gpu));
            if waits.with_context(|| format!("cannot {step}"))? {
                waiting.push(*gpu);
            }
            report.steps.push(step);
        }
        if extent.skip_reset {
            report.pending = indices(&waiting);
            return Ok(report);
        }
        if !waiting.is_empty() {
            self.reset(&waiting)?;
            report.steps.push(format!("reset GPU {}", list(&indices(&waiting))));
        }
        let after = self.inventory()?;
        if let Some(difference) = selection.mode_differs(&after).first() {
            bail!("after the reset, {difference}");
        }
        let rest = self.carried_out(&after, &narrowed(selection, extent, &after))?;
        report.steps.extend(rest.steps);
        Ok(report)
    }

    /// Makes GPUs what they were, each as far as it goes, by another reset where the first one took place; what is otherwise.
    fn take_back(&mut self, before: &[&Gpu]) -> Vec<String> {
        let mut left = Vec::new();
        let now = match self.inventory() {
            Ok(now) => now,
            Err(error) => return vec![format!("GPU {}: {}", list(&indices(before)), chain(&error))],
        };
        let mode = |gpu: &Gpu| {
            gpu.mig
                .as_ref()
                .map_or((false, false), |mig| (mig.enabled, mig.pending_enabled))
        };
        let mut waiting = Vec::new();
        for gpu in before {
            let (enabled, pending) = mode(gpu);
            let is_reset = now.gpu(&gpu.uuid).is_some_and(|now| mode(now).0 != enabled);
            match self.request_mode(&gpu.uuid, if is_reset { enabled } else { pending }) {
                Ok(true) if is_reset => waiting.push(*gpu),
                Ok(_) => {}
                Err(error) => left.push(format!("MIG mode of GPU {} ({})", gpu.index, chain(&error))),
            }
        }
        if !waiting.is_empty()
            && let Err(error) = self.reset(&waiting)
        {
            left.push(format!(
                "MIG mode of GPU {} ({})",
                list(&indices(&waiting)),
                chain(&error)
            ));
        }
        for gpu in before.iter().filter(|gpu| mode(gpu).0) {
            let made = self.inventory();
            let made = made.and_then(|now| self.carried_out(&now, &Selection::as_is([*gpu])));
            if let Err(error) = made {
                left.push(format!("the instances of GPU {} ({})", gpu.index, chain(&error)));
            }
        }
        left
    }

    /// The driver's own tool resets GPUs: NVML has no call for it.
    fn reset(&mut self, gpus: &[&Gpu]) -> anyhow::Result<()> {
        // A GPU that a program has initialised is in use. The vendor's program lets go of NVML as well.
        self.close();
        let addresses: Vec<_> = gpus.iter().map(|gpu| gpu.pci.address.to_string()).collect();
        let root = &self.hardware.driver_root;
        let mut command = if root == Path::new("/") {
            Command::new("nvidia-smi")
        } else {
            let mut command = Command::new("chroot");
            command.arg(root).arg("nvidia-smi");
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
}

fn indices(gpus: &[&Gpu]) -> Vec<u32> {
    gpus.iter().map(|gpu| gpu.index).collect()
}

fn list(indices: &[u32]) -> String {
    indices.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
