//! The way to the API server.

use std::{path::Path, time::Duration};

use anyhow::Context;
use kube::{
    Config,
    config::{KubeConfigOptions, Kubeconfig},
};

/// Where the API server is: as this file says, or as a pod knows without. An empty path is none.
///
/// A server that does not answer for half a minute is given up for that time; a watch gets something at least as often.
pub(crate) async fn config(kubeconfig: Option<&Path>) -> anyhow::Result<Config> {
    let context = "cannot find out where the API server is";
    let mut config = match kubeconfig.filter(|path| !path.as_os_str().is_empty()) {
        Some(path) => {
            let kubeconfig = Kubeconfig::read_from(path).context(context)?;
            let options = KubeConfigOptions::default();
            Config::from_custom_kubeconfig(kubeconfig, &options)
                .await
                .context(context)?
        }
        None => Config::incluster().context(context)?,
    };
    config.read_timeout = Some(Duration::from_secs(30));
    Ok(config)
}
