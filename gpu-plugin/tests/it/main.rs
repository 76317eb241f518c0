//! The whole crate, in front of a kubelet double.

mod life;
mod recorded;
