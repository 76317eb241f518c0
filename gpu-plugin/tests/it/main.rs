//! The whole crate, in front of a kubelet double.

#[cfg(feature = "gpu")]
mod follow;
mod life;
#[cfg(feature = "gpu")]
mod mps;
#[cfg(feature = "gpu")]
mod node;
#[cfg(feature = "gpu")]
mod place;
#[cfg(feature = "gpu")]
mod platform;
#[cfg(feature = "gpu")]
mod upstream;
