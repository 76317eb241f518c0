//! Agreeing with the other programs of the node.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use gpu_core::{
    GpuUuid,
    ownership::{Owner, OwnerFile, OwnershipError},
};

use crate::{error::chain, identity::Identity};

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
            return Self::OtherDriver(chain(&OwnershipError::OtherDraDriver { socket }));
        }
        match file.read() {
            Ok(owners) => {
                let wanted = owners.owners.into_iter().filter(|(gpu, _)| wanted.contains(gpu));
                Self::Owners(wanted.map(|(gpu, claim)| (gpu, claim.owner)).collect())
            }
            Err(error) => {
                trouble.push(format!("nobody is asked who owns the GPUs: {}", chain(&error)));
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
                self.agreed = Said::OtherDriver(chain(&error));
                return false;
            }
            Err(error) => {
                self.agreed = Said::Nothing;
                let problem = format!("the GPUs are offered without a claim: {}", chain(&error));
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
                let problem = format!("GPUs that are offered no more stay claimed: {}", chain(&error));
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

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::net::UnixListener};

    use gpu_core::ownership::DRA_SOCKET;

    use super::*;

    fn gpu(number: u32) -> GpuUuid {
        format!("GPU-{number:08}-0000-0000-0000-000000000000").parse().unwrap()
    }

    fn gpus<const N: usize>(numbers: [u32; N]) -> Vec<GpuUuid> {
        numbers.into_iter().map(gpu).collect()
    }

    struct Place {
        folder: tempfile::TempDir,
        file: OwnerFile,
    }

    impl Place {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let file = OwnerFile::new(folder.path().join("owners.json")).kubelet(folder.path());
            Self { folder, file }
        }

        fn claims<const N: usize>(&self, wanted: [u32; N]) -> Claims {
            Claims::read(&self.file, gpus(wanted))
        }

        #[track_caller]
        fn check<const N: usize>(&self, expected: [(u32, Owner); N]) {
            let owners = self.file.read().unwrap().owners.into_iter();
            let owners: Vec<_> = owners.map(|(gpu, claim)| (gpu, claim.owner)).collect();
            assert_eq!(owners, expected.map(|(number, owner)| (gpu(number), owner)));
        }
    }

    /// Whether it shows that somebody else has come or gone.
    fn noticed(claims: &mut Claims) -> bool {
        !claims.are_untouched() && !claims.still_hold()
    }

    #[test]
    fn what_is_free_is_claimed_and_what_is_wanted_no_more_given_up() {
        let place = Place::new();
        place.file.claim(Owner::Dra, &gpus([1])).unwrap();
        place.file.claim(Owner::DevicePlugin, &gpus([3])).unwrap();
        let mut claims = place.claims([0, 1, 2]);
        assert_eq!(
            [0, 1, 2].map(|number| claims.refuses(&gpu(number))),
            [false, true, false]
        );
        place.check([(1, Owner::Dra), (3, Owner::DevicePlugin)]);
        assert!(claims.take(&gpus([0, 2])));
        claims.keep(&gpus([0, 2]));
        let ours = Owner::DevicePlugin;
        place.check([(0, ours), (1, Owner::Dra), (2, ours)]);
        let path = place.file.path().display();
        assert_eq!(
            claims.remarks(),
            [format!("{} is not offered: it is owned by dra ({path})", gpu(1))]
        );
        assert!(!noticed(&mut claims), "they are our own changes");
        place.file.claim(Owner::Dra, &gpus([7])).unwrap();
        assert!(!noticed(&mut claims), "it is nobody's here");
        place.file.release(Owner::Dra, &gpus([1])).unwrap();
        assert!(noticed(&mut claims));
    }

    #[test]
    fn another_that_is_faster_is_left_its_gpus() {
        let place = Place::new();
        let mut claims = place.claims([0, 1]);
        place.file.claim(Owner::MigManager, &gpus([1])).unwrap();
        assert!(!claims.take(&gpus([0, 1])));
        assert!(claims.refuses(&gpu(1)) && !claims.refuses(&gpu(0)));
        assert!(claims.take(&gpus([0])));
        place.check([(0, Owner::DevicePlugin), (1, Owner::MigManager)]);
        claims.take_back();
        place.check([(1, Owner::MigManager)]);
    }

    #[test]
    fn a_driver_that_writes_no_file_has_all_until_it_is_gone() {
        let place = Place::new();
        let socket = place.folder.path().join(DRA_SOCKET);
        fs::create_dir_all(socket.parent().unwrap()).unwrap();
        let mut before = place.claims([0]);
        let listener = UnixListener::bind(&socket).unwrap();
        assert!(noticed(&mut before));
        let mut claims = place.claims([0]);
        assert!(claims.refuses(&gpu(0)));
        assert!(claims.remarks()[0].starts_with("no GPU is offered: another DRA driver listens on "));
        assert!(claims.take(&[]) && !noticed(&mut claims));
        drop(listener); // its socket stays
        assert!(noticed(&mut claims));
    }

    #[test]
    fn a_file_that_cannot_be_used_takes_nothing_away_and_is_looked_at_when_it_changes() {
        let place = Place::new();
        fs::write(place.file.path(), "{").unwrap();
        let mut claims = place.claims([0]);
        assert!(!claims.refuses(&gpu(0)) && claims.take(&gpus([0])));
        claims.keep(&gpus([0]));
        assert!(claims.remarks()[0].starts_with("nobody is asked who owns the GPUs: "));
        assert!(!noticed(&mut claims));
        fs::write(place.file.path(), r#"{ "version": 1, "owners": {} }"#).unwrap();
        assert!(noticed(&mut claims));
    }
}
