use gpu_plugin::{NodeConfig, Status};
use tokio::sync::watch;

use super::arguments::DevicePlugin;
use crate::{last_read::LastRead, program, settings::Settings};

/// The configuration file, which is taken over or refused.
pub(super) struct ConfigFile(LastRead);

impl ConfigFile {
    pub(super) fn new(settings: Settings) -> Self {
        Self::say(&settings);
        Self(LastRead::new(settings.text))
    }

    fn say(settings: &Settings) {
        for warning in &settings.warnings {
            tracing::warn!("{warning}");
        }
        tracing::debug!("running with {:?}", settings.config);
    }

    /// Whether the file is another than it was read last.
    pub(super) fn changed(&mut self, plugin: &DevicePlugin) -> bool {
        self.0.look(plugin.config_text())
    }

    /// Takes the file over, or keeps what is in force and says why.
    pub(super) fn read(
        &mut self,
        plugin: &DevicePlugin,
        configs: &watch::Sender<NodeConfig>,
        status: &watch::Sender<Status>,
    ) {
        self.0.look(plugin.config_text());
        let read = || {
            let settings = plugin.settings()?;
            let config = plugin.node_config(&settings.config)?;
            anyhow::Ok((settings, config))
        };
        match read() {
            Ok((settings, config)) => {
                Self::say(&settings);
                // Before it is handed on, since it may be refused there; one that was refused is tried again.
                let mut refused = false;
                status.send_if_modified(|status| {
                    refused = status.refused.take().is_some();
                    refused
                });
                configs.send_if_modified(|known| {
                    let changed = *known != config;
                    *known = config;
                    changed || refused
                });
            }
            Err(error) => {
                let reason = program::chain(&error);
                tracing::error!("the configuration in force stays: {reason}");
                status.send_modify(|status| status.refused = Some(reason));
            }
        }
    }
}
