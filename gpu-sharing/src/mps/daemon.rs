//! Running the MPS daemons of a node: one `nvidia-cuda-mps-control` for each resource, kept alive.
//!
//! [`Daemons::apply`] brings what runs to what a [`Plan`](super::Plan) says and leaves alone what has not changed, with its
//! clients. A daemon that dies or no longer answers is started anew. What happens is told by [`Event`].

mod compute_mode;
mod control;
mod error;
mod files;
mod keeper;
mod manager;
mod predecessor;
mod shared_memory;
mod tail;

pub use self::{
    compute_mode::{ComputeModes, SetComputeMode},
    control::Control,
    error::{Error, Result},
    keeper::Event,
    manager::{Daemons, Settings},
    shared_memory::shared_memory_kib,
};
