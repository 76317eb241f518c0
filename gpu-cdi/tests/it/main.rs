//! The crate from outside: driver roots that exist on disk, and records of the vendor's programs.

mod bundle;
mod cache;
mod companions;
mod create_symlinks;
mod cuda_compat;
mod discover;
mod driver_root;
mod elf;
mod generate;
mod hook;
mod loader_cache;
mod mig;
mod modes;
mod runtime;
mod schema;
mod upstream;
mod write;
