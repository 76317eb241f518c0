//! Code generated from `proto/`. `tests/it/generated.rs` makes it and holds it to the definitions.
#![allow(
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    reason = "generated: what the generator writes is not ours to style"
)]

#[rustfmt::skip]
pub(crate) mod v1;
#[rustfmt::skip]
pub(crate) mod v1beta1;
