//! The `libcuda.so.1` of a simulated NVIDIA node: what validation and clients of the Multi-Process Service ask the driver.
//!
//! It initialises, lists devices, tells what they are and makes contexts. It computes nothing: loading a module answers
//! `CUDA_ERROR_NOT_SUPPORTED`, and functions that are not here are not exported.
//!
//! What there is it asks the node's `libnvidia-ml.so.1`, which lies beside it: so a container sees the devices it has the
//! nodes of, a lost GPU is gone, and a driver that differs from the library is told. `CUDA_VISIBLE_DEVICES` and the pipe
//! folder of the Multi-Process Service count as they do for the vendor's library.
//!
//! # What was not measured
//! GPUs come in the order of their PCI addresses, whatever `CUDA_DEVICE_ORDER` says. As the vendor documents, a process sees
//! one MIG device at most; here it sees it if there is no whole GPU, or if it asks for it.
//!
//! No panic may cross the C ABI, so none may start here.
#![deny(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable
)]

mod attribute;
mod code;
mod device;
#[expect(unsafe_code, reason = "exports CUDA's C ABI")]
mod exports;
mod mps;
#[expect(unsafe_code, reason = "calls NVML")]
mod nvml;
mod session;
mod visible;
