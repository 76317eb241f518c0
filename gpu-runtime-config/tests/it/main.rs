//! The crate as its users see it.
#![expect(clippy::disallowed_methods, reason = "recorded files are read")]

mod corpus;
mod meaning;
mod promises;
mod upstream;
