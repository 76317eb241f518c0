//! The library itself: NVML's C ABI over a simulated node.
//!
//! Everything C hands over is checked by the types in [`abi`]; what a function answers is a closure over the
//! [`session`]. A function that is not modelled exists all the same and answers `NOT_SUPPORTED`: `build.rs` writes those,
//! from `nvml.symbols` less what the files here define. No panic may cross the ABI, so none may start here.
#![deny(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable
)]

mod abi;
mod calls;
mod code;
mod container;
mod devices;
mod events;
mod fields;
mod identity;
mod link;
mod locate;
mod memory;
mod mig;
mod modes;
mod pci;
mod processes;
mod readings;
mod session;
mod system;

pub(crate) use code::text as error_text;

/// Functions that exist and are not modelled.
mod unmodelled {
    use nvml_wrapper_sys::bindings::nvmlReturn_t;

    use super::{
        abi::Handle,
        code::Code,
        session::{answer, on},
    };

    include!(concat!(env!("OUT_DIR"), "/unmodelled.rs"));
}
