//! `/metrics`: values as Prometheus reads them.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _, text::encode},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};

/// What a program has to tell, at the moment of a scrape.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Metric {
    /// Its name, of `names`.
    pub(crate) name: &'static str,
    /// What it is, for people.
    pub(crate) help: &'static str,
    /// Whether it only ever grows; its name then gets `_total`.
    pub(crate) kind: Kind,
    /// The values, each with the labels that tell it from the others.
    pub(crate) samples: Vec<Sample>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Gauge,
    Counter,
}

/// A value, and the names and values of its labels.
pub(crate) type Sample = (Vec<(&'static str, String)>, u64);

/// The metrics as text, in the form of `OpenMetrics`, without the end of the last line.
pub(crate) fn text(metrics: Vec<Metric>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Metrics(metrics)));
    let mut text = String::new();
    // Writing to a string fails in no case.
    let _ = encode(&mut text, &registry);
    text.trim_end().to_owned()
}

#[derive(Debug)]
struct Metrics(Vec<Metric>);

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for metric in &self.0 {
            let kind = match metric.kind {
                Kind::Gauge => MetricType::Gauge,
                Kind::Counter => MetricType::Counter,
            };
            let mut encoder = encoder.encode_descriptor(metric.name, metric.help, None, kind)?;
            for (labels, value) in &metric.samples {
                let encoder = encoder.encode_family(labels)?;
                match metric.kind {
                    Kind::Gauge => ConstGauge::new(i64::try_from(*value).unwrap_or(i64::MAX)).encode(encoder)?,
                    Kind::Counter => ConstCounter::new(*value).encode(encoder)?,
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_told_with_their_labels() {
        let label = |value: &str| vec![("resource", value.to_owned())];
        let metrics = vec![
            Metric {
                name: "gpu_test_devices",
                help: "Devices",
                kind: Kind::Gauge,
                samples: vec![(label("nvidia.com/gpu"), 8), (label("nvidia.com/mig-1g.10gb"), 0)],
            },
            Metric {
                name: "gpu_test_starts",
                help: "Starts",
                kind: Kind::Counter,
                samples: vec![(Vec::new(), 3)],
            },
        ];
        let expected = "\
# HELP gpu_test_devices Devices
# TYPE gpu_test_devices gauge
gpu_test_devices{resource=\"nvidia.com/gpu\"} 8
gpu_test_devices{resource=\"nvidia.com/mig-1g.10gb\"} 0
# HELP gpu_test_starts Starts
# TYPE gpu_test_starts counter
gpu_test_starts_total{} 3
# EOF";
        assert_eq!(text(metrics), expected);
    }
}
