//! `--query-gpu`: values of each GPU, comma separated.

use nvml_wrapper::{
    Device, Nvml,
    enum_wrappers::device::{Clock, ComputeMode, EccCounter, MemoryError, PerformanceState, TemperatureSensor},
    error::NvmlError,
};

use super::{
    date::Date,
    failure::{Failure, text},
};

/// A value as text, without its unit.
type Value = Result<String, NvmlError>;

/// A field that can be asked for.
#[derive(Debug)]
struct Field {
    /// The name in the header, then other names for the same.
    names: &'static [&'static str],
    unit: &'static str,
    value: fn(&Nvml, &Device<'_>) -> Value,
}

#[derive(Debug)]
pub(super) struct Query {
    fields: Vec<&'static Field>,
    header: bool,
    units: bool,
}

impl Query {
    pub(super) fn parse(fields: &str, format: &str) -> Result<Self, Failure> {
        let field = |name: &str| {
            let found = FIELDS.iter().find(|field| field.names.contains(&name));
            found.ok_or_else(|| Failure::usage(format!("Field \"{name}\" is not a valid field to query.\n")))
        };
        let mut query = Self {
            fields: fields
                .split(',')
                .map(|name| field(name.trim()))
                .collect::<Result<_, _>>()?,
            header: true,
            units: true,
        };
        let mut csv = false;
        for modifier in format.split(',').map(str::trim) {
            match modifier {
                "csv" => csv = true,
                "noheader" => query.header = false,
                "nounits" => query.units = false,
                _ => return Err(Failure::usage("Format modifier is not recognized.")),
            }
        }
        if csv {
            Ok(query)
        } else {
            Err(Failure::usage("ERROR: The only format is csv: --format=csv."))
        }
    }

    pub(super) fn answer(&self, nvml: &Nvml, gpus: &[Device<'_>]) -> String {
        let header = self.header.then(|| self.line(Field::title));
        let lines = gpus.iter().map(|gpu| self.line(|field| self.value(field, nvml, gpu)));
        header.into_iter().chain(lines).collect()
    }

    fn line(&self, cell: impl Fn(&Field) -> String) -> String {
        self.fields
            .iter()
            .map(|field| cell(field))
            .collect::<Vec<_>>()
            .join(", ")
            + "\n"
    }

    fn value(&self, field: &Field, nvml: &Nvml, gpu: &Device<'_>) -> String {
        match (field.value)(nvml, gpu) {
            Ok(value) if self.units && !field.unit.is_empty() => format!("{value} {}", field.unit),
            Ok(value) => value,
            Err(NvmlError::NotSupported) => "[N/A]".to_owned(),
            Err(error) => format!("[{}]", text(&error)),
        }
    }
}

impl Field {
    fn title(&self) -> String {
        let name = self.names.first().copied().unwrap_or_default();
        if self.unit.is_empty() {
            name.to_owned()
        } else {
            format!("{name} [{}]", self.unit)
        }
    }
}

const fn field(names: &'static [&'static str], unit: &'static str, value: fn(&Nvml, &Device<'_>) -> Value) -> Field {
    Field { names, unit, value }
}

