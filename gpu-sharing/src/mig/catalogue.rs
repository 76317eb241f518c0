use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use serde::Deserialize;

use crate::mig::{Board, BoardError, BoardSpec, ComputeSpec, Engines, Placement, Profile, ProfileSpec};

/// The models of GPU that are known without asking a driver.
///
/// Good for planning where there is no GPU. On a node the driver's own list goes first: make a [`Board`] of it with
/// [`Board::new`], and put it in with [`Catalogue::with`].
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    entries: BTreeMap<String, Entry>,
}

/// A board of the catalogue and how far its numbers can be trusted.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The board.
    pub board: Arc<Board>,
    /// Generation and chip, e.g. `Hopper GH100`.
    pub architecture: String,
    /// PCI device ids (the vendor is 10de). One id can belong to boards with other names: check the memory.
    pub pci_device_ids: Vec<u16>,
    /// How sure the numbers are, in words: `measured`, `high`, `low: docs only`, …
    pub confidence: String,
    /// Where the numbers come from.
    pub sources: Vec<String>,
    /// What is in doubt.
    pub uncertain: Vec<String>,
}

impl Catalogue {
    /// The boards that come with this crate: A30 to GB300, RTX PRO and Thor.
    pub fn builtin() -> &'static Self {
        static BUILTIN: LazyLock<Catalogue> = LazyLock::new(|| {
            parse(include_str!("../../data/boards.json")).expect("data/boards.json is read by a test of this crate")
        });
        &BUILTIN
    }

    /// A catalogue of boards that were read from a driver, in place of the built-in one.
    ///
    /// Of boards with the same name the last is kept.
    pub fn from_boards(boards: impl IntoIterator<Item = Board>) -> Self {
        boards.into_iter().fold(Self::default(), Self::with)
    }

    /// Adds a board that was read from a driver, or replaces the one of that name.
    #[must_use]
    pub fn with(mut self, board: Board) -> Self {
        let name = board.name().to_owned();
        let board = Arc::new(board);
        match self.entries.get_mut(&name) {
            Some(entry) => entry.board = board,
            None => drop(self.entries.insert(
                name,
                Entry {
                    board,
                    architecture: String::new(),
                    pci_device_ids: Vec::new(),
                    confidence: "as given".to_owned(),
                    sources: Vec::new(),
                    uncertain: Vec::new(),
                },
            )),
        }
        self
    }

    /// The board of a name, e.g. `H100-80GB`.
    pub fn board(&self, name: &str) -> Option<&Arc<Board>> {
        self.entries.get(name).map(|entry| &entry.board)
    }

    /// All entries, in order of their names.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// The boards with this PCI device id, e.g. `0x2330`.
    pub fn by_pci_device(&self, id: u16) -> impl Iterator<Item = &Entry> {
        self.entries().filter(move |entry| entry.pci_device_ids.contains(&id))
    }
}

