//! Nothing but a home for the benches: `cargo bench -p gpu-benches`.
