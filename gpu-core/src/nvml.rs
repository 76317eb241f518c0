//! Reading a node through `libnvidia-ml.so.1`.
//!
//! ```no_run
//! use gpu_core::nvml::{Library, LibrarySearch};
//!
//! let library = Library::open(&LibrarySearch::default())?;
//! for gpu in library.inventory("/".as_ref())?.gpus {
//!     println!("{} {}", gpu.index, gpu.name);
//! }
//! # Ok::<(), gpu_core::Error>(())
//! ```
//!
//! Only this module calls NVML. It goes through `nvml-wrapper` where that says all that NVML says, and through the private
//! module `raw` for the calls that it lacks or shortens.

mod compute_mode;
mod control;
mod events;
mod field;
mod gate;
mod gpm;
mod guard;
mod library;
mod parts;
mod raw;
mod read;
mod refusal;
mod search;
mod watcher;

pub use self::{
    control::{ApplyError, Done, NotTakenBack},
    events::{HealthEvent, HealthEventKind, HealthWatch, Watched},
    field::{Field, FieldReading, FieldValue},
    gpm::GpmSampler,
    guard::StuckCall,
    library::Library,
    parts::Parts,
    read::ProcessUtilization,
    refusal::{CallRefused, Refusal},
    search::LibrarySearch,
    watcher::{NodeEvent, WatchConfig, Watcher},
};
