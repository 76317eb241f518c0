//! The planner against an independent search, and what holds for every plan.

mod brute;
mod fleets;
mod offline;
