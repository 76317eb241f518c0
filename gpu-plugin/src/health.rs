//! Which GPUs may be handed out: what happens to them in, their health out; no I/O and no clock of its own.

mod policy;
mod probe;
mod states;

pub use self::{
    policy::{HealthPolicy, ParseXidClassError, XidClass},
    probe::{Finding, examine},
    states::{Health, HealthChange, HealthStates, Part},
};
