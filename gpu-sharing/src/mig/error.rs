use crate::mig::{Placement, Profile};

/// Why a board's values do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("board `{board}`{}: {reason}", profile.as_ref().map(|p| format!(", profile `{p}`")).unwrap_or_default())]
pub struct BoardError {
    pub(crate) board: String,
    pub(crate) profile: Option<Profile>,
    pub(crate) reason: &'static str,
}

/// Why a set of instances is not a geometry of a board.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GeometryError {
    /// The board has no such profile; the catalogue or the driver says which it has.
    #[error("`{board}` does not offer `{profile}`")]
    UnknownProfile {
        /// The model of GPU.
        board: String,
        /// What was asked for.
        profile: Profile,
    },
    /// The board has the profile, but not at that place.
    #[error("`{profile}` cannot lie at {placement} on `{board}`")]
    Misplaced {
        /// The model of GPU.
        board: String,
        /// What was asked for.
        profile: Profile,
        /// Where.
        placement: Placement,
    },
    /// Two instances share a memory slot.
    #[error("`{first}` at {first_at} and `{second}` at {second_at} share a memory slot")]
    Overlap {
        /// The instance that starts first.
        first: Profile,
        /// Its place.
        first_at: Placement,
        /// The instance that starts in it.
        second: Profile,
        /// Its place.
        second_at: Placement,
    },
    /// More instances of a profile than the GPU can have.
    #[error("more than {max} of `{profile}` on one `{board}`")]
    TooMany {
        /// The model of GPU.
        board: String,
        /// What there are too many of.
        profile: Profile,
        /// How many there can be.
        max: u32,
    },
    /// The instances take more decoders, encoders, JPEG or optical flow engines than the GPU has.
    #[error("the instances need {used} {engine} of the {total} on one `{board}`")]
    Engines {
        /// The model of GPU.
        board: String,
        /// Which engine.
        engine: &'static str,
        /// How many the instances take.
        used: u32,
        /// How many the GPU has.
        total: u32,
    },
}
