//! The log of NVML calls: one line per call, appended by whoever makes it.

use std::{
    fs,
    io::{self, Write as _},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::State;
use crate::{Error, Result};

/// A call of an NVML function by some process: see [`Node::log_calls`](crate::Node::log_calls).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// When it began, to the microsecond.
    pub time: SystemTime,
    /// The process, by the number that it has for itself.
    pub pid: u32,
    /// Such as `nvmlDeviceGetName`.
    pub function: String,
    /// UUID of the GPU or MIG device whose handle was handed over; of an instance's handle the GPU's. None where there was
    /// no handle or it stood for nothing.
    pub device: Option<String>,
    /// What the function returned: 0 for success.
    pub code: u32,
    /// How long it took, to the microsecond.
    pub duration: Duration,
}

impl Call {
    /// Microseconds since 1970, process, function, device or `-`, code, microseconds that it took.
    pub(crate) fn line(&self) -> String {
        let since = self.time.duration_since(UNIX_EPOCH).unwrap_or_default();
        format!(
            "{} {} {} {} {} {}\n",
            since.as_micros(),
            self.pid,
            self.function,
            self.device.as_deref().unwrap_or("-"),
            self.code,
            self.duration.as_micros()
        )
    }

    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let &[time, pid, function, device, code, duration] = words.as_slice() else {
            return None;
        };
        Some(Self {
            time: UNIX_EPOCH.checked_add(Duration::from_micros(time.parse().ok()?))?,
            pid: pid.parse().ok()?,
            function: function.starts_with("nvml").then(|| function.to_owned())?,
            device: (device != "-").then(|| device.to_owned()),
            code: code.parse().ok()?,
            duration: Duration::from_micros(duration.parse().ok()?),
        })
    }
}

impl State {
    /// The log, to append to. Each line is one write, so lines of several processes do not mix.
    pub(crate) fn open_calls(&self) -> Result<fs::File> {
        self.open(&self.calls_path(), fs::File::options().append(true).create(true))
    }

    /// The calls in the order in which they ended; none without a log. A line that is not whole is passed over: its writer
    /// found no room for it.
    pub(crate) fn calls(&self) -> Result<Vec<Call>> {
        let path = self.calls_path();
        match fs::read(&path) {
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes)
                .split_inclusive('\n')
                .filter_map(|line| Call::parse(line.strip_suffix('\n')?))
                .collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(Error::read(path)(error)),
        }
    }

    /// Empties the log; processes that have it open go on.
    pub(crate) fn clear_calls(&self) -> Result<()> {
        let path = self.calls_path();
        self.open_calls()?.set_len(0).map_err(Error::write(path))
    }

    fn calls_path(&self) -> std::path::PathBuf {
        self.folder.join("calls")
    }
}

/// Appends a call. A log that cannot be written does not change what the call answers.
pub(crate) fn append(mut log: &fs::File, call: &Call) {
    let _ = log.write_all(call.line().as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(device: Option<&str>) -> Call {
        Call {
            time: UNIX_EPOCH + Duration::from_micros(1_790_000_000_123_456),
            pid: 7,
            function: "nvmlDeviceGetName".to_owned(),
            device: device.map(str::to_owned),
            code: 15,
            duration: Duration::from_micros(12),
        }
    }

    #[test]
    fn a_line_is_read_back() {
        for device in [None, Some("GPU-1")] {
            let line = call(device).line();
            assert_eq!(Call::parse(line.trim_end()), Some(call(device)));
        }
        assert_eq!(call(None).line(), "1790000000123456 7 nvmlDeviceGetName - 15 12\n");
    }

    #[test]
    fn what_is_no_line_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("state")).unwrap();
        let state = State::of(folder.path());
        assert_eq!(state.calls().unwrap(), []);
        let whole = call(None).line();
        let text = format!(
            "1790 7 nvmlDev{whole}{whole}\n1 2 3 4 5 6\n\u{fffd}\n{whole}{}",
            whole.trim_end()
        );
        fs::write(state.calls_path(), text).unwrap();
        // The torn line takes the next one with it.
        assert_eq!(state.calls().unwrap(), [call(None), call(None)]);
        state.clear_calls().unwrap();
        assert_eq!(state.calls().unwrap(), []);
    }
}
