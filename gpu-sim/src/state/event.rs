//! What is reported once to whoever waits for it.

/// An NVML event, for every event set that waits for its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) uuid: String,
    /// `nvmlEventType…`.
    pub(crate) kind: u64,
    pub(crate) data: u64,
    pub(crate) gpu_instance: u32,
    pub(crate) compute_instance: u32,
}

impl Event {
    /// `nvmlEventTypeSingleBitEccError`.
    pub(crate) const SINGLE_BIT: u64 = 1;
    /// `nvmlEventTypeDoubleBitEccError`.
    pub(crate) const DOUBLE_BIT: u64 = 2;
    /// `nvmlEventTypeXidCriticalError`.
    pub(crate) const XID: u64 = 8;
    /// `nvmlEventMigConfigChange`.
    pub(crate) const MIG_CHANGE: u64 = 256;

    /// Stands for "the whole GPU" where an instance is named.
    pub(crate) const NO_INSTANCE: u32 = u32::MAX;

    /// An event of a whole GPU.
    pub(crate) fn of_gpu(uuid: &str, kind: u64, data: u64) -> Self {
        Self {
            uuid: uuid.to_owned(),
            kind,
            data,
            gpu_instance: Self::NO_INSTANCE,
            compute_instance: Self::NO_INSTANCE,
        }
    }

    /// The line that stands for it in the file, with its end.
    pub(super) fn line(&self) -> String {
        let Self {
            uuid,
            kind,
            data,
            gpu_instance,
            compute_instance,
        } = self;
        format!("{uuid} {kind} {data} {gpu_instance} {compute_instance}\n")
    }

    pub(super) fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let event = Self {
            uuid: words.next()?.to_owned(),
            kind: words.next()?.parse().ok()?,
            data: words.next()?.parse().ok()?,
            gpu_instance: words.next()?.parse().ok()?,
            compute_instance: words.next()?.parse().ok()?,
        };
        words.next().is_none().then_some(event)
    }
}
