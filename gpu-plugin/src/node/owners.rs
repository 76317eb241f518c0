//! Agreeing with the other programs of the node.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use gpu_core::{
    GpuUuid,
    ownership::{Owner, OwnerFile, OwnershipError},
};

use super::words;
use crate::identity::Identity;

/// Which GPUs are left to others, and which are claimed for device plugins.
///
/// A file that cannot be used takes nothing away: the vendor's plugin knows of none.
#[derive(Debug, Clone)]
pub(crate) struct Claims {
    file: OwnerFile,
    /// The GPUs that are wanted.
    wanted: BTreeSet<GpuUuid>,
    /// What was agreed on.
    agreed: Said,
    /// What was claimed, and was not before.
    new: Vec<GpuUuid>,
    /// The files' identities before what they say was read.
    signs: Vec<Option<Identity>>,
    /// What went wrong, in words.
    trouble: Vec<String>,
}

/// What is said of the GPUs that are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Said {
    /// Who owns which of them.
    Owners(BTreeMap<GpuUuid, Owner>),
    /// A DRA driver that does not write the file has all, in words.
    OtherDriver(String),
    /// Nothing: the file cannot be used.
    Nothing,
}

impl Said {
    fn of(file: &OwnerFile, wanted: &BTreeSet<GpuUuid>, trouble: &mut Vec<String>) -> Self {
        if let Some(socket) = file.other_driver() {
            return Self::OtherDriver(words(&OwnershipError::OtherDraDriver { socket }));
        }
        match file.read() {
            Ok(owners) => {
                let wanted = owners.owners.into_iter().filter(|(gpu, _)| wanted.contains(gpu));
                Self::Owners(wanted.map(|(gpu, claim)| (gpu, claim.owner)).collect())
            }
            Err(error) => {
                trouble.push(format!("nobody is asked who owns the GPUs: {}", words(&error)));
                Self::Nothing
            }
        }
    }
}

impl Claims {
    /// Reads who owns the GPUs that are wanted. Changes nothing.
    pub(super) fn read(file: &OwnerFile, wanted: impl IntoIterator<Item = GpuUuid>) -> Self {
        let wanted = wanted.into_iter().collect();
        let signs = signs(file);
        let mut trouble = Vec::new();
        Self {
            agreed: Said::of(file, &wanted, &mut trouble),
            file: file.clone(),
            wanted,
            new: Vec::new(),
            signs,
            trouble,
        }
    }

    /// Whether a GPU is left to somebody else.
    pub(super) fn refuses(&self, gpu: &GpuUuid) -> bool {
        match &self.agreed {
            Said::Owners(owners) => owners.get(gpu).is_some_and(|owner| *owner != Owner::DevicePlugin),
            Said::OtherDriver(_) => true,
            Said::Nothing => false,
        }
    }

    /// Claims these, all or none; `false` where another was faster, whose GPUs are refused from here on.
    pub(super) fn take(&mut self, gpus: &[GpuUuid]) -> bool {
        let Said::Owners(owners) = &mut self.agreed else {
            return true;
        };
        match self.file.claim(Owner::DevicePlugin, gpus) {
            Ok(()) => {
                self.new = gpus.iter().filter(|gpu| !owners.contains_key(*gpu)).cloned().collect();
                owners.extend(gpus.iter().map(|gpu| (gpu.clone(), Owner::DevicePlugin)));
            }
            Err(OwnershipError::Owned { others }) => {
                owners.extend(others);
                return false;
            }
            Err(error @ OwnershipError::OtherDraDriver { .. }) => {
                self.agreed = Said::OtherDriver(words(&error));
                return false;
            }
            Err(error) => {
                self.agreed = Said::Nothing;
                let problem = format!("the GPUs are offered without a claim: {}", words(&error));
                self.trouble.push(problem);
            }
        }
        true
    }

    /// Gives up what was claimed anew.
    pub(super) fn take_back(&self) {
        // What cannot be given up is offered by nobody, and given up by the next that is put in force.
        let _ = self.file.release(Owner::DevicePlugin, &self.new);
    }

    /// Gives up all GPUs that device plugins have but for these.
    pub(super) fn keep(&mut self, gpus: &[GpuUuid]) {
        let Ok(owners) = self.file.read() else { return };
        let mine = owners.owners.into_iter();
        let mine = mine.filter(|(_, claim)| claim.owner == Owner::DevicePlugin);
        let unwanted: Vec<_> = mine.map(|(gpu, _)| gpu).filter(|gpu| !gpus.contains(gpu)).collect();
        if unwanted.is_empty() {
            return;
        }
        match self.file.release(Owner::DevicePlugin, &unwanted) {
            Ok(()) => {
                if let Said::Owners(owners) = &mut self.agreed {
                    owners.retain(|gpu, _| !unwanted.contains(gpu));
                }
            }
            Err(error) => {
                let problem = format!("GPUs that are offered no more stay claimed: {}", words(&error));
                self.trouble.push(problem);
            }
        }
    }

    /// What a person should know of it.
    pub(super) fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        match &self.agreed {
            Said::Owners(owners) => {
                let others = owners.iter().filter(|(_, owner)| **owner != Owner::DevicePlugin);
                let path = self.path().display();
                remarks.extend(
                    others.map(|(gpu, owner)| format!("{gpu} is not offered: it is owned by {owner} ({path})")),
                );
            }
            Said::OtherDriver(reason) => remarks.push(format!("no GPU is offered: {reason}")),
            Said::Nothing => {}
        }
        remarks.extend(self.trouble.iter().cloned());
        remarks
    }

    /// Whether nobody has touched what was agreed on; no claim is read where it shows otherwise.
    pub(crate) fn are_untouched(&self) -> bool {
        !matches!(self.agreed, Said::OtherDriver(_)) && signs(&self.file) == self.signs
    }

    /// Whether owners are still as was agreed on, read anew.
    pub(crate) fn still_hold(&mut self) -> bool {
        self.signs = signs(&self.file);
        Said::of(&self.file, &self.wanted, &mut Vec::new()) == self.agreed
    }

    fn path(&self) -> &Path {
        self.file.path()
    }
}

fn signs(file: &OwnerFile) -> Vec<Option<Identity>> {
    file.signs().map(|path| Identity::of(&path)).collect()
}
