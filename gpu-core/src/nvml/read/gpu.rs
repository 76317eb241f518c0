use std::path::Path;

use nvml_wrapper::{
    Device, Nvml,
    enum_wrappers::device::{EccCounter, MemoryError},
    error::NvmlError,
};

use super::super::{Parts, guard::Progress, raw};
use crate::{
    AddressingMode, Architecture, Brand, ComputeCapability, ComputeMode, Ecc, FileError, Gpu, GpuUuid, Memory, Pci,
    PciAddress, PciId, PcieLink, PowerLimit, Problem, ProblemKind, RecoveryAction, RemappedRows, Result, VgpuHost,
    VirtualizationMode, sysfs,
};

/// What [`Parts::board`] stands for.
#[derive(Default)]
struct Board {
    module_id: Option<u32>,
    ecc: Option<Ecc>,
    power: Option<PowerLimit>,
    pcie_link: Option<PcieLink>,
    serial: Option<String>,
    part_number: Option<String>,
    vbios_version: Option<String>,
    vgpu_host: Option<VgpuHost>,
}

/// One GPU while it is being read: what is known of it so far, for the words of a problem.
pub(in crate::nvml) struct Reader<'a> {
    index: u32,
    uuid: Option<GpuUuid>,
    pci: Option<PciAddress>,
    progress: &'a Progress,
    pub(super) problems: Vec<Problem>,
}

impl<'a> Reader<'a> {
    pub(in crate::nvml) fn new(index: u32, progress: &'a Progress) -> Self {
        Self {
            index,
            uuid: None,
            pci: None,
            progress,
            problems: Vec::new(),
        }
    }

    pub(super) fn index(&self) -> u32 {
        self.index
    }

