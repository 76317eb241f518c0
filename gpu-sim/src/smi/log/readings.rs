//! What the sensors and counters of a GPU read.

use nvml_wrapper::{
    Device,
    bitmasks::device::ThrottleReasons,
    enum_wrappers::device::{Clock, EccCounter, MemoryError, TemperatureSensor},
};

use super::gpu::{mib, mode, state, yes};
use crate::smi::{
    query::{enabled, watts},
    raw,
    xml::{Element, absent, group, value},
};

/// From the fan to the clocks.
pub(super) fn describe(gpu: &Device<'_>) -> Vec<Element> {
    let mut elements = vec![
        value("fan_speed", gpu.fan_speed(0).ok().map(percent)),
        value("performance_state", state(gpu)),
        group("clocks_event_reasons", reasons(gpu)),
        group(
            "clocks_event_reasons_counters",
            absent([
                "clocks_event_reasons_counters_sw_power_cap",
                "clocks_event_reasons_counters_sync_boost",
                "clocks_event_reasons_counters_sw_therm_slowdown",
                "clocks_event_reasons_counters_hw_therm_slowdown",
                "clocks_event_reasons_counters_hw_power_brake",
            ]),
        ),
    ];
    elements.extend(absent(["sparse_operation_mode"]));
    elements.extend(memory(gpu));
    elements.push(value("compute_mode", mode(gpu)));
    elements.extend(utilization(gpu));
    elements.extend(errors(gpu));
    elements.extend(temperature_and_power(gpu));
    elements.extend(clocks(gpu));
    elements.push(fabric(gpu));
    elements.push(Element::Line("supported_clocks", "N/A".to_owned()));
    elements
}

fn percent(percent: u32) -> String {
    format!("{percent} %")
}

fn reasons(gpu: &Device<'_>) -> Vec<Element> {
    let active = gpu.current_throttle_reasons().ok();
    let reason = |name, bit| {
        let word = |active: ThrottleReasons| if active.contains(bit) { "Active" } else { "Not Active" };
        value(name, active.map(word))
    };
    vec![
        reason("clocks_event_reason_gpu_idle", ThrottleReasons::GPU_IDLE),
        reason(
            "clocks_event_reason_applications_clocks_setting",
            ThrottleReasons::APPLICATIONS_CLOCKS_SETTING,
        ),
        reason("clocks_event_reason_sw_power_cap", ThrottleReasons::SW_POWER_CAP),
        reason("clocks_event_reason_hw_slowdown", ThrottleReasons::HW_SLOWDOWN),
        reason(
            "clocks_event_reason_hw_thermal_slowdown",
            ThrottleReasons::HW_THERMAL_SLOWDOWN,
        ),
        reason(
            "clocks_event_reason_hw_power_brake_slowdown",
            ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN,
        ),
        reason("clocks_event_reason_sync_boost", ThrottleReasons::SYNC_BOOST),
        reason(
            "clocks_event_reason_sw_thermal_slowdown",
            ThrottleReasons::SW_THERMAL_SLOWDOWN,
        ),
        reason(
            "clocks_event_reason_display_clocks_setting",
            ThrottleReasons::DISPLAY_CLOCK_SETTING,
        ),
    ]
}

fn memory(gpu: &Device<'_>) -> [Element; 3] {
    let memory = gpu.memory_info().ok();
    let bar1 = gpu.bar1_memory_info().ok();
    let size = |name, bytes: Option<u64>| value(name, bytes.map(mib));
    [
        group(
            "fb_memory_usage",
            [
                size("total", memory.as_ref().map(|memory| memory.total)),
                size("reserved", memory.as_ref().map(|memory| memory.reserved)),
                size("used", memory.as_ref().map(|memory| memory.used)),
                size("free", memory.as_ref().map(|memory| memory.free)),
            ],
        ),
        group(
            "bar1_memory_usage",
            [
                size("total", bar1.as_ref().map(|bar1| bar1.total)),
                // The other sizes are rounded up.
                value("used", bar1.as_ref().map(|bar1| format!("{} MiB", bar1.used >> 20))),
                size("free", bar1.as_ref().map(|bar1| bar1.free)),
            ],
        ),
        group("cc_protected_memory_usage", absent(["total", "used", "free"])),
    ]
}