const FIELDS: &[Field] = &[
    field(&["timestamp"], "", |_, _| Ok(Date::now().short())),
    field(&["driver_version"], "", |nvml, _| nvml.sys_driver_version()),
    field(&["count"], "", |nvml, _| nvml.device_count().map(string)),
    field(&["name", "gpu_name"], "", |_, gpu| gpu.name()),
    field(&["serial", "gpu_serial"], "", |_, gpu| gpu.serial()),
    field(&["uuid", "gpu_uuid"], "", |_, gpu| gpu.uuid()),
    field(&["pci.bus_id", "gpu_bus_id"], "", |_, gpu| {
        gpu.pci_info().map(|pci| pci.bus_id)
    }),
    field(&["pci.domain"], "", |_, gpu| {
        gpu.pci_info().map(|pci| format!("0x{:04X}", pci.domain))
    }),
    field(&["pci.bus"], "", |_, gpu| {
        gpu.pci_info().map(|pci| format!("0x{:02X}", pci.bus))
    }),
    field(&["pci.device"], "", |_, gpu| {
        gpu.pci_info().map(|pci| format!("0x{:02X}", pci.device))
    }),
    field(&["pci.device_id"], "", |_, gpu| {
        gpu.pci_info().map(|pci| format!("0x{:08X}", pci.pci_device_id))
    }),
    field(&["pci.sub_device_id"], "", |_, gpu| {
        gpu.pci_info()?
            .pci_sub_system_id
            .map(|id| format!("0x{id:08X}"))
            .ok_or(NvmlError::NotSupported)
    }),
    field(&["pcie.link.gen.current"], "", |_, gpu| {
        gpu.current_pcie_link_gen().map(string)
    }),
    field(&["pcie.link.gen.max"], "", |_, gpu| gpu.max_pcie_link_gen().map(string)),
    field(&["pcie.link.width.current"], "", |_, gpu| {
        gpu.current_pcie_link_width().map(string)
    }),
    field(&["pcie.link.width.max"], "", |_, gpu| {
        gpu.max_pcie_link_width().map(string)
    }),
    field(&["index"], "", |_, gpu| gpu.index().map(string)),
    field(&["display_active"], "", |_, gpu| {
        gpu.is_display_active().map(enabled).map(string)
    }),
    field(&["persistence_mode"], "", |_, gpu| {
        gpu.is_in_persistent_mode().map(enabled).map(string)
    }),
    field(&["vbios_version"], "", |_, gpu| gpu.vbios_version()),
    field(&["inforom.img", "inforom.image"], "", |_, gpu| {
        gpu.info_rom_image_version()
    }),
    field(&["fan.speed"], "%", |_, gpu| gpu.fan_speed(0).map(string)),
    field(&["pstate"], "", |_, gpu| gpu.performance_state().map(performance_state)),
    field(&["memory.total"], "MiB", |_, gpu| {
        gpu.memory_info().map(|memory| mebibytes(memory.total).to_string())
    }),
    field(&["memory.reserved"], "MiB", |_, gpu| {
        gpu.memory_info().map(|memory| mebibytes(memory.reserved).to_string())
    }),
    field(&["memory.used"], "MiB", |_, gpu| {
        gpu.memory_info().map(|memory| mebibytes(memory.used).to_string())
    }),
    field(&["memory.free"], "MiB", |_, gpu| {
        gpu.memory_info().map(|memory| mebibytes(memory.free).to_string())
    }),
    field(&["compute_mode"], "", |_, gpu| {
        gpu.compute_mode().map(compute_mode).map(string)
    }),
    field(&["compute_cap"], "", |_, gpu| {
        gpu.cuda_compute_capability()
            .map(|capability| format!("{}.{}", capability.major, capability.minor))
    }),
    field(&["utilization.gpu"], "%", |_, gpu| {
        gpu.utilization_rates().map(|rates| rates.gpu.to_string())
    }),
    field(&["utilization.memory"], "%", |_, gpu| {
        gpu.utilization_rates().map(|rates| rates.memory.to_string())
    }),
    field(&["ecc.mode.current"], "", |_, gpu| {
        gpu.is_ecc_enabled()
            .map(|ecc| enabled(ecc.currently_enabled).to_owned())
    }),
    field(&["ecc.mode.pending"], "", |_, gpu| {
        gpu.is_ecc_enabled().map(|ecc| enabled(ecc.pending_enabled).to_owned())
    }),
    field(&["ecc.errors.corrected.volatile.total"], "", |_, gpu| {
        ecc(gpu, MemoryError::Corrected, EccCounter::Volatile)
    }),
    field(&["ecc.errors.corrected.aggregate.total"], "", |_, gpu| {
        ecc(gpu, MemoryError::Corrected, EccCounter::Aggregate)
    }),
    field(&["ecc.errors.uncorrected.volatile.total"], "", |_, gpu| {
        ecc(gpu, MemoryError::Uncorrected, EccCounter::Volatile)
    }),
    field(&["ecc.errors.uncorrected.aggregate.total"], "", |_, gpu| {
        ecc(gpu, MemoryError::Uncorrected, EccCounter::Aggregate)
    }),
    field(&["temperature.gpu"], "", |_, gpu| {
        gpu.temperature(TemperatureSensor::Gpu).map(string)
    }),
    field(&["power.draw"], "W", |_, gpu| gpu.power_usage().map(watts)),
    field(&["power.limit"], "W", |_, gpu| gpu.power_management_limit().map(watts)),
    field(&["enforced.power.limit"], "W", |_, gpu| {
        gpu.enforced_power_limit().map(watts)
    }),
    field(&["power.default_limit"], "W", |_, gpu| {
        gpu.power_management_limit_default().map(watts)
    }),
    field(&["power.min_limit"], "W", |_, gpu| {
        gpu.power_management_limit_constraints()
            .map(|limits| watts(limits.min_limit))
    }),
    field(&["power.max_limit"], "W", |_, gpu| {
        gpu.power_management_limit_constraints()
            .map(|limits| watts(limits.max_limit))
    }),
    field(&["clocks.current.graphics", "clocks.gr"], "MHz", |_, gpu| {
        gpu.clock_info(Clock::Graphics).map(string)
    }),
    field(&["clocks.current.sm", "clocks.sm"], "MHz", |_, gpu| {
        gpu.clock_info(Clock::SM).map(string)
    }),
    field(&["clocks.current.memory", "clocks.mem"], "MHz", |_, gpu| {
        gpu.clock_info(Clock::Memory).map(string)
    }),
    field(&["clocks.current.video", "clocks.video"], "MHz", |_, gpu| {
        gpu.clock_info(Clock::Video).map(string)
    }),
    field(&["clocks.max.graphics", "clocks.max.gr"], "MHz", |_, gpu| {
        gpu.max_clock_info(Clock::Graphics).map(string)
    }),
    field(&["clocks.max.sm"], "MHz", |_, gpu| {
        gpu.max_clock_info(Clock::SM).map(string)
    }),
    field(&["clocks.max.memory", "clocks.max.mem"], "MHz", |_, gpu| {
        gpu.max_clock_info(Clock::Memory).map(string)
    }),
    field(&["mig.mode.current"], "", |_, gpu| {
        gpu.mig_mode().map(|mode| mig_mode(mode.current).to_owned())
    }),
    field(&["mig.mode.pending"], "", |_, gpu| {
        gpu.mig_mode().map(|mode| mig_mode(mode.pending).to_owned())
    }),
];

