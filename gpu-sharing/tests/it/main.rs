//! The planner against an independent search, and what holds for every plan.

mod brute;
mod defragment;
mod driver;
mod fleets;
mod loss;
mod offline;
mod online;
mod packing;
mod reshape;
