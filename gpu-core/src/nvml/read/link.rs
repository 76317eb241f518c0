use nvml_wrapper::{Device, error::NvmlError};

use super::{super::raw, gpu::Reader};
use crate::{
    CommonAncestor, Fabric, FabricState, GpuPair, NvLink, NvLinkRemote, P2pStatus, PciAddress, Problem, Result,
};

/// As many NVLinks as any GPU has, with room: the driver ends the list by refusing the next number.
const MOST_LINKS: u32 = 64;

impl Reader<'_> {
    pub(super) fn fabric(&mut self, device: &Device<'_>) -> Result<Option<Fabric>, Problem> {
        let info = self.offered("nvmlDeviceGetGpuFabricInfoV", || raw::fabric::fabric_info(device))?;
        Ok(info.and_then(|info| {
            let state = FabricState::from_nvml(info.state)?;
            let registered = state == FabricState::Completed && info.status == 0;
            Some(Fabric {
                state,
                error: Some(info.status).filter(|status| *status != 0),
                cluster_uuid: uuid(info.cluster_uuid),
                clique: Some(info.clique).filter(|_| registered),
                health_mask: info.health_mask,
            })
        }))
    }

    pub(super) fn nvlinks(&mut self, device: &Device<'_>) -> Result<Vec<NvLink>, Problem> {
        let mut links = Vec::new();
        for link in 0..MOST_LINKS {
            let active = self.offered("nvmlDeviceGetNvLinkState", || raw::fabric::nvlink_active(device, link))?;
            let Some(active) = active else { break };
            let kind = self.offered("nvmlDeviceGetNvLinkRemoteDeviceType", || {
                raw::fabric::nvlink_remote_kind(device, link)
            })?;
            let address = self.offered("nvmlDeviceGetNvLinkRemotePciInfo_v2", || {
                raw::fabric::nvlink_remote_address(device, link)
            })?;
            links.push(NvLink {
                link,
                active,
                remote: kind.and_then(NvLinkRemote::from_nvml),
                // Where the other end has no PCI address that the driver knows, it says nothing or something like `00`.
                remote_pci: address.and_then(|address| address.parse::<PciAddress>().ok()),
            });
        }
        Ok(links)
    }

    /// What lies between another GPU, of a lower index, and this one.
    pub(super) fn pair(&mut self, other: u32, first: &Device<'_>, second: &Device<'_>) -> GpuPair {
        const READ: u32 = 0; // NVML_P2P_CAPS_INDEX_READ, and so on
        const WRITE: u32 = 1;
        const NVLINK: u32 = 2;
        let gpus = [other, self.index()];
        let ancestor = self.related("nvmlDeviceGetTopologyCommonAncestor", || {
            raw::fabric::common_ancestor(first, second)
        });
        let mut p2p = |capability| {
            let status = || raw::fabric::p2p_status(first, second, capability);
            let status = self.related("nvmlDeviceGetP2PStatus", status);
            status.and_then(P2pStatus::from_nvml)
        };
        GpuPair {
            gpus,
            common_ancestor: ancestor.map(CommonAncestor::from_nvml),
            p2p_read: p2p(READ),
            p2p_write: p2p(WRITE),
            p2p_nvlink: p2p(NVLINK),
        }
    }

    /// A value of two GPUs. Where one is lost it may be either: the value is absent, and the next reading says which.
    fn related<T>(&mut self, call: &'static str, make: impl FnOnce() -> Result<T, NvmlError>) -> Option<T> {
        self.offered(call, make).unwrap_or_default()
    }
}

/// 8-4-4-4-12 hexadecimal digits; `None` for all zeros.
fn uuid(bytes: [u8; 16]) -> Option<String> {
    if bytes == [0; 16] {
        return None;
    }
    let hex = format!("{:032x}", u128::from_be_bytes(bytes));
    Some([&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_uuid_of_zeros_is_none() {
        assert_eq!(uuid([0; 16]), None);
        let bytes = [0x77, 0x04, 0x45, 0x5c, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
        assert_eq!(uuid(bytes).unwrap(), "7704455c-0102-0304-0506-0708090a0b0c");
    }
}
