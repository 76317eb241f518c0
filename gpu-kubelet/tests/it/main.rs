//! The crate from the outside: generated code, wire format, sockets, and a made-up plugin against the kubelet double.

mod admission;
mod generated;
mod plugin;
mod pod_resources;
mod registration;
mod sockets;
mod wire;