    /// The GPU, or why there is none.
    pub(super) fn gpu<'n>(
        &mut self,
        nvml: &'n Nvml,
        host_root: &Path,
        parts: Parts,
    ) -> Result<(Gpu, Device<'n>), Problem> {
        let device = self.needed("nvmlDeviceGetHandleByIndex_v2", || nvml.device_by_index(self.index))?;
        let pci = self.pci(&device)?;
        let uuid = self.uuid(&device)?;
        let memory = self.memory(&device)?;
        let folder = sysfs::device(host_root, pci.address);
        let board = if parts.board {
            self.board(&device, &folder)?
        } else {
            Board::default()
        };
        let mig = self.mig(
            &device,
            memory.map_or(0, |memory| memory.total_bytes),
            parts.idle_mig_profiles,
        )?;
        let nvlinks = if parts.topology {
            self.nvlinks(&device)?
        } else {
            Vec::new()
        };
        let gpu = Gpu {
            index: self.index,
            minor: self.needed("nvmlDeviceGetMinorNumber", || device.minor_number())?,
            uuid,
            name: self.needed("nvmlDeviceGetName", || raw::text::name(&device))?,
            brand: self.brand(&device)?,
            architecture: self.architecture(&device)?,
            compute_capability: self.compute_capability(&device)?,
            numa_node: self.in_file(sysfs::numa_node(&folder)),
            memory_numa_node: self.offered("nvmlDeviceGetNumaNodeId", || device.numa_node_id())?,
            pcie_root: self.in_file(sysfs::pcie_root(&folder)),
            addressing_mode: self
                .offered("nvmlDeviceGetAddressingMode", || raw::fabric::addressing_mode(&device))?
                .map(AddressingMode::from_nvml),
            virtualization: self.virtualization(&device)?,
            vgpu_host: board.vgpu_host,
            module_id: board.module_id,
            pci,
            fabric: self.fabric(&device)?,
            nvlinks,
            mig,
            memory,
            ecc: board.ecc,
            remapped_rows: self.remapped_rows(&device)?,
            page_retirement_pending: self.offered("nvmlDeviceGetRetiredPagesPendingStatus", || {
                raw::fabric::retirement_pending(&device)
            })?,
            recovery_action: self.recovery_action(&device)?,
            compute_mode: self.compute_mode(&device)?,
            persistence_mode: self.offered("nvmlDeviceGetPersistenceMode", || device.is_in_persistent_mode())?,
            power: board.power,
            pcie_link: board.pcie_link,
            serial: board.serial,
            board_part_number: board.part_number,
            vbios_version: board.vbios_version,
        };
        Ok((gpu, device))
    }

    fn board(&mut self, device: &Device<'_>, folder: &Path) -> Result<Board, Problem> {
        Ok(Board {
            module_id: self.offered("nvmlDeviceGetModuleId", || raw::fabric::module_id(device))?,
            ecc: self.ecc(device)?,
            power: self.power(device)?,
            pcie_link: self.pcie_link(device)?,
            serial: self.offered("nvmlDeviceGetSerial", || raw::text::serial(device))?,
            part_number: self.offered("nvmlDeviceGetBoardPartNumber", || raw::text::board_part_number(device))?,
            vbios_version: self.offered("nvmlDeviceGetVbiosVersion", || raw::text::vbios_version(device))?,
            vgpu_host: self.vgpu_host(folder),
        })
    }

    fn pci(&mut self, device: &Device<'_>) -> Result<Pci, Problem> {
        let call = "nvmlDeviceGetPciInfo_v3";
        let info = self.needed(call, || raw::text::pci_info(device))?;
        let address = info
            .address
            .parse::<PciAddress>()
            .map_err(|error| self.unreadable(call, error.to_string()))?;
        self.pci = Some(address);
        Ok(Pci {
            address,
            id: PciId::from_nvml(info.device),
            subsystem_id: Some(info.subsystem).filter(|number| *number != 0).map(PciId::from_nvml),
        })
    }

    pub(super) fn uuid(&mut self, device: &Device<'_>) -> Result<GpuUuid, Problem> {
        let call = "nvmlDeviceGetUUID";
        let answer = self.needed(call, || raw::text::uuid(device))?;
        let uuid = answer
            .parse::<GpuUuid>()
            .map_err(|error| self.unreadable(call, error.to_string()))?;
        self.uuid = Some(uuid.clone());
        Ok(uuid)
    }

    fn brand(&mut self, device: &Device<'_>) -> Result<Option<Brand>, Problem> {
        let number = || known_or_not(device.brand().map(|brand| brand.as_c()));
        Ok(self.offered("nvmlDeviceGetBrand", number)?.and_then(Brand::from_nvml))
    }

    fn architecture(&mut self, device: &Device<'_>) -> Result<Option<Architecture>, Problem> {
        const UNKNOWN: u32 = u32::MAX; // NVML_DEVICE_ARCH_UNKNOWN
        let number = || known_or_not(device.architecture().map(|architecture| architecture.as_c()));
        let number = self.offered("nvmlDeviceGetArchitecture", number)?;
        Ok(number.filter(|number| *number != UNKNOWN).map(Architecture::from_nvml))
    }

    fn compute_mode(&mut self, device: &Device<'_>) -> Result<Option<ComputeMode>, Problem> {
        let number = || known_or_not(device.compute_mode().map(|mode| mode.as_c()));
        Ok(self
            .offered("nvmlDeviceGetComputeMode", number)?
            .map(ComputeMode::from_nvml))
    }

    fn virtualization(&mut self, device: &Device<'_>) -> Result<Option<VirtualizationMode>, Problem> {
        let number = || known_or_not(device.virtualization_mode().map(|mode| mode.as_c()));
        Ok(self
            .offered("nvmlDeviceGetVirtualizationMode", number)?
            .map(VirtualizationMode::from_nvml))
    }

    fn compute_capability(&mut self, device: &Device<'_>) -> Result<Option<ComputeCapability>, Problem> {
        let answer = self.offered("nvmlDeviceGetCudaComputeCapability", || {
            device.cuda_compute_capability()
        })?;
        Ok(answer.and_then(|capability| {
            let major = u32::try_from(capability.major).ok()?;
            let minor = u32::try_from(capability.minor).ok()?;
            Some(ComputeCapability { major, minor })
        }))
    }

    fn memory(&mut self, device: &Device<'_>) -> Result<Option<Memory>, Problem> {
        // A driver before 510 lacks the second version of the call, and one may refuse its struct.
        let call = "nvmlDeviceGetMemoryInfo_v2";
        let memory = match self.progress.call(call, || device.memory_info()) {
            Err(NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound | NvmlError::InvalidArg) => self
                .offered("nvmlDeviceGetMemoryInfo", || raw::memory_total(device))?
                .map(|total_bytes| Memory {
                    total_bytes,
                    reserved_bytes: None,
                }),
            answer => self.answered(call, answer)?.map(|memory| Memory {
                total_bytes: memory.total,
                reserved_bytes: Some(memory.reserved),
            }),
        };
        Ok(memory.filter(|memory| memory.total_bytes > 0))
    }

    fn ecc(&mut self, device: &Device<'_>) -> Result<Option<Ecc>, Problem> {
        let Some(state) = self.offered("nvmlDeviceGetEccMode", || device.is_ecc_enabled())? else {
            return Ok(None);
        };
        let mut uncorrected = |counter| {
            let errors = || device.total_ecc_errors(MemoryError::Uncorrected, counter);
            self.offered("nvmlDeviceGetTotalEccErrors", errors)
        };
        Ok(Some(Ecc {
            enabled: state.currently_enabled,
            pending_enabled: state.pending_enabled,
            uncorrected_since_load: uncorrected(EccCounter::Volatile)?,
            uncorrected_in_life: uncorrected(EccCounter::Aggregate)?,
        }))
    }

    fn remapped_rows(&mut self, device: &Device<'_>) -> Result<Option<RemappedRows>, Problem> {
        let rows = self.offered("nvmlDeviceGetRemappedRows", || raw::fabric::remapped_rows(device))?;
        Ok(rows.map(|rows| RemappedRows {
            correctable: rows.correctable,
            uncorrectable: rows.uncorrectable,
            pending: rows.pending,
            failed: rows.failed,
        }))
    }

    fn recovery_action(&mut self, device: &Device<'_>) -> Result<Option<RecoveryAction>, Problem> {
        const RECOVERY_ACTION: u32 = 230; // NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
        let asked = || raw::field::field_values(device, [(RECOVERY_ACTION, 0)].into_iter());
        let answers = self.offered("nvmlDeviceGetFieldValues", asked)?;
        let answer = answers.into_iter().flatten().next();
        let number = answer.filter(|answer| answer.code == 0).map(|answer| answer.unsigned());
        Ok(number.and_then(RecoveryAction::from_nvml))
    }

    fn power(&mut self, device: &Device<'_>) -> Result<Option<PowerLimit>, Problem> {
        let limit = self.offered("nvmlDeviceGetEnforcedPowerLimit", || device.enforced_power_limit())?;
        let Some(limit_mw) = limit else { return Ok(None) };
        let bounds = self.offered("nvmlDeviceGetPowerManagementLimitConstraints", || {
            device.power_management_limit_constraints()
        })?;
        let default_mw = self.offered("nvmlDeviceGetPowerManagementDefaultLimit", || {
            device.power_management_limit_default()
        })?;
        Ok(Some(PowerLimit {
            limit_mw,
            default_mw,
            min_mw: bounds.as_ref().map(|bounds| bounds.min_limit),
            max_mw: bounds.as_ref().map(|bounds| bounds.max_limit),
        }))
    }

    fn pcie_link(&mut self, device: &Device<'_>) -> Result<Option<PcieLink>, Problem> {
        let generation = self.offered("nvmlDeviceGetMaxPcieLinkGeneration", || device.max_pcie_link_gen())?;
        let width = self.offered("nvmlDeviceGetMaxPcieLinkWidth", || device.max_pcie_link_width())?;
        Ok(generation.zip(width).map(|(max_generation, max_width)| PcieLink {
            max_generation,
            max_width,
        }))
    }

    /// A value out of a file, which costs itself alone.
    fn in_file<T>(&mut self, answer: Result<Option<T>, FileError>) -> Option<T> {
        answer.unwrap_or_else(|error| {
            self.incomplete(
                &format!("{} {}", error.action, error.path.display()),
                error.source.to_string(),
            );
            None
        })
    }

    fn vgpu_host(&mut self, folder: &Path) -> Option<VgpuHost> {
        sysfs::vgpu_host(folder).unwrap_or_else(|error| {
            let path = folder.join("config");
            self.incomplete(&format!("read {}", path.display()), error.to_string());
            None
        })
    }

    /// A value without which there is no GPU to speak of.
    pub(in crate::nvml) fn needed<T>(
        &self,
        call: &'static str,
        make: impl FnOnce() -> Result<T, NvmlError>,
    ) -> Result<T, Problem> {
        self.progress
            .call(call, make)
            .map_err(|error| self.refused(call, &error))
    }

    /// A value that the GPU may not offer; see [`answered`](Self::answered).
    pub(super) fn offered<T>(
        &mut self,
        call: &'static str,
        make: impl FnOnce() -> Result<T, NvmlError>,
    ) -> Result<Option<T>, Problem> {
        let answer = self.progress.call(call, make);
        self.answered(call, answer)
    }

    /// An answer that may say that the GPU does not offer the value.
    ///
    /// NVML says so in several ways, "invalid argument" among them. Any other error is listed and costs this value alone,
    /// unless the GPU is gone.
    fn answered<T>(&mut self, call: &str, answer: Result<T, NvmlError>) -> Result<Option<T>, Problem> {
        const ARGUMENT_VERSION_MISMATCH: u32 = 25; // these two the wrapper has no names for
        const DEPRECATED: u32 = 26;
        match answer {
            Ok(value) => Ok(Some(value)),
            Err(
                NvmlError::NotSupported
                | NvmlError::InvalidArg
                | NvmlError::NotFound
                | NvmlError::NoData
                | NvmlError::FunctionNotFound
                | NvmlError::FailedToLoadSymbol(_)
                | NvmlError::UnexpectedVariant(ARGUMENT_VERSION_MISMATCH | DEPRECATED),
            ) => Ok(None),
            Err(error @ (NvmlError::GpuLost | NvmlError::ResetRequired)) => Err(self.refused(call, &error)),
            Err(error) => {
                self.incomplete(call, error.to_string());
                Ok(None)
            }
        }
    }

    fn refused(&self, call: &str, error: &NvmlError) -> Problem {
        let kind = match error {
            NvmlError::GpuLost | NvmlError::ResetRequired => ProblemKind::Lost,
            NvmlError::NoPermission => ProblemKind::NoPermission,
            _ => ProblemKind::Unreadable,
        };
        self.problem(kind, call, error.to_string())
    }

    fn unreadable(&self, call: &str, message: String) -> Problem {
        self.problem(ProblemKind::Unreadable, call, message)
    }

    /// Lists a value that is missing.
    pub(super) fn incomplete(&mut self, call: &str, message: String) {
        let problem = self.problem(ProblemKind::Incomplete, call, message);
        self.problems.push(problem);
    }

    fn problem(&self, kind: ProblemKind, call: &str, message: String) -> Problem {
        Problem {
            index: self.index,
            uuid: self.uuid.clone(),
            pci: self.pci,
            kind,
            call: call.to_owned(),
            message,
        }
    }
}

/// The number behind an enumeration, also where the wrapper does not know its name.
fn known_or_not(answer: Result<u32, NvmlError>) -> Result<u32, NvmlError> {
    match answer {
        Err(NvmlError::UnexpectedVariant(number)) => Ok(number),
        answer => answer,
    }
}
