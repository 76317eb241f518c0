use std::{fmt, ops::BitOr};

use serde::{Deserialize, Serialize};

/// Where an instance lies: a run of memory slots, as `nvmlGpuInstancePlacement_t` has it.
///
/// Written `4:2` (start, then size) as `nvidia-smi mig -lgi` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Placement {
    /// The first memory slot.
    pub start: u8,
    /// How many memory slots.
    pub size: u8,
}

impl Placement {
    /// Whether the two share a memory slot.
    ///
    /// ```
    /// # use gpu_sharing::mig::Placement;
    /// let left = Placement { start: 0, size: 4 };
    /// assert!(left.overlaps(Placement { start: 3, size: 1 }));
    /// assert!(!left.overlaps(Placement { start: 4, size: 4 }));
    /// ```
    pub fn overlaps(self, other: Self) -> bool {
        u16::from(self.start) < other.end() && u16::from(other.start) < self.end()
    }

    /// The slot after the last one.
    pub(crate) fn end(self) -> u16 {
        u16::from(self.start) + u16::from(self.size)
    }

    /// The slots as bits; the board has checked that they fit.
    pub(crate) fn mask(self) -> u32 {
        let run = 1_u64.checked_shl(self.size.into()).unwrap_or(0).wrapping_sub(1);
        u32::try_from((run << (self.start & 31)) & u64::from(u32::MAX)).unwrap_or(u32::MAX)
    }
}

/// The slots of all of them, as bits.
pub(crate) fn occupied(placements: impl IntoIterator<Item = Placement>) -> u32 {
    placements.into_iter().map(Placement::mask).fold(0, BitOr::bitor)
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}:{}", self.start, self.size))
    }
}
