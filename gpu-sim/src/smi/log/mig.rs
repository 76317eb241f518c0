//! The MIG devices of a GPU.

use nvml_wrapper::Device;

use super::gpu::mib;
use crate::smi::xml::{Element, absent, group, value};

/// A group of them, or the word `None`.
pub(super) fn devices(gpu: &Device<'_>) -> Element {
    let there = |index| Some((index, gpu.mig_device_by_index(index).ok()?));
    let found: Vec<_> = (0..gpu.mig_device_count().unwrap_or(0)).filter_map(there).collect();
    if found.is_empty() {
        return Element::Line("mig_devices", "None".to_owned());
    }
    group(
        "mig_devices",
        found.iter().map(|(index, device)| describe(*index, device)),
    )
}

fn describe(index: u32, device: &Device<'_>) -> Element {
    let raw = super::super::raw::Gpu::of(device);
    let attributes = device.attributes().ok();
    let attributes = attributes.as_ref();
    let shared = [
        value("multiprocessor_count", attributes.map(|of| of.multiprocessor_count)),
        value("copy_engine_count", attributes.map(|of| of.shared_copy_engine_count)),
        value("encoder_count", attributes.map(|of| of.shared_encoder_count)),
        value("decoder_count", attributes.map(|of| of.shared_decoder_count)),
        value("ofa_count", attributes.map(|of| of.shared_ofa_count)),
        value("jpg_count", attributes.map(|of| of.shared_jpeg_count)),
    ];
    let memory = device.memory_info().ok();
    let size = |bytes: Option<u64>| bytes.map(mib);
    let memory = [
        value("total", size(memory.as_ref().map(|memory| memory.total))),
        value("reserved", size(memory.as_ref().map(|memory| memory.reserved))),
        value("used", size(memory.as_ref().map(|memory| memory.used))),
        value("free", size(memory.as_ref().map(|memory| memory.free))),
    ];
    group(
        "mig_device",
        [
            value("index", Some(index)),
            value("gpu_instance_id", raw.gpu_instance()),
            value("compute_instance_id", raw.compute_instance()),
            value("uuid", device.uuid().ok()),
            group("device_attributes", [group("shared", shared)]),
            group(
                "ecc_error_count",
                [group("volatile_count", absent(["sram_uncorrectable"]))],
            ),
            group("fb_memory_usage", memory),
            group("bar1_memory_usage", absent(["total", "used", "free"])),
        ],
    )
}