#[expect(clippy::needless_pass_by_value, reason = "a function to map with")]
fn string(value: impl ToString) -> String {
    value.to_string()
}

pub(super) fn watts(milliwatts: u32) -> String {
    format!("{:.2}", f64::from(milliwatts) / 1000.0)
}

fn ecc(gpu: &Device<'_>, error: MemoryError, counter: EccCounter) -> Value {
    gpu.total_ecc_errors(error, counter).map(string)
}

/// Sizes are rounded up (measured: 644939776 bytes reserved are shown as 616 MiB).
pub(super) fn mebibytes(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

pub(super) fn enabled(enabled: bool) -> &'static str {
    if enabled { "Enabled" } else { "Disabled" }
}

pub(super) fn mig_mode(mode: u32) -> &'static str {
    enabled(mode != 0)
}

pub(super) fn compute_mode(mode: ComputeMode) -> &'static str {
    match mode {
        ComputeMode::Default => "Default",
        ComputeMode::ExclusiveThread => "Exclusive_Thread",
        ComputeMode::Prohibited => "Prohibited",
        ComputeMode::ExclusiveProcess => "Exclusive_Process",
    }
}

pub(super) fn performance_state(state: PerformanceState) -> String {
    match state {
        PerformanceState::Unknown => "Unknown".to_owned(),
        known => format!("P{}", known.as_c()),
    }
}
