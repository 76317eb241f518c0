//! Sharing GPUs.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod mig;
pub mod time_slicing;
