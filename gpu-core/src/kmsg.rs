//! Xids out of the kernel's log, for those that NVML does not deliver.
//!
//! NVML tells the Xids of GPUs that it has registered for events; the kernel driver logs all of them, also those of a GPU that
//! NVML cannot reach. Reading `/dev/kmsg` takes the rights of root or `CAP_SYSLOG`.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, Read as _},
    path::Path,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags, SeekFrom, open, seek},
};

use crate::{FileError, PciAddress};

/// An Xid as the kernel driver logs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedXid {
    /// The GPU.
    pub gpu: PciAddress,
    /// The GPU instance, where the driver names one (`GPU-I:07`).
    pub gpu_instance: Option<u32>,
    /// The number.
    pub code: u64,
    /// What follows it: the process and the reason.
    pub message: String,
}

impl LoggedXid {
    /// From one line of the kernel's log, with or without what `/dev/kmsg` puts in front of it.
    ///
    /// ```
    /// let line = "4,1234,567890,-;NVRM: Xid (PCI:0000:1a:00): 79, pid=42, GPU has fallen off the bus.";
    /// let xid = gpu_core::kmsg::LoggedXid::parse(line).unwrap();
    /// assert_eq!((xid.gpu.to_string(), xid.code), ("0000:1a:00.0".to_owned(), 79));
    /// assert_eq!(xid.message, "pid=42, GPU has fallen off the bus.");
    /// ```
    pub fn parse(line: &str) -> Option<Self> {
        let (_, rest) = line.split_once("NVRM: Xid (PCI:")?;
        let (address, rest) = rest.split_once("): ")?;
        let (address, instance) = match address.split_once(" GPU-I:") {
            Some((address, instance)) => (address, Some(instance.parse().ok()?)),
            None => (address, None),
        };
        // The driver leaves the function out.
        let gpu = address.parse().or_else(|_| format!("{address}.0").parse()).ok()?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (code, message) = rest.split_at(digits);
        Some(Self {
            gpu,
            gpu_instance: instance,
            code: code.parse().ok()?,
            message: message.trim_start_matches([',', ' ']).trim_end().to_owned(),
        })
    }
}

/// The Xids that the kernel logs from now on.
#[derive(Debug)]
pub struct KernelLog {
    file: File,
    /// What was read and not yet given out.
    found: VecDeque<LoggedXid>,
}

impl KernelLog {
    /// Opens `dev/kmsg` beneath `host_root` at its end: what was logged before is not given.
    ///
    /// # Errors
    /// Where there is none, or this process may not read it.
    pub fn open(host_root: &Path) -> Result<Self, FileError> {
        let path = host_root.join("dev/kmsg");
        let error = FileError::new("open", &path);
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = open(&path, flags, Mode::empty()).map_err(|errno| error(errno.into()))?;
        match seek(&file, SeekFrom::End(0)) {
            // A pipe, as in tests, has no end to go to.
            Ok(_) | Err(rustix::io::Errno::SPIPE) => {}
            Err(errno) => return Err(error(errno.into())),
        }
        Ok(Self {
            file: file.into(),
            found: VecDeque::new(),
        })
    }

    /// The next Xid; `None` if there was none for `limit`.
    ///
    /// Records that the kernel has overwritten before they were read are lost.
    ///
    /// # Errors
    /// Where the log can no longer be read.
    pub fn next_within(&mut self, limit: Duration) -> io::Result<Option<LoggedXid>> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(xid) = self.found.pop_front() {
                return Ok(Some(xid));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).map_err(|_| io::Error::other("the time limit is too long"))?;
            let mut waiting = [PollFd::new(&self.file, PollFlags::IN)];
            match poll(&mut waiting, Some(&timeout)) {
                Ok(0) => return Ok(None),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            self.read()?;
        }
    }

    /// Reads one record: each read of `/dev/kmsg` gives one.
    fn read(&mut self) -> io::Result<()> {
        const LONGEST_RECORD: usize = 8192; // a shorter buffer would be refused
        let mut record = [0; LONGEST_RECORD];
        match self.file.read(&mut record) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => {
                let text = String::from_utf8_lossy(record.get(..length).unwrap_or_default());
                self.found.extend(text.lines().filter_map(LoggedXid::parse));
                Ok(())
            }
            // Overwritten meanwhile; the next read goes on with what there is.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::OpenOptions, io::Write as _};

    use proptest::prelude::*;
    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;

    #[track_caller]
    fn check(line: &str, expected: Option<(&str, u64, &str)>) {
        let found = LoggedXid::parse(line);
        let address = found.as_ref().map(|xid| xid.gpu.to_string());
        let found = found.as_ref().map(|xid| (xid.code, xid.message.as_str()));
        let found = address
            .as_deref()
            .zip(found)
            .map(|(address, (code, message))| (address, code, message));
        assert_eq!(found, expected);
    }

    #[test]
    fn xids_are_found_in_the_drivers_lines_alone() {
        check(
            "3,991,5551212,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=1234, name=python, Ch 00000008, intr 00000000. MMU Fault",
            Some((
                "0000:3b:00.0",
                31,
                "pid=1234, name=python, Ch 00000008, intr 00000000. MMU Fault",
            )),
        );
        let line = "NVRM: Xid (PCI:0008:01:00 GPU-I:07): 43, pid='<unknown>', name=<unknown>";
        check(line, Some(("0008:01:00.0", 43, "pid='<unknown>', name=<unknown>")));
        assert_eq!(LoggedXid::parse(line).unwrap().gpu_instance, Some(7));
        check("NVRM: Xid (PCI:0008:01:00 GPU-I:x): 43", None);
        check(
            "[  12.5] NVRM: Xid (PCI:0000:1a:00.0): 48",
            Some(("0000:1a:00.0", 48, "")),
        );
        check("NVRM: Xid (PCI:0000:1a:00): , pid=1", None);
        check("NVRM: GPU at PCI:0000:1a:00: GPU-1234", None);
        check("Xid (PCI:0000:1a:00): 79", None);
        check("", None);
    }

    #[test]
    fn lines_are_given_as_they_come() {
        let host = tempfile::tempdir().unwrap();
        std::fs::create_dir(host.path().join("dev")).unwrap();
        let path = host.path().join("dev/kmsg");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let mut log = KernelLog::open(host.path()).unwrap();
        let mut kernel = OpenOptions::new().write(true).open(&path).unwrap();
        assert_eq!(log.next_within(Duration::ZERO).unwrap(), None);
        kernel.write_all(b"6,1,1,-;usb 1-1: new device\n").unwrap();
        kernel
            .write_all(b"4,2,2,-;NVRM: Xid (PCI:0000:1a:00): 79, a\n SUBSYSTEM=pci\n")
            .unwrap();
        kernel
            .write_all(b"4,3,3,-;NVRM: Xid (PCI:0000:1b:00): 48, b\n")
            .unwrap();
        let mut next = || log.next_within(Duration::from_secs(10)).unwrap().unwrap();
        assert_eq!((next().code, next().code), (79, 48));
        assert_eq!(log.next_within(Duration::from_millis(1)).unwrap(), None);
    }

    #[test]
    fn a_host_without_a_log_is_an_error_that_names_it() {
        let error = KernelLog::open(Path::new("/nonexistent")).unwrap_err();
        assert_eq!(error.to_string(), "cannot open `/nonexistent/dev/kmsg`");
    }

    proptest! {
        #[test]
        fn any_line_is_read(line in ".*|NVRM: Xid \\(PCI:[0-9a-f:.]{0,12}\\): [0-9]{0,30}.{0,20}") {
            let _ = LoggedXid::parse(&line);
        }
    }
}