fn utilization(gpu: &Device<'_>) -> [Element; 4] {
    let raw = raw::Gpu::of(gpu);
    let rates = gpu.utilization_rates().ok();
    let rates = rates.as_ref();
    let encoder = gpu.encoder_utilization().ok().map(|of| of.utilization);
    let decoder = gpu.decoder_utilization().ok().map(|of| of.utilization);
    let sessions = || absent(["session_count", "average_fps", "average_latency"]);
    [
        group(
            "utilization",
            [
                value("gpu_util", rates.map(|rates| percent(rates.gpu))),
                value("memory_util", rates.map(|rates| percent(rates.memory))),
                value("encoder_util", encoder.map(percent)),
                value("decoder_util", decoder.map(percent)),
                value("jpeg_util", raw.jpeg_percent().map(percent)),
                value("ofa_util", raw.ofa_percent().map(percent)),
            ],
        ),
        group("encoder_stats", sessions()),
        group("fbc_stats", sessions()),
        group(
            "dram_encryption_mode",
            absent(["current_dram_encryption", "pending_dram_encryption"]),
        ),
    ]
}

/// All errors that are simulated are of the board's memory.
fn errors(gpu: &Device<'_>) -> [Element; 4] {
    let mode = gpu.is_ecc_enabled().ok();
    let mode = mode.as_ref();
    let counts = |counter: EccCounter| {
        let dram = |error| gpu.total_ecc_errors(error, counter).ok();
        let sram = [
            "sram_correctable",
            "sram_uncorrectable_parity",
            "sram_uncorrectable_secded",
        ];
        let mut counts = absent(sram).to_vec();
        counts.push(value("dram_correctable", dram(MemoryError::Corrected)));
        counts.push(value("dram_uncorrectable", dram(MemoryError::Uncorrected)));
        counts
    };
    let mut aggregate = counts(EccCounter::Aggregate);
    aggregate.extend(absent(["sram_threshold_exceeded"]));
    let sources = ["sram_l2", "sram_sm", "sram_microcontroller", "sram_pcie", "sram_other"];
    let mut errors = vec![
        group("volatile", counts(EccCounter::Volatile)),
        group("aggregate", aggregate),
        group("aggregate_uncorrectable_sram_sources", absent(sources)),
    ];
    errors.extend(absent([
        "channel_repair_pending",
        "tpc_repair_pending",
        "unrepairable_memory",
    ]));
    let pages = || absent(["retired_count", "retired_pagelist"]);
    let mut retired = vec![
        group("multiple_single_bit_retirement", pages()),
        group("double_bit_retirement", pages()),
    ];
    retired.extend(absent(["pending_blacklist", "pending_retirement"]));
    [
        group(
            "ecc_mode",
            [
                value("current_ecc", mode.map(|mode| enabled(mode.currently_enabled))),
                value("pending_ecc", mode.map(|mode| enabled(mode.pending_enabled))),
            ],
        ),
        group("ecc_errors", errors),
        group("retired_pages", retired),
        remapped_rows(gpu),
    ]
}

fn remapped_rows(gpu: &Device<'_>) -> Element {
    let raw = raw::Gpu::of(gpu);
    let (rows, histogram) = (raw.remapped_rows(), raw.row_histogram());
    let mut elements = vec![value("remapped_row_corr", rows.map(|rows| rows.corrected))];
    elements.extend(absent(["remapped_row_corr_inactive"]));
    elements.push(value("remapped_row_unc", rows.map(|rows| rows.uncorrected)));
    elements.extend(absent(["remapped_row_unc_inactive"]));
    let banks = |name, count: Option<u32>| value(name, count.map(|count| format!("{count} bank(s)")));
    elements.extend([
        value("remapped_row_pending", rows.map(|rows| yes(rows.pending))),
        value("remapped_row_failure", rows.map(|rows| yes(rows.failed))),
        group(
            "row_remapper_histogram",
            [
                banks("row_remapper_histogram_max", histogram.map(|of| of.max)),
                banks("row_remapper_histogram_high", histogram.map(|of| of.high)),
                banks("row_remapper_histogram_partial", histogram.map(|of| of.partial)),
                banks("row_remapper_histogram_low", histogram.map(|of| of.low)),
                banks("row_remapper_histogram_none", histogram.map(|of| of.none)),
            ],
        ),
    ]);
    group("remapped_rows", elements)
}

