//! Every recorded run of GPU Feature Discovery v0.20.0 gives the same labels here, line by line.

use std::collections::BTreeMap;

use gpu_core::{Engines, Inventory, Mig, MigAttributes, MigDevice, MigProfile};
use gpu_labels::{Node, Options, PciFunction, Vgpu, labels};
use gpu_sharing::config::{Config, ConfigFile, Flags, Reading};
use serde::Deserialize;
use serde_json::json;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    profiles: BTreeMap<String, Profile>,
    mig_tables: BTreeMap<String, Vec<[u64; 11]>>,
    cases: Vec<Case>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Profile {
    name: String,
    compute_capability: String,
    memory_bytes: u64,
    driver: String,
    cuda: String,
    gpus: usize,
    mig_table: Option<String>,
    clique: Option<Clique>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Clique {
    cluster_uuid: String,
    clique_id: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    profile: String,
    gpus: Option<usize>,
    mig_strategy: Option<String>,
    #[serde(default = "yes")]
    machine: bool,
    /// The first GPUs, which are in MIG mode.
    #[serde(default)]
    mig_gpus: usize,
    /// GPU instances by profile, and the profiles of their compute instances.
    #[serde(default)]
    mig: Vec<(u64, Vec<u64>)>,
    config: Option<String>,
    error: Option<String>,
    r#as: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, Option<String>>,
}

fn yes() -> bool {
    true
}

impl Record {
    fn expected(&self, case: &Case) -> BTreeMap<String, String> {
        let base = case.r#as.as_ref().map(|base| {
            let base = self.cases.iter().find(|case| case.name == *base);
            self.expected(base.expect("the record has the case that another builds on"))
        });
        let mut labels = base.unwrap_or_default();
        for (key, value) in &case.labels {
            match value {
                Some(value) => labels.insert(key.clone(), value.clone()),
                None => labels.remove(key),
            };
        }
        labels
    }

    fn inventory(&self, case: &Case) -> Inventory {
        let profile = &self.profiles[&case.profile];
        let gpu = |index: usize| {
            json!({
                "index": index,
                "minor": index,
                "uuid": format!("GPU-00000000-0000-0000-0000-{index:012}"),
                "name": profile.name,
                "compute_capability": profile.compute_capability,
                "memory": { "total_bytes": profile.memory_bytes },
                "pci": { "address": format!("0000:{:02x}:00.0", 0x10 + index), "id": "10de:0000" },
                "mig": profile.mig_table.as_ref().map(|_| json!({ "enabled": false, "pending_enabled": false })),
                "fabric": profile.clique.as_ref().map(|clique| json!({
                    "state": "completed", "cluster_uuid": clique.cluster_uuid, "clique": clique.clique_id,
                })),
            })
        };
        let mut inventory: Inventory = serde_json::from_value(json!({
            "driver": { "version": profile.driver, "cuda_version": profile.cuda },
            "gpus": (0..case.gpus.unwrap_or(profile.gpus)).map(gpu).collect::<Vec<_>>(),
        }))
        .expect("the record makes an inventory");
        for gpu in inventory.gpus.iter_mut().take(case.mig_gpus) {
            let devices = self.mig_devices(case, gpu.index);
            gpu.mig = Some(Mig {
                enabled: true,
                pending_enabled: true,
                devices,
                ..Mig::default()
            });
        }
        inventory
    }

    fn mig_devices(&self, case: &Case, gpu: u32) -> Vec<MigDevice> {
        let profile = &self.profiles[&case.profile];
        let table = profile.mig_table.as_ref().map(|name| &self.mig_tables[name]);
        let instances = case
            .mig
            .iter()
            .flat_map(|(gi, cis)| cis.iter().map(move |ci| (*gi, *ci)));
        let device = |(index, (gi, ci)): (usize, (u64, u64))| {
            let table = table.expect("a board with MIG has a table");
            let row = table.iter().find(|row| (row[0], row[1]) == (gi, ci));
            let row = row
                .expect("the table has the profile")
                .map(|n| u32::try_from(n).expect("a small number"));
            let [
                constant,
                _,
                gpu_slices,
                compute_slices,
                memory,
                multiprocessors,
                engines @ ..,
            ] = row;
            let [copy_engines, decoders, encoders, jpeg_engines, ofa_engines] = engines;
            let (memory_mib, total) = (u64::from(memory), profile.memory_bytes);
            MigDevice {
                index: u32::try_from(index).expect("a small number"),
                uuid: format!("MIG-00000000-0000-0000-{gpu:04}-{index:012}")
                    .parse()
                    .expect("a UUID"),
                gpu_instance: 1,
                compute_instance: 0,
                profile: Some(MigProfile::derive(
                    constant,
                    gpu_slices,
                    compute_slices,
                    memory_mib,
                    total,
                )),
                name: None,
                attributes: Some(MigAttributes {
                    memory_mib,
                    multiprocessors,
                    gpu_slices,
                    compute_slices,
                    engines: Engines {
                        copy_engines,
                        decoders,
                        encoders,
                        jpeg_engines,
                        ofa_engines,
                    },
                }),
            }
        };
        instances.enumerate().map(device).collect()
    }
}

fn node(case: &Case, inventory: &Inventory) -> Node {
    let function = |gpu: &gpu_core::Gpu| PciFunction {
        address: gpu.pci.address,
        id: gpu.pci.id,
        class: PciFunction::CLASS_3D,
        vgpu: Vgpu::No,
    };
    Node {
        machine: case.machine.then(|| "Simulated DGX\n".to_owned()),
        pci: Some(inventory.gpus.iter().map(function).collect()),
        timestamp: None,
    }
}

#[test]
fn recorded_runs_give_the_same_labels() {
    let text = include_str!("../upstream/gpu-feature-discovery-0.20.0/cases.yaml");
    let record: Record = serde_saphyr::from_str(text).expect("the record is readable");
    assert_eq!(record.cases.len(), 52, "cases of the record");
    for case in &record.cases {
        let name = &case.name;
        let inventory = record.inventory(case);
        // One case has a key that nothing reads, which the vendor's program passes over.
        let (file, _) = ConfigFile::parse(case.config.as_deref().unwrap_or_default(), Reading::Lenient)
            .expect("the vendor's program reads it");
        let strategy = case.mig_strategy.as_deref();
        let flags = Flags {
            mig_strategy: strategy.map(|strategy| strategy.parse().expect("a strategy")),
            ..Flags::default()
        };
        let (config, _) = Config::resolve(file, flags, gpu_sharing::config::Options::default());
        let made = labels(&inventory, &node(case, &inventory), &config, Options::default());
        match (made, &case.error) {
            (Ok((labels, _)), None) => {
                let made: BTreeMap<_, _> = labels.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
                assert_eq!(made, record.expected(case), "{name}");
            }
            (Err(error), Some(expected)) => assert!(error.to_string().starts_with(expected), "{name}: {error}"),
            (made, expected) => panic!("{name}: {made:?}, expected {expected:?}"),
        }
    }
}
