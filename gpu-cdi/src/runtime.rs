//! What a wrapper around a low-level container runtime does: from what a container asks for to edits of its `config.json`.
//!
//! For engines that know no CDI themselves. [`requested`] reads the request, [`inject`] makes the edits as the CDI library
//! does, and [`Invocation`] finds the container's bundle among the runtime's arguments. The configuration is kept as JSON
//! and not as a type of one OCI version, so that what this crate does not know reaches the runtime as it was.
//!
//! # Example
//!
//! ```
//! use gpu_cdi::runtime::{RequestPolicy, requested};
//!
//! let config = serde_json::json!({ "process": { "env": ["NVIDIA_VISIBLE_DEVICES=0,1"] } });
//! let devices = requested(&config, &RequestPolicy::default())?.devices;
//! assert_eq!(devices[1].to_string(), "nvidia.com/gpu=1");
//! # Ok::<(), gpu_cdi::runtime::Error>(())
//! ```

mod error;
mod inject;
mod invocation;
mod object;
mod request;

pub use self::{
    error::{Error, Result},
    inject::inject,
    invocation::Invocation,
    request::{Request, RequestPolicy, requested},
};
