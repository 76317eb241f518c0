//! What the API server is asked and told, and which configuration file the node's label names.

#[cfg(feature = "node-events")]
use std::path::PathBuf;

#[cfg(feature = "node-events")]
use clap::Args;
use tokio::sync::watch;

use super::DevicePlugin;
use crate::device_plugin::Chosen;
#[cfg(feature = "node-events")]
use crate::names;
#[cfg(all(feature = "config-manager", feature = "node-events"))]
use crate::{
    config_manager::{self, Selection},
    names::config_manager::CONFIG_FILE_SRCDIR,
    program::BadUsage,
};

/// By which the configuration file is one of several.
#[cfg(all(feature = "config-manager", feature = "node-events"))]
#[derive(Debug, Clone, Args)]
pub(super) struct ChoiceArguments {
    /// The folder of several configuration files, of which a label of the node names one, in the place of `--config-file`; needs
    /// `--node-name` (an addition of this program)
    #[arg(long, env = CONFIG_FILE_SRCDIR, value_name = "PATH")]
    config_file_srcdir: Option<PathBuf>,

    #[command(flatten)]
    selection: Selection,
}

/// Where Events of the node are sent.
#[cfg(feature = "node-events")]
#[derive(Debug, Clone, Args)]
pub(in crate::device_plugin) struct ClusterArguments {
    /// The name of this node: with it, GPUs that fall ill and recover are told as Events of the node (an addition of this
    /// program)
    #[arg(long, env = names::NODE_NAME, value_name = "NAME")]
    pub(in crate::device_plugin) node_name: Option<String>,

    /// The file that says where the API server is; in a pod it is known without (an addition of this program)
    #[arg(long, env = names::KUBECONFIG, value_name = "PATH")]
    pub(in crate::device_plugin) kubeconfig: Option<PathBuf>,
}

impl DevicePlugin {
    /// Which of several configuration files a label of the node names, now and when that changes; `None` where there is one file or
    /// none. In a tokio runtime.
    #[cfg(all(feature = "config-manager", feature = "node-events"))]
    pub(in crate::device_plugin) async fn chosen_file(&self) -> anyhow::Result<Option<watch::Receiver<Chosen>>> {
        let Some(folder) = self.choice.config_file_srcdir.clone() else {
            return Ok(None);
        };
        let Some(node) = &self.cluster.node_name else {
            let needs = format_args!(
                "--config-file-srcdir ({CONFIG_FILE_SRCDIR}) needs the name of the node: --node-name ({})",
                names::NODE_NAME
            );
            anyhow::bail!(BadUsage::new(needs));
        };
        if self.file.is_given() {
            let both = format_args!(
                "--config-file-srcdir ({CONFIG_FILE_SRCDIR}) and --config-file ({}) are not meant together",
                names::CONFIG_FILE
            );
            anyhow::bail!(BadUsage::new(both));
        }
        let kubeconfig = self.cluster.kubeconfig.as_deref();
        let chosen = config_manager::follow(node, kubeconfig, self.choice.selection.clone(), folder).await?;
        Ok(Some(chosen))
    }

    #[cfg(not(all(feature = "config-manager", feature = "node-events")))]
    #[expect(clippy::unused_async, reason = "with the label it is")]
    pub(in crate::device_plugin) async fn chosen_file(&self) -> anyhow::Result<Option<watch::Receiver<Chosen>>> {
        Ok(None)
    }
}
