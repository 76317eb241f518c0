//! What can be made of a board that can be partitioned (MIG), and where.

mod layout;
mod placement;
#[cfg(test)]
mod tests;

use serde::Deserialize;

use crate::data::{self, Catalog, catalog};

pub(crate) use self::{
    layout::{
        Activation, ComputeInstance, GpuInstance, Layout, ModeRules, Refusal, Used, compute_profile, compute_slices,
    },
    placement::{compute_starts, free_starts, instance_id, preferred},
};

/// The MIG profiles of one model of board.
///
/// Memory is divided into slots, compute into slices. An instance takes a run of slots that starts at one of its
/// profile's places.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct MigTable {
    /// The name that boards refer to.
    pub name: String,
    /// Memory slots of the whole board, in the units of the placements.
    pub slots: u32,
    /// Compute slices of the whole board: also the highest number of MIG devices.
    pub slices: u32,
    /// Media engines of the whole board. What the instances have may not sum up to more.
    pub engines: MediaEngines,
    /// The profiles, by NVML's constant.
    pub profiles: Vec<MigProfile>,
}

/// Media engines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the names say it")]
pub struct MediaEngines {
    pub decoders: u32,
    pub encoders: u32,
    pub jpeg: u32,
    pub ofa: u32,
}

/// One MIG profile of a [`MigTable`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct MigProfile {
    /// NVML's constant `NVML_GPU_INSTANCE_PROFILE_…`.
    pub profile: u32,
    /// The id that the driver gives the profile on this board.
    pub id: u32,
    /// Compute slices.
    pub slices: u32,
    /// Memory slots.
    pub size: u32,
    /// Where an instance may start, in slots.
    pub starts: Vec<u32>,
    /// How many instances of it there may be at once.
    pub instances: u32,
    /// Memory, in MiB.
    pub memory_mib: u64,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Copy engines.
    pub copy_engines: u32,
    /// Video decoders.
    pub decoders: u32,
    /// Video encoders.
    pub encoders: u32,
    /// JPEG engines.
    pub jpeg: u32,
    /// Optical flow accelerators.
    pub ofa: u32,
}

/// Sizes of compute instances in slices, each with NVML's constant `NVML_COMPUTE_INSTANCE_PROFILE_…`, which is also the
/// id that the driver gives it.
pub(crate) const COMPUTE_PROFILES: [(u32, u32); 7] = [(1, 0), (2, 1), (3, 2), (4, 3), (7, 4), (8, 5), (6, 6)];

impl MigTable {
    /// The profile with this NVML constant.
    pub(crate) fn by_constant(&self, profile: u32) -> Option<&MigProfile> {
        self.profiles.iter().find(|candidate| candidate.profile == profile)
    }

    /// The profile with this id.
    pub(crate) fn by_id(&self, id: u32) -> Option<&MigProfile> {
        self.profiles.iter().find(|candidate| candidate.id == id)
    }

    /// Multiprocessors of a compute instance: those of the smallest profile for each slice, as recorded.
    pub(crate) fn multiprocessors(&self, slices: u32) -> u32 {
        self.by_constant(0).map_or(0, |one| one.multiprocessors * slices)
    }
}

impl MigProfile {
    /// Gfx-capable profiles: `NVML_GPU_INSTANCE_PROFILE_{1,2,4}_SLICE_GFX` and `3_SLICE_GFX`.
    pub(crate) fn is_gfx(&self) -> bool {
        matches!(self.profile, 10..=12 | 17)
    }

    pub(crate) fn engines(&self) -> MediaEngines {
        MediaEngines {
            decoders: self.decoders,
            encoders: self.encoders,
            jpeg: self.jpeg,
            ofa: self.ofa,
        }
    }

    /// The name that the driver makes of the profile for a compute instance of that many slices on a board with that
    /// much memory: `1g.10gb`, `1c.3g.40gb`, `1g.18gb+me`.
    ///
    /// Memory is rounded up to eighths of the board's and then to whole GiB, whatever the number of slots.
    pub fn name(&self, compute_slices: u32, board_bytes: u64) -> String {
        let gib = self.gib(board_bytes);
        let suffix = match self.profile {
            7 | 8 => "+me",
            10..=12 | 17 => "+gfx",
            13 | 14 => "-me",
            15 | 16 => "+me.all",
            _ => "",
        };
        let compute = if compute_slices == self.slices {
            String::new()
        } else {
            format!("{compute_slices}c.")
        };
        format!("{compute}{}g.{gib}gb{suffix}", self.slices)
    }

    fn gib(&self, board_bytes: u64) -> u64 {
        if board_bytes == 0 {
            return 0;
        }
        let eighths = (u128::from(self.memory_mib) * 8 * (1 << 20)).div_ceil(board_bytes.into());
        let gib = u128::from(board_bytes.div_ceil(1 << 30));
        u64::try_from((eighths * gib * 2 + 8) / 16).unwrap_or(0) // to the nearest, a half goes up
    }
}

static TABLES: Catalog<MigTable> = catalog!(data::MIG);

/// The table of that name.
pub(crate) fn find(name: &str) -> Option<&'static MigTable> {
    TABLES.find("name", name)
}