fn temperature_and_power(gpu: &Device<'_>) -> Vec<Element> {
    let celsius = |celsius: String| format!("{celsius} C");
    let watt = |milliwatts: u32| format!("{} W", watts(milliwatts));
    let margin = raw::Gpu::of(gpu).margin_c();
    let limits = gpu.power_management_limit_constraints().ok();
    let limits = limits.as_ref();
    let now = gpu.temperature(TemperatureSensor::Gpu).ok();
    let mut temperature = vec![
        value("gpu_temp", now.map(|now| celsius(now.to_string()))),
        value("gpu_temp_tlimit", margin.map(|margin| celsius(margin.to_string()))),
    ];
    temperature.extend(absent([
        "gpu_temp_max_tlimit_threshold",
        "gpu_temp_slow_tlimit_threshold",
        "gpu_temp_max_gpu_tlimit_threshold",
        "gpu_target_temperature",
        "memory_temp",
        "gpu_temp_max_mem_tlimit_threshold",
    ]));
    let draw = gpu.power_usage().ok().map(watt);
    let mut module = vec![value("power_state", state(gpu))];
    module.extend(absent([
        "average_power_draw",
        "instant_power_draw",
        "current_power_limit",
        "requested_power_limit",
        "default_power_limit",
        "min_power_limit",
        "max_power_limit",
    ]));
    let mut elements = vec![
        group("temperature", temperature),
        group(
            "supported_gpu_target_temp",
            absent(["gpu_target_temp_min", "gpu_target_temp_max"]),
        ),
        group(
            "gpu_power_readings",
            [
                value("power_state", state(gpu)),
                value("average_power_draw", draw.clone()),
                value("instant_power_draw", draw),
                value("current_power_limit", gpu.enforced_power_limit().ok().map(watt)),
                value("requested_power_limit", gpu.power_management_limit().ok().map(watt)),
                value(
                    "default_power_limit",
                    gpu.power_management_limit_default().ok().map(watt),
                ),
                value("min_power_limit", limits.map(|limits| watt(limits.min_limit))),
                value("max_power_limit", limits.map(|limits| watt(limits.max_limit))),
            ],
        ),
        group(
            "gpu_memory_power_readings",
            absent(["average_power_draw", "instant_power_draw"]),
        ),
        group("module_power_readings", module),
    ];
    elements.extend(absent(["power_smoothing"]));
    elements.push(group(
        "power_profiles",
        absent(["power_profile_requested_profiles", "power_profile_enforced_profiles"]),
    ));
    elements
}

fn clocks(gpu: &Device<'_>) -> [Element; 7] {
    let mhz = |mhz: u32| format!("{mhz} MHz");
    let of = |read: &dyn Fn(Clock) -> Option<u32>| {
        [
            value("graphics_clock", read(Clock::Graphics).map(mhz)),
            value("sm_clock", read(Clock::SM).map(mhz)),
            value("mem_clock", read(Clock::Memory).map(mhz)),
            value("video_clock", read(Clock::Video).map(mhz)),
        ]
    };
    let set = |read: &dyn Fn(Clock) -> Option<u32>| {
        [
            value("graphics_clock", read(Clock::Graphics).map(mhz)),
            value("mem_clock", read(Clock::Memory).map(mhz)),
        ]
    };
    let boost = gpu.max_customer_boost_clock(Clock::Graphics).ok();
    [
        group("clocks", of(&|clock| gpu.clock_info(clock).ok())),
        group("applications_clocks", set(&|clock| gpu.applications_clock(clock).ok())),
        group(
            "default_applications_clocks",
            set(&|clock| gpu.default_applications_clock(clock).ok()),
        ),
        group("deferred_clocks", absent(["mem_clock"])),
        group("max_clocks", of(&|clock| gpu.max_clock_info(clock).ok())),
        group("max_customer_boost_clocks", [value("graphics_clock", boost.map(mhz))]),
        group("clock_policy", absent(["auto_boost", "auto_boost_default"])),
    ]
}

fn fabric(gpu: &Device<'_>) -> Element {
    let fabric = raw::Gpu::of(gpu).fabric();
    let state = |state| match state {
        1 => "Not Started",
        2 => "In Progress",
        _ => "Completed",
    };
    let status = |code| crate::nvml::error_text(code).to_string_lossy();
    group(
        "fabric",
        [
            value("state", fabric.map(|fabric| state(fabric.state))),
            value("status", fabric.map(|fabric| status(fabric.status))),
            value("cliqueId", fabric.map(|fabric| fabric.clique)),
            value("clusterUuid", fabric.map(|fabric| uuid(fabric.cluster))),
            group(
                "health",
                absent([
                    "summary",
                    "bandwidth",
                    "route_recovery_in_progress",
                    "route_unhealthy",
                    "access_timeout_recovery",
                    "incorrect_configuration",
                    "partition_assigned",
                ]),
            ),
        ],
    )
}

/// In the usual form.
fn uuid(bytes: [u8; 16]) -> String {
    let mut text = format!("{:032x}", u128::from_be_bytes(bytes));
    for at in [20, 16, 12, 8] {
        text.insert(at, '-');
    }
    text
}
