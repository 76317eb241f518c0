//! The crate from outside: driver roots that exist on disk, and records of the vendor's programs.

mod cache;
mod companions;
mod discover;
mod driver_root;
mod elf;
mod generate;
mod hook;
mod mig;
mod runtime;
mod upstream;
mod write;
