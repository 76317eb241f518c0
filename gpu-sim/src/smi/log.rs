//! `-q -x`: everything of each GPU, as XML. Elements and their order are those of driver 580.159.04 (`nvsmi_device_v13.dtd`).
//! What NVML does not answer, because the board lacks it or it is not simulated, is `N/A`.

mod gpu;
mod mig;
mod readings;

use std::fmt::Write as _;

use nvml_wrapper::{Device, Nvml};

use super::{date::Date, failure::Failure, table::cuda_version, xml::value};

/// The whole document.
pub(super) fn write(nvml: &Nvml, gpus: &[Device<'_>]) -> Result<String, Failure> {
    let mut text = String::from(
        "<?xml version=\"1.0\" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v13.dtd\">\n<nvidia_smi_log>\n",
    );
    for element in [
        value("timestamp", Some(Date::now().long())),
        value("driver_version", Some(nvml.sys_driver_version()?)),
        value("cuda_version", cuda_version(nvml)),
        value("attached_gpus", Some(nvml.device_count()?)),
    ] {
        element.write(1, &mut text);
    }
    for gpu in gpus {
        let _ = writeln!(text, "\t<gpu id=\"{}\">", gpu.pci_info()?.bus_id);
        for element in gpu::describe(gpu) {
            element.write(2, &mut text);
        }
        text += "\t</gpu>\n\n";
    }
    Ok(text + "</nvidia_smi_log>\n")
}
