//! The kubelet's protocols for plugins: what goes over its Unix sockets, and how to get there.
//!
//! A device plugin serves [`device_plugin::DevicePlugin`] on a socket of its own, made by [`listen`], and then announces
//! it to the kubelet with [`register`]. Whoever wants to know which pod holds which device asks the kubelet's
//! [`pod_resources::PodResourcesListerClient`] over a channel made by [`connect`].
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//!
//! use gpu_kubelet::{Registration, register};
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! let registration = Registration::new("widgets.sock", "example.com/widget");
//! let error = register("/nonexistent/kubelet.sock", &registration, Duration::from_secs(1)).await.unwrap_err();
//! assert!(error.is_transient(), "no kubelet yet: wait and try again");
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! The README has a whole plugin.
//!
//! # Where things are
//! - [`connect`], [`listen`]: Unix sockets for tonic, with the authority that other gRPC libraries insist on
//! - [`register`]: a device plugin's announcement; [`is_extended_resource_name`]: for which names
//! - [`device_plugin`]: messages, clients and servers of the device plugin protocol, v1beta1
//! - [`pod_resources`]: the same of the pod resources protocol, v1
//! - [`names`]: paths and words fixed by the kubelet
//! - [`Error`]: what went wrong, and whether waiting helps
#![cfg_attr(feature = "double", doc = "- [`double`]: a kubelet for tests and demonstrations")]
//!
//! # Features
//! Name | Adds | Default
//! ---|---|---
//! `double` | `double::Kubelet`, a kubelet without a cluster | no
//!
//! # What this crate does not do
//! It knows no GPU, keeps no retry loop (that is the plugin's policy) and watches no files.
//!
//! # Foreign types
//! [`prost`] and [`tonic`] show in the public API and are re-exported.

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub use prost;
pub use tonic;

pub mod device_plugin;
#[cfg(feature = "double")]
pub mod double;
pub mod names;
pub mod pod_resources;

mod connect;
mod error;
mod generated;
mod listen;
mod register;
mod resource_name;

pub use crate::{
    connect::{CONNECT_TIMEOUT, connect},
    error::{Error, Result},
    listen::{Incoming, listen},
    register::{REGISTER_TIMEOUT, Registration, register},
    resource_name::is_extended_resource_name,
};

#[cfg(all(doctest, feature = "double"))]
#[doc = include_str!("../README.md")] // the README's code is compiled and run
struct Readme;
