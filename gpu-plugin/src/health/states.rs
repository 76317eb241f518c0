use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use gpu_core::{
    GpuUuid, Problem, ProblemKind,
    nvml::{HealthEvent, HealthEventKind},
};

use super::{Finding, HealthPolicy, XidClass};
use crate::{Instance, OfferedDevice};

/// How long a GPU may be silent before it is unhealthy, after a call about it was given up: some take ten seconds under load.
const PATIENCE: Duration = Duration::from_secs(25);

/// How a GPU is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Health {
    /// It may be handed out.
    Healthy,
    /// It may be handed out, and is looked at soon: something happened that does not say enough.
    Suspect,
    /// It may not be handed out.
    Unhealthy,
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Healthy => "healthy",
            Self::Suspect => "suspect",
            Self::Unhealthy => "unhealthy",
        })
    }
}

/// What something happened to: a GPU, or a part of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Part {
    /// The GPU.
    pub gpu: GpuUuid,
    /// The GPU instance, where it is one's alone.
    pub gpu_instance: Option<u32>,
    /// The compute instance, where it is one's alone.
    pub compute_instance: Option<u32>,
}

impl Part {
    fn whole(gpu: &GpuUuid) -> Self {
        Self {
            gpu: gpu.clone(),
            gpu_instance: None,
            compute_instance: None,
        }
    }

    /// Whether what happens to this part happens to the device.
    fn touches(&self, device: &OfferedDevice) -> bool {
        let within = |Instance { gpu, compute }: Instance| {
            self.gpu_instance.is_none_or(|own| own == gpu) && self.compute_instance.is_none_or(|own| own == compute)
        };
        // A GPU that is offered whole suffers from all that happens to it.
        device.gpu.as_ref() == Some(&self.gpu) && device.instance.is_none_or(within)
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.gpu.fmt(f)?;
        if let Some(instance) = self.gpu_instance {
            write!(f, ", GPU instance {instance}")?;
        }
        if let Some(instance) = self.compute_instance {
            write!(f, ", compute instance {instance}")?;
        }
        Ok(())
    }
}

/// That a part of the node is no longer as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthChange {
    /// Which.
    pub part: Part,
    /// How it was.
    pub from: Health,
    /// How it is.
    pub to: Health,
    /// Why, in words.
    pub reason: String,
}

impl fmt::Display for HealthChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} is {} (it was {}): {}",
            self.part, self.to, self.from, self.reason
        )
    }
}

/// What ails a part of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Ailment {
    health: Health,
    /// Since when it may have been sound: what happened last, or the last look that did not find it so.
    since: Duration,
    /// It must be away, or be reset, before it can be well.
    must_leave: bool,
    /// It was seen to wait for a reset: once it waits no more, it was reset.
    wants_reset: bool,
    next_look: Duration,
}

/// The health of a node's GPUs: a state machine over events and looks, with times that the caller tells.
///
/// Times count from any one moment. A part that is not spoken of is healthy; one that is not healthy is looked at in intervals
/// and becomes healthy again when it has been sound for [`HealthPolicy::quiet`]; after a fatal Xid only if it was away or was reset
/// meanwhile. A reset is told by a GPU that waited for one and waits no more. After an Xid the GPU is looked at soon; where it is
/// an application's, it stays what it is unless something is found.
#[derive(Debug, Clone, Default)]
pub struct HealthStates {
    policy: HealthPolicy,
    ailments: BTreeMap<Part, Ailment>,
    /// GPUs that are to be looked at soon, and when.
    doubts: BTreeMap<GpuUuid, Duration>,
    /// When a GPU was looked at last.
    looked: BTreeMap<GpuUuid, Duration>,
}

impl HealthStates {
    /// All are healthy.
    pub fn new(policy: HealthPolicy) -> Self {
        Self {
            policy,
            ..Self::default()
        }
    }

    /// Judges by another policy from here on; what has happened stays as it was judged.
    pub fn set_policy(&mut self, policy: HealthPolicy) {
        self.policy = policy;
    }

    /// The policy.
    pub fn policy(&self) -> &HealthPolicy {
        &self.policy
    }

