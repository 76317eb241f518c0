use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Gpu, GpuUuid, Inventory, MigUuid, Problem};

/// What is different between two readings of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Change {
    /// The driver is another one, or its library is.
    Driver,
    /// A GPU is there that was not known.
    Added {
        /// Which.
        gpu: GpuUuid,
    },
    /// A GPU is no longer there, and nothing says why.
    Removed {
        /// Which.
        gpu: GpuUuid,
    },
    /// A GPU can no longer be read.
    Lost {
        /// Which.
        gpu: GpuUuid,
        /// Why.
        problem: Problem,
    },
    /// A GPU that could not be read can be again.
    Recovered {
        /// Which.
        gpu: GpuUuid,
    },
    /// A GPU's MIG mode, GPU instances or compute instances are other ones.
    MigLayout {
        /// Which GPU.
        gpu: GpuUuid,
        /// The MIG devices that were not there, by slot.
        appeared: Vec<MigUuid>,
        /// The MIG devices that are no longer there, by slot.
        vanished: Vec<MigUuid>,
    },
    /// Something else of a GPU is different: a mode, a limit, a count of errors.
    Updated {
        /// Which.
        gpu: GpuUuid,
    },
}

impl Change {
    /// The GPU that it is about; `None` where it is the node.
    pub fn gpu(&self) -> Option<&GpuUuid> {
        match self {
            Self::Driver => None,
            Self::Added { gpu }
            | Self::Removed { gpu }
            | Self::Lost { gpu, .. }
            | Self::Recovered { gpu }
            | Self::MigLayout { gpu, .. }
            | Self::Updated { gpu } => Some(gpu),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Driver => f.write_str("the driver has changed"),
            Self::Added { gpu } => write!(f, "{gpu} was added"),
            Self::Removed { gpu } => write!(f, "{gpu} was removed"),
            Self::Lost { gpu, problem } => write!(f, "{gpu} was lost: {problem}"),
            Self::Recovered { gpu } => write!(f, "{gpu} has recovered"),
            Self::MigLayout {
                gpu,
                appeared,
                vanished,
            } => {
                write!(f, "{gpu} has another MIG layout")?;
                for uuid in appeared {
                    write!(f, ", {uuid} appeared")?;
                }
                for uuid in vanished {
                    write!(f, ", {uuid} vanished")?;
                }
                Ok(())
            }
            Self::Updated { gpu } => write!(f, "{gpu} has changed"),
        }
    }
}

impl Inventory {
    /// What has become different from this reading to a later one.
    ///
    /// First what happened to the GPUs of this one, in its order, then the GPUs that only the later one has, in its order.
    /// Nothing is different between two readings of a node that nobody touches; [`generation`](Self::generation) does not
    /// count.
    pub fn diff(&self, later: &Self) -> Vec<Change> {
        let driver = (self.driver != later.driver).then_some(Change::Driver);
        let known = self.gpus.iter().flat_map(|gpu| match later.gpu(&gpu.uuid) {
            Some(now) => differences(gpu, now),
            None => vec![gone(gpu, &later.problems)],
        });
        let new = later.gpus.iter().filter(|gpu| self.gpu(&gpu.uuid).is_none());
        let new = new.map(|gpu| {
            let uuid = gpu.uuid.clone();
            if self.problems.iter().any(|problem| problem.hides(gpu)) {
                Change::Recovered { gpu: uuid }
            } else {
                Change::Added { gpu: uuid }
            }
        });
        driver.into_iter().chain(known).chain(new).collect()
    }
}

fn gone(gpu: &Gpu, problems: &[Problem]) -> Change {
    let uuid = gpu.uuid.clone();
    match problems.iter().find(|problem| problem.hides(gpu)) {
        Some(problem) => Change::Lost {
            gpu: uuid,
            problem: problem.clone(),
        },
        None => Change::Removed { gpu: uuid },
    }
}

fn differences(before: &Gpu, now: &Gpu) -> Vec<Change> {
    let mut changes = Vec::new();
    if !same_layout(before, now) {
        changes.push(Change::MigLayout {
            gpu: now.uuid.clone(),
            appeared: only_in(now, before),
            vanished: only_in(before, now),
        });
    }
    let alike = Gpu {
        mig: before.mig.clone(),
        ..now.clone()
    };
    if alike != *before {
        changes.push(Change::Updated { gpu: now.uuid.clone() });
    }
    changes
}

/// Not what the board offers: that follows from the board and the driver.
fn same_layout(before: &Gpu, now: &Gpu) -> bool {
    let layout = |gpu: &Gpu| {
        gpu.mig.clone().map(|mig| crate::Mig {
            profiles: Vec::new(),
            ..mig
        })
    };
    layout(before) == layout(now)
}

