//! Where the distributions of Kubernetes keep their containerd, and what of it one may edit.

use std::{fmt, str::FromStr};

use crate::containerd::Placement;

/// A distribution's containerd: paths are those on the host.
///
/// # Example
/// ```
/// use gpu_runtime_config::Preset;
/// let k3s: Preset = "k3s".parse()?;
/// assert_eq!(k3s.socket(), "/run/k3s/containerd/containerd.sock");
/// # Ok::<(), gpu_runtime_config::UnknownPreset>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Preset {
    /// kubeadm, and any node with containerd's own paths.
    Kubeadm,
    /// k3s. Releases before February 2026 import no drop-ins; they look for the runtime in `/usr/local/nvidia/toolkit` at start.
    K3s,
    /// RKE2, which is k3s inside.
    Rke2,
    /// k0s, while the first line of its file says `# k0s_managed=true`.
    K0s,
    /// `MicroK8s`: the template that it renders its file from.
    MicroK8s,
    /// EKS on Amazon Linux 2023.
    Eks,
    /// GKE on Container-Optimized OS.
    Gke,
    /// AKS, whose file has version 2 though its containerd is 2.3.
    Aks,
    /// Talos Linux.
    Talos,
    /// Bottlerocket.
    Bottlerocket,
}

/// How long an edit lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lifetime {
    /// Until it is reverted.
    Lasting,
    /// Until the node boots: something renders the file anew, so the edit must be made again.
    UntilBoot,
    /// It cannot be made: the file is part of a read-only image.
    ReadOnly,
}

/// How containerd is made to read its files again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reload {
    /// By restarting the first of these systemd units that is active.
    Units(&'static [&'static str]),
    /// Not at all: the distribution watches the files.
    Watched,
}

impl Preset {
    /// All presets.
    pub const ALL: [Preset; 10] = [
        Preset::Kubeadm,
        Preset::K3s,
        Preset::Rke2,
        Preset::K0s,
        Preset::MicroK8s,
        Preset::Eks,
        Preset::Gke,
        Preset::Aks,
        Preset::Talos,
        Preset::Bottlerocket,
    ];

