use std::{fs, path::Path};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, getpid, kill_process};

/// The names of one program each: the vendor's and ours.
const SAME: &[[&str; 2]] = &[
    ["nvidia-device-plugin", "gpu-device-plugin"],
    ["mps-control-daemon", "gpu-mps-daemon"],
];

/// Sub-commands of these programs that are something else.
const OTHERS: [&str; 2] = ["config-manager", "mount-shm"];

/// The executable that is all programs, named by its first argument.
const STACK: &str = "gpu-stack";

/// The program to signal, by its file's name: how it was called, by path or not, is no difference.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Receiver(String);

impl Receiver {
    pub(super) fn new(name: &str) -> Self {
        Self(file_name(name).to_owned())
    }

    /// The processes that run it, this one excepted.
    pub(super) fn find(&self, proc: &Path) -> anyhow::Result<Vec<Pid>> {
        let entries = fs::read_dir(proc).with_context(|| format!("cannot read `{}`", proc.display()))?;
        // A process that ends meanwhile is none.
        let processes = entries.flatten().filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw)?;
            let command_line = fs::read(entry.path().join("cmdline")).ok()?;
            (pid != getpid() && self.is(&command_line)).then_some(pid)
        });
        let processes: Vec<_> = processes.collect();
        if processes.is_empty() {
            bail!("no process found that is `{}`", self.0);
        }
        Ok(processes)
    }

    /// Whether a command line, as the kernel tells it, is this program's.
    fn is(&self, command_line: &[u8]) -> bool {
        let mut words = command_line.split(|byte| *byte == 0).map(String::from_utf8_lossy);
        let mut program = words.next().unwrap_or_default();
        if file_name(&program) == STACK {
            program = words.next().unwrap_or_default();
        }
        let program = file_name(&program);
        let other = words.next().is_some_and(|word| OTHERS.contains(&word.as_ref()));
        let same = |names: &&[&str; 2]| names.contains(&program) && names.contains(&self.0.as_str());
        !other && (program == self.0 || SAME.iter().any(|names| same(&names)))
    }
}

/// Signals them all; one that has ended meanwhile is none.
pub(super) fn send(processes: &[Pid], signal: Signal) -> anyhow::Result<()> {
    for pid in processes {
        match kill_process(*pid, signal) {
            Err(error) if error != rustix::io::Errno::SRCH => {
                return Err(error).with_context(|| format!("cannot signal process {}", pid.as_raw_nonzero()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// A signal by number.
pub(super) fn parse_signal(text: &str) -> Result<Signal, String> {
    let signal = text.parse().ok().and_then(Signal::from_named_raw);
    signal.ok_or_else(|| format!("`{text}` is not the number of a signal"))
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use std::{os::unix::process::CommandExt as _, process::Command, thread};

    use super::*;

    #[test]
    fn a_program_is_found_however_it_was_called() {
        #[track_caller]
        fn check(receiver: &str, command_line: &str, expected: bool) {
            let command_line = command_line.replace(' ', "\0") + "\0";
            assert_eq!(
                Receiver::new(receiver).is(command_line.as_bytes()),
                expected,
                "{receiver}: {command_line}"
            );
        }
        check("nvidia-device-plugin", "nvidia-device-plugin", true);
        check("nvidia-device-plugin", "/usr/bin/nvidia-device-plugin --x", true);
        check("/usr/bin/mps-control-daemon", "mps-control-daemon", true); // as the vendor's chart has it
        check("/usr/bin/mps-control-daemon", "gpu-mps-daemon --config-file=/c", true);
        check("nvidia-device-plugin", "/gpu-stack gpu-device-plugin", true);
        check(
            "nvidia-device-plugin",
            "gpu-stack nvidia-device-plugin config-manager",
            false,
        );
        check(
            "nvidia-device-plugin",
            "gpu-device-plugin config-manager --oneshot",
            false,
        );
        check("mps-control-daemon", "mps-control-daemon mount-shm", false);
        check("nvidia-device-plugin", "mps-control-daemon", false);
        check("nvidia-device-plugin", "grep nvidia-device-plugin", false);
        check("nvidia-device-plugin", "", false);
    }

    #[test]
    fn it_is_signalled_and_this_process_is_not() {
        let mut child = Command::new("/bin/sleep")
            .arg0("a-program-of-this-test")
            .arg("60")
            .spawn()
            .unwrap();
        // `spawn` returns while the kernel still sets the new program up, which has no command line until then.
        let command_line = format!("/proc/{}/cmdline", child.id());
        while fs::read(&command_line).unwrap().is_empty() {
            thread::yield_now();
        }
        let receiver = Receiver::new("a-program-of-this-test");
        let found = receiver.find("/proc".as_ref()).unwrap();
        assert_eq!(found, [Pid::from_child(&child)]);
        send(&found, Signal::HUP).unwrap();
        let status = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(1));
        send(&found, Signal::HUP).unwrap();
        assert_eq!(
            receiver.find("/proc".as_ref()).unwrap_err().to_string(),
            "no process found that is `a-program-of-this-test`"
        );
        let me = fs::read("/proc/self/cmdline").unwrap();
        let name = String::from_utf8_lossy(me.split(|byte| *byte == 0).next().unwrap()).into_owned();
        assert!(Receiver::new(&name).find("/proc".as_ref()).is_err(), "{name}");
    }

    #[test]
    fn signals_go_by_number() {
        assert_eq!(parse_signal("1"), Ok(Signal::HUP));
        assert!(parse_signal("HUP").is_err());
        assert!(parse_signal("0").is_err());
    }
}
