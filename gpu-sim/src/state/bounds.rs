//! What a record may hold. Whoever edits the file may write any number; what is read here can be counted with.

use super::record::{GpuRecord, Record};
use crate::mig::{GpuInstance, Layout};

/// The driver numbers this many GPU instances of a GPU, and compute instances of each.
const INSTANCES: u32 = 15;
const COMPUTE: u32 = 8;

/// No board has as many slots or slices.
const SLOTS: u32 = 64;

/// No GPU has so much, in MiB: 1 EiB.
const MEMORY_MIB: u64 = 1 << 40;

/// It is a modification time, too, which some file systems keep in 31 bits.
const GENERATIONS: u64 = 1 << 31;

/// Names the first value that cannot be.
pub(super) fn check(record: &Record) -> Result<(), String> {
    if record.generation >= GENERATIONS {
        return Err(format!("generation {} is not below {GENERATIONS}", record.generation));
    }
    let gpus = record.gpus.iter();
    let fault = |(uuid, gpu)| Some(format!("gpus, {uuid}: {}", fault(gpu)?));
    gpus.map(fault).find_map(|fault| fault).map_or(Ok(()), Err)
}

fn fault(gpu: &GpuRecord) -> Option<String> {
    let modes = [("compute_mode", gpu.compute_mode), ("time_slice", gpu.time_slice)];
    if let Some((name, mode)) = modes.into_iter().find(|(_, mode)| *mode > 3) {
        return Some(format!("{name} {mode} is not from 0 to 3"));
    }
    let memory = gpu.processes.iter().map(|process| process.memory_mib);
    let memory = memory.fold(0, u64::saturating_add);
    if memory > MEMORY_MIB {
        return Some(format!("processes use {memory} MiB"));
    }
    layout(&gpu.mig)
}

fn layout(mig: &Layout) -> Option<String> {
    if !mig.instances.is_sorted_by(|one, next| one.id < next.id) {
        return Some("mig.instances are not in the order of their ids".to_owned());
    }
    mig.instances.iter().find_map(instance)
}

fn instance(instance: &GpuInstance) -> Option<String> {
    let id = instance.id;
    if id >= INSTANCES || instance.start >= SLOTS {
        let start = instance.start;
        return Some(format!("mig.instances: there is no instance {id} at {start}"));
    }
    if !instance.compute.is_sorted_by(|one, next| one.id < next.id) {
        return Some(format!("mig.instances, {id}: compute is not in the order of its ids"));
    }
    let compute = instance.compute.iter();
    let impossible = |compute: &&crate::mig::ComputeInstance| {
        compute.id >= COMPUTE || compute.start >= SLOTS || compute.slices >= SLOTS
    };
    let found = compute.clone().find(impossible)?;
    Some(format!(
        "mig.instances, {id}: there is no compute instance {} of {} slices at {}",
        found.id, found.slices, found.start
    ))
}