    /// The name by which it is asked for.
    pub fn name(self) -> &'static str {
        match self {
            Preset::Kubeadm => "kubeadm",
            Preset::K3s => "k3s",
            Preset::Rke2 => "rke2",
            Preset::K0s => "k0s",
            Preset::MicroK8s => "microk8s",
            Preset::Eks => "eks",
            Preset::Gke => "gke",
            Preset::Aks => "aks",
            Preset::Talos => "talos",
            Preset::Bottlerocket => "bottlerocket",
        }
    }

    /// The main file.
    pub fn main(self) -> &'static str {
        match self {
            Preset::K3s => "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
            Preset::Rke2 => "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
            Preset::K0s => "/etc/k0s/containerd.toml",
            Preset::MicroK8s => "/var/snap/microk8s/current/args/containerd-template.toml",
            Preset::Talos => "/etc/cri/containerd.toml",
            _ => "/etc/containerd/config.toml",
        }
    }

    /// The drop-in for files of a version ([`containerd::drop_in_version`](crate::containerd::drop_in_version)): k3s and RKE2
    /// have a folder for those of version 2 and one for those of version 3 and later.
    pub fn drop_in(self, file_version: u32) -> &'static str {
        let is_old = file_version < 3;
        match self {
            Preset::K3s if is_old => "/var/lib/rancher/k3s/agent/etc/containerd/config.toml.d/99-nvidia.toml",
            Preset::K3s => "/var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.d/99-nvidia.toml",
            Preset::Rke2 if is_old => "/var/lib/rancher/rke2/agent/etc/containerd/config.toml.d/99-nvidia.toml",
            Preset::Rke2 => "/var/lib/rancher/rke2/agent/etc/containerd/config-v3.toml.d/99-nvidia.toml",
            Preset::K0s => "/etc/k0s/containerd.d/99-nvidia.toml",
            Preset::Talos => "/etc/cri/conf.d/99-nvidia.toml",
            _ => "/etc/containerd/conf.d/99-nvidia.toml",
        }
    }

    /// Which files may be edited.
    pub fn placement(self) -> Placement {
        match self {
            Preset::K3s | Preset::Rke2 | Preset::K0s | Preset::Talos | Preset::Bottlerocket => Placement::DropInOnly,
            Preset::MicroK8s => Placement::InPlace,
            Preset::Kubeadm | Preset::Eks | Preset::Gke | Preset::Aks => Placement::Auto,
        }
    }

    /// Whether the main file must be there before anything is set: what is made out of nothing would lack all that the
    /// distribution's own has.
    pub fn needs_main(self) -> bool {
        self == Preset::MicroK8s
    }

    /// How long an edit lasts.
    pub fn lifetime(self) -> Lifetime {
        match self {
            Preset::Eks | Preset::Gke => Lifetime::UntilBoot,
            Preset::Talos | Preset::Bottlerocket => Lifetime::ReadOnly,
            _ => Lifetime::Lasting,
        }
    }

    /// The CRI socket.
    pub fn socket(self) -> &'static str {
        match self {
            Preset::K3s | Preset::Rke2 => "/run/k3s/containerd/containerd.sock",
            Preset::K0s => "/run/k0s/containerd.sock",
            Preset::MicroK8s => "/var/snap/microk8s/common/run/containerd.sock",
            _ => "/run/containerd/containerd.sock",
        }
    }

    /// How containerd is made to read its files again.
    pub fn reload(self) -> Reload {
        match self {
            Preset::K3s => Reload::Units(&["k3s.service", "k3s-agent.service"]),
            Preset::Rke2 => Reload::Units(&["rke2-server.service", "rke2-agent.service"]),
            Preset::K0s => Reload::Watched,
            Preset::MicroK8s => Reload::Units(&["snap.microk8s.daemon-containerd.service"]),
            _ => Reload::Units(&["containerd.service"]),
        }
    }

    /// What a person must know about it, if anything.
    pub fn note(self) -> Option<&'static str> {
        match self {
            // What AKS has of its own, `containerd::drop_in_version` sees to.
            Preset::Kubeadm | Preset::Aks => None,
            Preset::K3s | Preset::Rke2 => Some("the main file is rendered at every start: only drop-ins last"),
            Preset::K0s => Some("from k0s 1.36 on, drop-ins must have version 3, which the main file then has too"),
            Preset::MicroK8s => Some("the template is edited; restarting containerd renders it"),
            Preset::Eks => Some("nodeadm renders the file at every boot"),
            Preset::Gke => Some("/etc is made anew at every boot"),
            Preset::Talos => Some("/etc is read-only: install the NVIDIA system extension, and let pods use CDI"),
            Preset::Bottlerocket => Some(
                "the file is rendered from the API's settings on a read-only image: use a variant with NVIDIA's toolkit",
            ),
        }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is not that of a preset.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no preset `{0}`, only {names}", names = Preset::ALL.map(Preset::name).join(", "))]
pub struct UnknownPreset(String);

impl FromStr for Preset {
    type Err = UnknownPreset;

    fn from_str(name: &str) -> Result<Preset, UnknownPreset> {
        let preset = Preset::ALL.into_iter().find(|preset| preset.name() == name);
        preset.ok_or_else(|| UnknownPreset(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for preset in Preset::ALL {
            assert_eq!(preset.to_string().parse(), Ok(preset));
        }
        assert_eq!(
            "x".parse::<Preset>().unwrap_err().to_string(),
            "there is no preset `x`, only kubeadm, k3s, rke2, k0s, microk8s, eks, gke, aks, talos, bottlerocket"
        );
    }

    #[test]
    fn what_cannot_be_edited_says_so() {
        for preset in Preset::ALL {
            assert!(
                preset.lifetime() == Lifetime::Lasting || preset.note().is_some(),
                "{preset}"
            );
        }
    }
}
