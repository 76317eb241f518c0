//! From NVML's answers to an [`Inventory`].

use std::{fs, io, path::Path, sync::atomic::Ordering::Relaxed};

use nvml_wrapper::{Device, error::NvmlError};

use super::{Library, raw};
use crate::{
    Architecture, Brand, ComputeCapability, ComputeMode, CudaVersion, Driver, Ecc, Error, Gpu, GpuUuid, Inventory,
    Memory, Mig, Pci, PciAddress, PciId, PcieLink, PowerLimit, Problem, ProblemKind, Result,
};

impl Library {
    /// Reads all GPUs of the node.
    ///
    /// `host_root` is where the host's `/sys` lies, `/` outside a container.
    ///
    /// # Errors
    /// Only where the node as a whole does not answer. A GPU that is lost or cannot be read is in
    /// [`Inventory::problems`].
    pub fn inventory(&self, host_root: &Path) -> Result<Inventory> {
        let driver = self.driver()?;
        let count = self.nvml.device_count().map_err(|source| Error::Call {
            call: "nvmlDeviceGetCount_v2",
            source,
        })?;
        let mut gpus = Vec::new();
        let mut problems = Vec::new();
        for index in 0..count {
            let mut reader = Reader {
                index,
                uuid: None,
                pci: None,
                problems: &mut problems,
            };
            match reader.read(self, host_root) {
                Ok(gpu) => gpus.push(gpu),
                Err(problem) => problems.push(problem),
            }
        }
        Ok(Inventory {
            schema_version: Inventory::SCHEMA_VERSION,
            generation: self.generation.fetch_add(1, Relaxed) + 1,
            driver: Some(driver),
            gpus,
            problems,
        })
    }

    fn driver(&self) -> Result<Driver> {
        let call = "nvmlSystemGetDriverVersion";
        let answer = self
            .nvml
            .sys_driver_version()
            .map_err(|source| Error::Call { call, source })?;
        let version = answer
            .parse()
            .map_err(|source| Error::Answer { call, answer, source })?;
        Ok(Driver {
            version,
            nvml_version: self.nvml.sys_nvml_version().ok(),
            cuda_version: self.cuda_version(),
        })
    }

    /// The second version of the call asks libcuda, which a container with NVML alone does not have; the first then still
    /// knows what the driver was built with.
    fn cuda_version(&self) -> Option<CudaVersion> {
        let number = match self.nvml.sys_cuda_driver_version() {
            Ok(number) => u32::try_from(number).ok(),
            Err(_) => raw::cuda_driver_version(&self.nvml).ok(),
        };
        number.filter(|number| *number > 0).map(CudaVersion::from_nvml)
    }
}

/// One GPU while it is being read: what is known of it so far, for the words of a problem.
struct Reader<'a> {
    index: u32,
    uuid: Option<GpuUuid>,
    pci: Option<PciAddress>,
    problems: &'a mut Vec<Problem>,
}

