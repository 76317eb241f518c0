//! The whole crate against what the vendor's program was seen to do.

mod upstream;