    /// Whether a device may be handed out.
    pub fn is_healthy(&self, device: &OfferedDevice) -> bool {
        let unhealthy =
            |(part, ailment): (&Part, &Ailment)| ailment.health == Health::Unhealthy && part.touches(device);
        !self.ailments.iter().any(unhealthy)
    }

    /// The parts that are not healthy.
    pub fn ailing(&self) -> impl Iterator<Item = (&Part, Health)> {
        self.ailments.iter().map(|(part, ailment)| (part, ailment.health))
    }

    /// The driver reports something.
    pub fn event(&mut self, now: Duration, event: &HealthEvent) -> Option<HealthChange> {
        let part = Part {
            gpu: event.gpu.clone(),
            gpu_instance: event.gpu_instance,
            compute_instance: event.compute_instance,
        };
        match event.kind {
            HealthEventKind::Xid(xid) => match self.policy.class(xid) {
                XidClass::Ignore => None,
                XidClass::Application => {
                    self.doubt(now, &event.gpu);
                    None
                }
                class => {
                    // The driver may tell at once what is to be done, and whoever does it may be quick.
                    self.doubt(now, &event.gpu);
                    let fatal = class == XidClass::Fatal;
                    self.worsen(now, part, Health::Unhealthy, fatal, &format!("Xid {xid}"))
                }
            },
            // Harm that is not contained comes with an Xid; what is left shows at a look.
            HealthEventKind::DoubleBitEcc if self.policy.examines() => {
                let reason = "a memory error could not be corrected";
                self.worsen(now, part, Health::Suspect, false, reason)
            }
            _ => None,
        }
    }

    /// A GPU can no longer be read. One that does not answer, or not as it should, gets a second chance.
    pub fn lost(&mut self, now: Duration, gpu: &GpuUuid, problem: &Problem) -> Option<HealthChange> {
        let health = match problem.kind {
            ProblemKind::Lost => Health::Unhealthy,
            _ => Health::Suspect,
        };
        let change = self.worsen(now, Part::whole(gpu), health, false, &problem.to_string());
        if problem.kind != ProblemKind::Hung {
            self.left(gpu);
        }
        change
    }

    /// A GPU's events cannot be waited for. An old GPU that has none is well; one that fails when it is asked is not; what of one that
    /// hangs is for [`lost`](Self::lost).
    pub fn not_watched(&mut self, now: Duration, problem: &Problem) -> Option<HealthChange> {
        let says_nothing = [ProblemKind::Incomplete, ProblemKind::Hung].contains(&problem.kind);
        let gpu = problem.uuid.as_ref().filter(|_| !says_nothing)?;
        let reason = format!("its events cannot be watched: {problem}");
        self.worsen(now, Part::whole(gpu), Health::Unhealthy, true, &reason)
    }

    /// A GPU was looked at, whether it was ailing or not.
    pub fn looked(&mut self, now: Duration, gpu: &GpuUuid, finding: &Finding) -> Vec<HealthChange> {
        let ill = |part: &Part| part.gpu == *gpu;
        self.doubts.remove(gpu);
        self.looked.insert(gpu.clone(), now);
        let mut changes = Vec::new();
        match finding {
            Finding::Broken(_) if !self.policy.examines() => {}
            Finding::WantsReset(reason) => {
                if self.policy.examines() {
                    changes.extend(self.worsen(now, Part::whole(gpu), Health::Unhealthy, false, reason));
                }
                let ailing = self.ailments.iter_mut().filter(|(part, _)| ill(part));
                ailing.for_each(|(_, ailment)| ailment.wants_reset = true);
            }
            // Whether a healthy one is lost, or only late, is told by `lost`.
            Finding::Away(_) | Finding::Silent(_) if !self.ailments.keys().any(ill) => {}
            Finding::Silent(_) if self.is_given_time(now, gpu) => {}
            Finding::Silent(reason) | Finding::Broken(reason) => {
                changes.extend(self.worsen(now, Part::whole(gpu), Health::Unhealthy, false, reason));
            }
            Finding::Away(reason) => {
                changes.extend(self.worsen(now, Part::whole(gpu), Health::Unhealthy, false, reason));
                self.left(gpu);
            }
            Finding::Sound => {
                let quiet = self.policy.quiet;
                for (_, ailment) in self.ailments.iter_mut().filter(|(part, _)| ill(part)) {
                    ailment.must_leave &= !std::mem::take(&mut ailment.wants_reset);
                }
                let well = |ailment: &Ailment| {
                    let sound_for = now.saturating_sub(ailment.since);
                    ailment.health == Health::Suspect || (!ailment.must_leave && sound_for >= quiet)
                };
                let healed = self.ailments.extract_if(.., |part, ailment| ill(part) && well(ailment));
                changes.extend(healed.map(|(part, ailment)| HealthChange {
                    part,
                    from: ailment.health,
                    to: Health::Healthy,
                    reason: "it is sound".to_owned(),
                }));
            }
        }
        let interval = self.policy.probe_interval;
        for (_, ailment) in self.ailments.iter_mut().filter(|(part, _)| ill(part)) {
            ailment.next_look = now + interval;
        }
        changes
    }