impl Reader<'_> {
    /// The GPU, or why there is none.
    fn read(&mut self, library: &Library, host_root: &Path) -> Result<Gpu, Problem> {
        let device = self.needed(
            "nvmlDeviceGetHandleByIndex_v2",
            library.nvml.device_by_index(self.index),
        )?;
        let pci = self.pci(&device)?;
        let uuid = self.uuid(&device)?;
        Ok(Gpu {
            index: self.index,
            minor: self.needed("nvmlDeviceGetMinorNumber", device.minor_number())?,
            uuid,
            name: self.needed("nvmlDeviceGetName", device.name())?,
            brand: self.brand(&device)?,
            architecture: self.architecture(&device)?,
            compute_capability: self.compute_capability(&device)?,
            memory: self.memory(&device)?,
            numa_node: self.numa_node(host_root, pci.address),
            pci,
            mig: self.mig(&device)?,
            ecc: self.ecc(&device)?,
            compute_mode: self.compute_mode(&device)?,
            persistence_mode: self.offered("nvmlDeviceGetPersistenceMode", device.is_in_persistent_mode())?,
            power: self.power(&device)?,
            pcie_link: self.pcie_link(&device)?,
            serial: self.offered("nvmlDeviceGetSerial", device.serial())?,
            board_part_number: self.offered("nvmlDeviceGetBoardPartNumber", device.board_part_number())?,
            vbios_version: self.offered("nvmlDeviceGetVbiosVersion", device.vbios_version())?,
        })
    }

    fn pci(&mut self, device: &Device<'_>) -> Result<Pci, Problem> {
        let call = "nvmlDeviceGetPciInfo_v3";
        let info = self.needed(call, device.pci_info())?;
        let address = info
            .bus_id
            .parse::<PciAddress>()
            .map_err(|error| self.unreadable(call, error.to_string()))?;
        self.pci = Some(address);
        Ok(Pci {
            address,
            id: PciId::from_nvml(info.pci_device_id),
            subsystem_id: info
                .pci_sub_system_id
                .filter(|number| *number != 0)
                .map(PciId::from_nvml),
        })
    }

    fn uuid(&mut self, device: &Device<'_>) -> Result<GpuUuid, Problem> {
        let call = "nvmlDeviceGetUUID";
        let answer = self.needed(call, device.uuid())?;
        let uuid = answer
            .parse::<GpuUuid>()
            .map_err(|error| self.unreadable(call, error.to_string()))?;
        self.uuid = Some(uuid.clone());
        Ok(uuid)
    }

    fn brand(&mut self, device: &Device<'_>) -> Result<Option<Brand>, Problem> {
        let number = known_or_not(device.brand().map(|brand| brand.as_c()));
        Ok(self.offered("nvmlDeviceGetBrand", number)?.and_then(Brand::from_nvml))
    }

    fn architecture(&mut self, device: &Device<'_>) -> Result<Option<Architecture>, Problem> {
        const UNKNOWN: u32 = u32::MAX; // NVML_DEVICE_ARCH_UNKNOWN
        let number = known_or_not(device.architecture().map(|architecture| architecture.as_c()));
        let number = self.offered("nvmlDeviceGetArchitecture", number)?;
        Ok(number.filter(|number| *number != UNKNOWN).map(Architecture::from_nvml))
    }

    fn compute_mode(&mut self, device: &Device<'_>) -> Result<Option<ComputeMode>, Problem> {
        let number = known_or_not(device.compute_mode().map(|mode| mode.as_c()));
        Ok(self
            .offered("nvmlDeviceGetComputeMode", number)?
            .map(ComputeMode::from_nvml))
    }

    fn compute_capability(&mut self, device: &Device<'_>) -> Result<Option<ComputeCapability>, Problem> {
        let answer = self.offered("nvmlDeviceGetCudaComputeCapability", device.cuda_compute_capability())?;
        Ok(answer.and_then(|capability| {
            let major = u32::try_from(capability.major).ok()?;
            let minor = u32::try_from(capability.minor).ok()?;
            Some(ComputeCapability { major, minor })
        }))
    }

    fn memory(&mut self, device: &Device<'_>) -> Result<Option<Memory>, Problem> {
        // A driver before 510 lacks the second version of the call, and one may refuse its struct.
        let memory = match device.memory_info() {
            Err(NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound | NvmlError::InvalidArg) => self
                .offered("nvmlDeviceGetMemoryInfo", raw::memory_total(device))?
                .map(|total_bytes| Memory {
                    total_bytes,
                    reserved_bytes: None,
                }),
            answer => self
                .offered("nvmlDeviceGetMemoryInfo_v2", answer)?
                .map(|memory| Memory {
                    total_bytes: memory.total,
                    reserved_bytes: Some(memory.reserved),
                }),
        };
        Ok(memory.filter(|memory| memory.total_bytes > 0))
    }

    fn mig(&mut self, device: &Device<'_>) -> Result<Option<Mig>, Problem> {
        const ENABLED: u32 = 1; // NVML_DEVICE_MIG_ENABLE
        let mode = self.offered("nvmlDeviceGetMigMode", device.mig_mode())?;
        Ok(mode.map(|mode| Mig {
            enabled: mode.current == ENABLED,
            pending_enabled: mode.pending == ENABLED,
        }))
    }

    fn ecc(&mut self, device: &Device<'_>) -> Result<Option<Ecc>, Problem> {
        let state = self.offered("nvmlDeviceGetEccMode", device.is_ecc_enabled())?;
        Ok(state.map(|state| Ecc {
            enabled: state.currently_enabled,
            pending_enabled: state.pending_enabled,
        }))
    }

    fn power(&mut self, device: &Device<'_>) -> Result<Option<PowerLimit>, Problem> {
        let Some(limit_mw) = self.offered("nvmlDeviceGetEnforcedPowerLimit", device.enforced_power_limit())? else {
            return Ok(None);
        };
        let bounds = device.power_management_limit_constraints();
        let bounds = self.offered("nvmlDeviceGetPowerManagementLimitConstraints", bounds)?;
        let default = device.power_management_limit_default();
        Ok(Some(PowerLimit {
            limit_mw,
            default_mw: self.offered("nvmlDeviceGetPowerManagementDefaultLimit", default)?,
            min_mw: bounds.as_ref().map(|bounds| bounds.min_limit),
            max_mw: bounds.as_ref().map(|bounds| bounds.max_limit),
        }))
    }

    fn pcie_link(&mut self, device: &Device<'_>) -> Result<Option<PcieLink>, Problem> {
        let generation = self.offered("nvmlDeviceGetMaxPcieLinkGeneration", device.max_pcie_link_gen())?;
        let width = self.offered("nvmlDeviceGetMaxPcieLinkWidth", device.max_pcie_link_width())?;
        Ok(generation.zip(width).map(|(max_generation, max_width)| PcieLink {
            max_generation,
            max_width,
        }))
    }

    fn numa_node(&mut self, host_root: &Path, address: PciAddress) -> Option<u32> {
        let path = host_root.join(format!("sys/bus/pci/devices/{address}/numa_node"));
        let answer = fs::read_to_string(&path);
        let message = match answer {
            Ok(text) => match text.trim().parse::<i64>() {
                Ok(node) => return u32::try_from(node).ok(), // -1: the machine does not say
                Err(_) => format!("`{}` is not a number", text.trim()),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => error.to_string(),
        };
        let problem = self.problem(ProblemKind::Incomplete, &format!("read {}", path.display()), message);
        self.problems.push(problem);
        None
    }

    /// A value without which there is no GPU to speak of.
    fn needed<T>(&self, call: &str, answer: Result<T, NvmlError>) -> Result<T, Problem> {
        answer.map_err(|error| self.refused(call, &error))
    }

    /// A value that the GPU may not offer.
    ///
    /// NVML says so in several ways, "invalid argument" among them. Any other error is listed and costs this value alone,
    /// unless the GPU is gone.
    fn offered<T>(&mut self, call: &str, answer: Result<T, NvmlError>) -> Result<Option<T>, Problem> {
        match answer {
            Ok(value) => Ok(Some(value)),
            Err(
                NvmlError::NotSupported
                | NvmlError::InvalidArg
                | NvmlError::NotFound
                | NvmlError::NoData
                | NvmlError::FunctionNotFound
                | NvmlError::FailedToLoadSymbol(_),
            ) => Ok(None),
            Err(error @ (NvmlError::GpuLost | NvmlError::ResetRequired)) => Err(self.refused(call, &error)),
            Err(error) => {
                let problem = self.problem(ProblemKind::Incomplete, call, error.to_string());
                self.problems.push(problem);
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
