use std::fmt;

/// Something of a configuration, or of a node that it is for, that is passed over.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// `devices` has indices that no GPU has.
    NoSuchIndex {
        /// The indices.
        indices: Vec<u32>,
    },
    /// `devices` names a GPU that the filter does not let through.
    Filtered {
        /// Its index.
        index: u32,
        /// Its model.
        name: String,
    },
    /// `devices: all` and a GPU that cannot do MIG.
    NotCapable {
        /// Its index.
        index: u32,
        /// Its model.
        name: String,
    },
    /// Two entries are about one GPU and ask different things; the last counts.
    Overruled {
        /// Its index.
        index: u32,
    },
    /// `devices: all`, and GPUs that no filter lets through: no entry is about them.
    LeftOut {
        /// Their indices.
        indices: Vec<u32>,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchIndex { indices } => write!(f, "`devices` names GPU {}, which this node lacks", list(indices)),
            Self::Filtered { index, name } => {
                write!(
                    f,
                    "`devices` names GPU {index} ({name}), which `device-filter` leaves out: it stays as it is"
                )
            }
            Self::NotCapable { index, name } => write!(f, "GPU {index} ({name}) cannot do MIG: it stays as it is"),
            Self::Overruled { index } => {
                write!(f, "two entries ask different things of GPU {index}: the last counts")
            }
            Self::LeftOut { indices } => {
                write!(
                    f,
                    "`device-filter` leaves out GPU {}, and no other entry is about it: it stays as it is",
                    list(indices)
                )
            }
        }
    }
}

/// Some of the indices, and how many more there are.
fn list(indices: &[u32]) -> String {
    const SHOWN: usize = 8;
    let shown: Vec<_> = indices.iter().take(SHOWN).map(ToString::to_string).collect();
    let more = indices.len().saturating_sub(SHOWN);
    match more {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