    /// When a GPU is to be looked at next; `None` where there is no need.
    pub fn next_look(&self) -> Option<Duration> {
        let ailing = self.ailments.values().map(|ailment| ailment.next_look);
        ailing.chain(self.doubts.values().copied()).min()
    }

    /// The GPUs that are to be looked at: those that are not healthy, and those that may not be.
    pub fn patients(&self) -> BTreeSet<GpuUuid> {
        let ailing = self.ailments.keys().map(|part| &part.gpu);
        ailing.chain(self.doubts.keys()).cloned().collect()
    }

    /// The driver was loaded anew: every GPU has been away.
    pub fn driver_reloaded(&mut self) {
        for ailment in self.ailments.values_mut() {
            ailment.must_leave = false;
        }
    }

    /// Forgets all that has happened to these GPUs: they are healthy.
    pub fn forget(&mut self, which: impl Fn(&GpuUuid) -> bool) {
        self.ailments.retain(|part, _| !which(&part.gpu));
        self.doubts.retain(|gpu, _| !which(gpu));
    }

    /// Forgets GPUs that are there no more.
    pub fn retain(&mut self, is_there: impl Fn(&GpuUuid) -> bool) {
        self.ailments.retain(|part, _| is_there(&part.gpu));
        self.doubts.retain(|gpu, _| is_there(gpu));
        self.looked.retain(|gpu, _| is_there(gpu));
    }

    /// Whether a GPU may be silent for a while yet.
    fn is_given_time(&self, now: Duration, gpu: &GpuUuid) -> bool {
        let whole = self.ailments.get(&Part::whole(gpu));
        whole.is_some_and(|ailment| ailment.health == Health::Suspect && now.saturating_sub(ailment.since) < PATIENCE)
    }

    /// Has a GPU looked at soon, and no more often than ailing ones: an application may cause an Xid each moment.
    fn doubt(&mut self, now: Duration, gpu: &GpuUuid) {
        if self.policy.examines() {
            let last = self.looked.get(gpu);
            let soon = last.map_or(now, |last| now.max(*last + self.policy.probe_interval));
            self.doubts.entry(gpu.clone()).or_insert(soon);
        }
    }

    /// Keeps the worse of what was and what is; `None` where that is no news.
    fn worsen(
        &mut self,
        now: Duration,
        part: Part,
        health: Health,
        must_leave: bool,
        reason: &str,
    ) -> Option<HealthChange> {
        // One that is suspect is looked at at once.
        let next_look = match health {
            Health::Suspect => now,
            _ => now + self.policy.probe_interval,
        };
        let known = self.ailments.entry(part.clone()).or_insert(Ailment {
            health: Health::Healthy,
            since: now,
            must_leave: false,
            wants_reset: false,
            next_look,
        });
        let from = known.health;
        known.health = from.max(health);
        known.since = now;
        if must_leave {
            // A reset before now is none.
            (known.must_leave, known.wants_reset) = (true, false);
        }
        known.next_look = known.next_look.min(next_look);
        (known.health != from).then(|| HealthChange {
            part,
            from,
            to: known.health,
            reason: reason.to_owned(),
        })
    }

    /// It has been away, which is what some ailments need.
    fn left(&mut self, gpu: &GpuUuid) {
        for (_, ailment) in self.ailments.iter_mut().filter(|(part, _)| part.gpu == *gpu) {
            ailment.must_leave = false;
        }
    }
}

#[cfg(test)]
mod tests;
