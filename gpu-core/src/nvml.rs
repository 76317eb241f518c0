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
mod gate;
mod guard;
mod library;
mod raw;
mod read;
mod watcher;

pub use self::{
    control::{ApplyError, CallRefused, Done, NotTakenBack, Refusal},
    events::{HealthEvent, HealthEventKind, HealthWatch, Watched},
    guard::StuckCall,
    library::{Library, LibrarySearch},
    watcher::{NodeEvent, WatchConfig, Watcher},
};
