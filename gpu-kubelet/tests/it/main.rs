//! The crate from the outside: generated code, wire format, sockets, and a made-up plugin against the kubelet double.

mod generated;
mod sockets;
mod wire;
