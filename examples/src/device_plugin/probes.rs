//! What is answered at `--listen`.

use gpu_plugin::{Ailment, ResourceStatus, Status};
use tokio::sync::watch;

use crate::{
    health,
    metrics::{self, Kind, Metric},
    names,
};

/// `/healthz` is well as long as the program runs; `/readyz` while the kubelet has all that there is to offer, as the newest
/// configuration wants it.
pub(super) fn probes(status: watch::Receiver<Status>) -> impl Fn(&str) -> Option<health::Answer> {
    move |path| match path {
        "/healthz" => Some(Ok("ok".to_owned())),
        "/readyz" => Some(ready(&status.borrow()).map(|()| "ok".to_owned())),
        health::METRICS => Some(Ok(metrics::text(metrics_of(&status.borrow())))),
        _ => None,
    }
}

fn ready(status: &Status) -> Result<(), String> {
    status.ready()?;
    match &status.refused {
        Some(reason) => Err(format!("the configuration in force stays: {reason}")),
        None => Ok(()),
    }
}

fn metrics_of(status: &Status) -> Vec<Metric> {
    let resources = &status.resources;
    let health = |resource: &ResourceStatus| {
        let count = |health: &str, count: usize| {
            let labels = vec![("resource", resource.name.to_string()), ("health", health.to_owned())];
            (labels, count as u64)
        };
        let unhealthy = resource.devices.saturating_sub(resource.healthy);
        [count("healthy", resource.healthy), count("unhealthy", unhealthy)]
    };
    let registered = |resource: &ResourceStatus| {
        let labels = vec![("resource", resource.name.to_string())];
        (labels, u64::from(resource.registered))
    };
    let ailing = |ailment: &Ailment| {
        let part = &ailment.part;
        let mut labels = vec![("gpu", part.gpu.to_string()), ("health", ailment.health.to_string())];
        let instances = [
            ("gpu_instance", part.gpu_instance),
            ("compute_instance", part.compute_instance),
        ];
        labels.extend(
            instances
                .into_iter()
                .filter_map(|(name, id)| Some((name, id?.to_string()))),
        );
        (labels, 1)
    };
    vec![
        Metric {
            name: names::metrics::PLUGIN_DEVICES,
            help: "Devices that the kubelet is told, replicas counted",
            kind: Kind::Gauge,
            samples: resources.iter().flat_map(health).collect(),
        },
        Metric {
            name: names::metrics::PLUGIN_REGISTERED,
            help: "Whether the kubelet has registered a resource and listens",
            kind: Kind::Gauge,
            samples: resources.iter().map(registered).collect(),
        },
        Metric {
            name: names::metrics::PLUGIN_AILING,
            help: "GPUs, or instances of them, that are suspect or unhealthy",
            kind: Kind::Gauge,
            samples: status.ailments.iter().map(ailing).collect(),
        },
        Metric {
            name: names::metrics::PLUGIN_CONFIG_REFUSED,
            help: "Whether the newest configuration is refused and the one before it in force",
            kind: Kind::Gauge,
            samples: vec![(Vec::new(), u64::from(status.refused.is_some()))],
        },
        Metric {
            name: names::metrics::PLUGIN_PROBLEMS,
            help: "How many things are amiss on the node; the log names them",
            kind: Kind::Gauge,
            samples: vec![(Vec::new(), status.problems.len() as u64)],
        },
    ]
}
