use std::collections::{BTreeSet, HashMap};

use crate::mig::{Board, GpuState, Mode, placement::occupied};

/// What the occupied slots of a GPU take away from the future, in memory slots.
///
/// For each shape of instance (profiles that may lie at the same places are one shape): how many fewer of it fit than on
/// an empty GPU, times its slots; summed over the shapes. The same occupied slots cost more where they cut larger blocks:
/// one `1g` in the middle of a half loses the half, beside another `1g` it loses hardly anything.
///
/// ```
/// use gpu_sharing::mig::{Catalogue, Geometry, loss};
///
/// let board = Catalogue::builtin().board("H100-80GB").unwrap();
/// let small: gpu_sharing::mig::Profile = "1g.10gb".parse()?;
/// let at = |start| Geometry::new(board, [(small.clone(), start)]);
/// // In the right half, a 1g leaves the left half whole, which fits 4g or twice 2g.
/// assert!(loss(board, &at(6)?) < loss(board, &at(0)?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn loss(board: &Board, geometry: &crate::mig::Geometry) -> u32 {
    let placements = geometry.instances().iter().map(|instance| instance.placement);
    Losses::new(board).of(occupied(placements))
}

/// [`loss`] of a GPU as it is; one that cannot be used has nothing to lose.
pub(crate) fn loss_now(gpu: &GpuState) -> u32 {
    let placements = gpu.instances.iter().map(|held| held.instance.placement);
    match gpu.mode {
        Mode::Unavailable => 0,
        Mode::Enabled | Mode::Disabled => Losses::new(&gpu.board).of(occupied(placements)),
    }
}

/// [`loss`] by occupied slots, each computed once.
#[derive(Debug)]
pub(crate) struct Losses {
    /// Ends, masks and slots of each shape, by end.
    shapes: Vec<(u32, Vec<u32>)>,
    full: u32,
    known: HashMap<u32, u32>,
}

impl Losses {
    pub(crate) fn new(board: &Board) -> Self {
        Self::only(board, |_| true)
    }

    /// Losses of some of the board's profiles alone.
    pub(crate) fn only(board: &Board, counts: impl Fn(usize) -> bool) -> Self {
        let rules = board.rules().iter().enumerate().filter(|(index, _)| counts(*index));
        let shapes: BTreeSet<_> = rules
            .map(|(_, rule)| rule)
            .map(|rule| {
                let mut by_end = rule.placements.clone();
                by_end.sort_unstable_by_key(|(placement, _)| placement.end());
                (
                    u32::from(rule.slots),
                    by_end.into_iter().map(|(_, mask)| mask).collect::<Vec<_>>(),
                )
            })
            .collect();
        let shapes: Vec<_> = shapes.into_iter().collect();
        let full = capacity(&shapes, 0);
        Self {
            shapes,
            full,
            known: HashMap::new(),
        }
    }

    pub(crate) fn of(&mut self, occupied: u32) -> u32 {
        let (shapes, full) = (&self.shapes, self.full);
        *self
            .known
            .entry(occupied)
            .or_insert_with(|| full - capacity(shapes, occupied))
    }
}

/// Slots that each shape alone could fill, summed. Taking what ends first is the largest set of disjoint runs.
fn capacity(shapes: &[(u32, Vec<u32>)], occupied: u32) -> u32 {
    let fill = |(slots, masks): &(u32, Vec<u32>)| {
        let mut taken = occupied;
        let mut sum = 0;
        for mask in masks {
            if taken & mask == 0 {
                taken |= mask;
                sum += slots;
            }
        }
        sum
    };
    shapes.iter().map(fill).sum()
}
