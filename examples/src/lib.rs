//! The programs that people deploy, one module each.
//!
//! A program parses its arguments, calls the library crates and turns what they return into one message and an exit code.
//! `src/bin/<name>.rs` only calls the module of that name.

#![forbid(unsafe_code)]

mod program;

#[cfg(feature = "gpuctl")]
pub mod gpuctl;
#[cfg(feature = "gpuctl")]
mod hardware;