/// The file: families say how instances can lie, boards add names and sizes in the same order.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    families: Vec<FileFamily>,
    boards: Vec<FileBoard>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileFamily {
    name: String,
    memory_slots: u8,
    compute_slices: u8,
    profiles: Vec<FileShape>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileShape {
    nvml_constant: u32,
    gpu_instance_profile_id: Option<u32>,
    slices: u32,
    slots: u8,
    starts: Vec<u8>,
    max_instances: u32,
    compute: Vec<(u32, u32, u32)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileBoard {
    name: String,
    architecture: String,
    family: String,
    pci_device_ids: Vec<String>,
    engines: FileEngines,
    confidence: String,
    sources: Vec<String>,
    uncertain: Vec<String>,
    profiles: Vec<FileProfile>,
}

/// Decoders, encoders, JPEG, optical flow.
type FileEngines = (Option<u32>, Option<u32>, Option<u32>, Option<u32>);

/// Name, MiB, multiprocessors, copy engines and the four of [`FileEngines`].
type FileProfile = (
    Profile,
    Option<u64>,
    Option<u32>,
    Option<u32>,
    Option<u32>,
    Option<u32>,
    Option<u32>,
    Option<u32>,
);

#[derive(Debug, thiserror::Error)]
enum FileError {
    #[error("not the catalogue's format")]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Board(#[from] BoardError),
    #[error("board `{0}`: family, profiles or PCI ids do not match")]
    Mismatch(String),
}

fn parse(text: &str) -> Result<Catalogue, FileError> {
    let file: File = serde_json::from_str(text)?;
    let mut entries = BTreeMap::new();
    for board in file.boards {
        let mismatch = || FileError::Mismatch(board.name.clone());
        let family = file
            .families
            .iter()
            .find(|family| family.name == board.family)
            .ok_or_else(mismatch)?;
        let ids = board.pci_device_ids.iter().map(|id| u16::from_str_radix(id, 16));
        let pci_device_ids = ids.collect::<Result<_, _>>().map_err(|_| mismatch())?;
        let fits = family
            .profiles
            .iter()
            .map(|shape| shape.slices)
            .eq(board.profiles.iter().map(|p| p.0.slices()));
        if !fits {
            return Err(mismatch());
        }
        let spec = BoardSpec {
            name: board.name.clone(),
            memory_slots: family.memory_slots,
            compute_slices: family.compute_slices,
            engines: engines(board.engines),
            profiles: family
                .profiles
                .iter()
                .zip(&board.profiles)
                .map(|(shape, row)| profile(shape, row))
                .collect(),
        };
        let entry = Entry {
            board: Arc::new(Board::new(spec)?),
            architecture: board.architecture,
            pci_device_ids,
            confidence: board.confidence,
            sources: board.sources,
            uncertain: board.uncertain,
        };
        entries.insert(board.name, entry);
    }
    Ok(Catalogue { entries })
}

fn profile(shape: &FileShape, row: &FileProfile) -> ProfileSpec {
    let (name, memory_mib, multiprocessors, copy_engines, decoders, encoders, jpeg, ofa) = row;
    ProfileSpec {
        profile: name.clone(),
        nvml_constant: shape.nvml_constant,
        gpu_instance_profile_id: shape.gpu_instance_profile_id,
        placements: shape
            .starts
            .iter()
            .map(|&start| Placement {
                start,
                size: shape.slots,
            })
            .collect(),
        max_instances: shape.max_instances,
        memory_mib: *memory_mib,
        multiprocessors: *multiprocessors,
        copy_engines: *copy_engines,
        engines: engines((*decoders, *encoders, *jpeg, *ofa)),
        compute: shape
            .compute
            .iter()
            .map(|&(slices, nvml_constant, max_instances)| ComputeSpec {
                slices,
                nvml_constant,
                max_instances,
            })
            .collect(),
    }
}

fn engines((decoders, encoders, jpeg, ofa): FileEngines) -> Engines {
    Engines {
        decoders,
        encoders,
        jpeg,
        ofa,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashSet};

    use super::*;
    use crate::mig::Geometry;

    #[test]
    fn the_file_reads_and_has_sixteen_boards() {
        let catalogue = parse(include_str!("../../data/boards.json")).unwrap();
        assert_eq!(catalogue.entries().count(), 16);
        assert!(
            catalogue
                .entries()
                .all(|entry| !entry.sources.is_empty() && !entry.confidence.is_empty())
        );
        assert_eq!(
            catalogue
                .by_pci_device(0x2335)
                .map(|e| e.board.name())
                .collect::<Vec<_>>(),
            ["H200-141GB"]
        );
    }

    /// Geometries, maximal geometries, multisets, occupancies: counted for each board by an independent program.
    #[test]
    fn as_many_geometries_as_an_independent_count_found() {
        #[track_caller]
        fn check(board: &str, profiles: &[&str], expected: (usize, usize, usize, usize)) {
            let board = Catalogue::builtin().board(board).unwrap();
            let all: Vec<_> = board.profiles().iter().map(|spec| spec.profile.clone()).collect();
            let profiles = match profiles {
                [] => all,
                ["base"] => board.base_profiles(),
                ["base", more @ ..] => {
                    [board.base_profiles(), more.iter().map(|p| p.parse().unwrap()).collect()].concat()
                }
                _ => unreachable!(),
            };
            let sets = Geometry::enumerate(board, &profiles);
            let distinct: HashSet<_> = sets.iter().map(|g| g.instances().to_vec()).collect();
            assert_eq!(distinct.len(), sets.len(), "each is found once");
            let multisets: BTreeSet<_> = sets.iter().map(multiset).collect();
            let masks: BTreeSet<u32> = sets
                .iter()
                .map(|g| g.instances().iter().fold(0, |m, i| m | i.placement.mask()))
                .collect();
            let grows = |g: &&Geometry| {
                profiles
                    .iter()
                    .flat_map(|p| board.spec(p).unwrap().placements.iter().map(move |&at| (p, at)))
                    .any(|(profile, placement)| {
                        let more = Instance {
                            placement,
                            profile: profile.clone(),
                        };
                        Geometry::from_instances(board, g.instances().iter().cloned().chain([more])).is_ok()
                    })
            };
            let maximal = sets.iter().filter(|g| !grows(g)).count();
            assert_eq!(
                (sets.len(), maximal, multisets.len(), masks.len()),
                expected,
                "{}",
                board.name()
            );
        }
        use crate::mig::Instance;
        fn multiset(geometry: &Geometry) -> Vec<Profile> {
            let mut names: Vec<_> = geometry.instances().iter().map(|i| i.profile.clone()).collect();
            names.sort();
            names
        }
        check("A30-24GB", &["base"], (26, 5, 10, 16));
        check("A30-24GB", &[], (76, 17, 20, 16));
        check("A100-40GB", &["base", "1g.10gb"], (723, 78, 78, 192));
        for entry in Catalogue::builtin()
            .entries()
            .filter(|entry| entry.board.memory_slots() == 8)
        {
            check(entry.board.name(), &["base"], (298, 19, 38, 144));
        }
        check("H200-141GB", &["base", "1g.35gb"], (723, 78, 78, 192));
        check("H200-141GB", &[], (2319, 239, 128, 192));
        check("A100-40GB", &[], (2319, 239, 128, 192));
        check("B300-269GB", &[], (2319, 239, 128, 192));
        check("RTX-PRO-6000-Blackwell-96GB", &["base"], (26, 5, 10, 16));
        check("RTX-PRO-6000-Blackwell-96GB", &[], (717, 302, 115, 16));
        check("RTX-PRO-5000-Blackwell-48GB", &[], (30, 19, 18, 4));
        check("RTX-PRO-4500-Blackwell-32GB", &[], (22, 13, 14, 4));
        check("Thor-iGPU", &["base"], (9, 4, 5, 7));
        check("Thor-iGPU", &[], (52, 20, 18, 8));
    }
}