/// The MIG devices that `gpu` has and `other` has not.
fn only_in(gpu: &Gpu, other: &Gpu) -> Vec<MigUuid> {
    let devices = |gpu: &Gpu| gpu.mig.clone().unwrap_or_default().devices;
    let others = devices(other);
    let known = |uuid: &MigUuid| others.iter().any(|device| device.uuid == *uuid);
    let devices = devices(gpu).into_iter().map(|device| device.uuid);
    devices.filter(|uuid| !known(uuid)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn gpu(index: u32) -> Value {
        json!({
            "index": index, "minor": index, "uuid": format!("GPU-0000000{index}-0000-0000-0000-000000000000"), "name": "NVIDIA H200",
            "pci": { "address": format!("0000:{index}a:00.0"), "id": "10de:2335" },
        })
    }

    fn with(mut gpu: Value, key: &str, value: &Value) -> Value {
        gpu[key] = value.clone();
        gpu
    }

    fn mig(devices: &[(u32, &str)]) -> Value {
        let devices: Vec<_> = devices
            .iter()
            .map(|(slot, digit)| {
                json!({
                    "index": slot, "uuid": format!("MIG-0000000{digit}-0000-0000-0000-000000000000"),
                    "gpu_instance": slot + 7, "compute_instance": 0,
                })
            })
            .collect();
        json!({ "enabled": true, "pending_enabled": true, "devices": devices })
    }

    fn lost(index: u32) -> Value {
        json!({ "index": index, "kind": "lost", "call": "nvmlDeviceGetHandleByIndex_v2", "message": "GPU is lost" })
    }

    fn node(gpus: &[Value], problems: &[Value]) -> Inventory {
        serde_json::from_value(json!({ "gpus": gpus, "problems": problems })).unwrap()
    }

    #[track_caller]
    fn check(before: &Inventory, later: &Inventory, expected: &[&str]) {
        let changes = before.diff(later);
        assert_eq!(changes.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
        let text = serde_json::to_string(&changes).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Change>>(&text).unwrap(), changes);
    }

    #[test]
    fn two_equal_readings_have_no_difference() {
        let node = node(&[gpu(0), with(gpu(1), "mig", &mig(&[(0, "1")]))], &[lost(2)]);
        let later = Inventory {
            generation: 9,
            ..node.clone()
        };
        check(&node, &later, &[]);
    }

    #[test]
    fn a_gpu_that_goes_is_lost_where_a_problem_says_so_and_else_removed() {
        let both = node(&[gpu(0), gpu(1)], &[]);
        let zero = "GPU-00000000-0000-0000-0000-000000000000";
        let one = "GPU-00000001-0000-0000-0000-000000000000";
        check(&both, &node(&[gpu(0)], &[]), &[&format!("{one} was removed")]);
        let without = node(&[gpu(0)], &[lost(1)]);
        let message = "GPU 1 is lost: nvmlDeviceGetHandleByIndex_v2: GPU is lost";
        check(&both, &without, &[&format!("{one} was lost: {message}")]);
        check(&without, &both, &[&format!("{one} has recovered")]);
        // One that is lost already, and another that goes.
        check(
            &node(&[gpu(0)], &[lost(1)]),
            &node(&[], &[lost(1)]),
            &[&format!("{zero} was removed")],
        );
        check(
            &node(&[], &[]),
            &both,
            &[&format!("{zero} was added"), &format!("{one} was added")],
        );
    }

    #[test]
    fn a_value_that_is_missing_is_no_lost_gpu() {
        let incomplete = json!({ "index": 0, "kind": "incomplete", "call": "read numa_node", "message": "x" });
        let zero = "GPU-00000000-0000-0000-0000-000000000000";
        check(
            &node(&[gpu(0)], &[]),
            &node(&[gpu(0)], std::slice::from_ref(&incomplete)),
            &[],
        );
        check(
            &node(&[gpu(0)], &[]),
            &node(&[], &[incomplete]),
            &[&format!("{zero} was removed")],
        );
    }

    #[test]
    fn mig_devices_that_come_and_go_are_named() {
        let before = node(&[with(gpu(0), "mig", &mig(&[(0, "1"), (1, "2")]))], &[]);
        let later = node(&[with(gpu(0), "mig", &mig(&[(1, "2"), (2, "3")]))], &[]);
        let name = |digit| format!("MIG-0000000{digit}-0000-0000-0000-000000000000");
        let expected = format!(
            "GPU-00000000-0000-0000-0000-000000000000 has another MIG layout, {} appeared, {} vanished",
            name(3),
            name(1)
        );
        check(&before, &later, &[&expected]);
    }

    #[test]
    fn a_mode_alone_is_a_layout_and_a_limit_an_update() {
        let off = json!({ "enabled": false, "pending_enabled": false });
        let on = json!({ "enabled": true, "pending_enabled": true });
        let zero = "GPU-00000000-0000-0000-0000-000000000000";
        let expected = format!("{zero} has another MIG layout");
        check(
            &node(&[with(gpu(0), "mig", &off)], &[]),
            &node(&[with(gpu(0), "mig", &on)], &[]),
            &[&expected],
        );
        let limited = with(gpu(0), "persistence_mode", &json!(true));
        check(
            &node(&[gpu(0)], &[]),
            &node(&[limited], &[]),
            &[&format!("{zero} has changed")],
        );
    }
}
