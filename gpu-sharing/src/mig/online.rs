mod index;
mod policy;
mod states;

pub use self::{
    index::Online,
    policy::{BestFit, Buddy, Candidate, FirstFit, Gradient, Policy, Prospect, Score},
    states::States,
};
