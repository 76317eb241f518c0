//! What a call of the runtime tells, and to whom.

use std::{
    fs::OpenOptions,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use gpu_cdi::runtime::Invocation;
use rustix::fs::OFlags;
use serde_json::json;

use crate::toolkit_config::{LogLevel, ToolkitConfig, keys};

fn name(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Error => "error",
        LogLevel::Warning => "warning",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
    }
}

/// The logs of one call: the file that the toolkit's configuration names gets everything, down to its level; the one that the
/// engine named by `--log` gets errors and warnings, as it does from runc. What cannot be logged must stop no container.
#[derive(Debug)]
pub(super) struct Log {
    /// `container NAME: `, in a call that makes one.
    subject: String,
    level: LogLevel,
    file: Option<PathBuf>,
    engine: Option<PathBuf>,
    engine_is_json: bool,
}

impl Log {
    /// The log before the configuration is read: that it cannot be is what there may be to tell.
    pub(super) fn new(invocation: &Invocation) -> Self {
        let name = invocation.container.as_ref();
        Self {
            subject: name.map_or_else(String::new, |name| format!("container {name}: ")),
            level: if invocation.debug {
                LogLevel::Debug
            } else {
                LogLevel::Info
            },
            file: None,
            engine: invocation.log.clone(),
            engine_is_json: invocation.log_is_json,
        }
    }

    /// Takes in what the configuration says of logs, and tells what of it has no effect.
    pub(super) fn configure(&mut self, toolkit: &ToolkitConfig, invocation: &Invocation) {
        let config = &toolkit.config;
        self.file = config.log_file.as_ref().map(PathBuf::from);
        let level = config.log_level.parse::<LogLevel>();
        if !invocation.debug {
            self.level = *level.as_ref().unwrap_or(&LogLevel::Info);
        }
        // Once for each container, and not for each time that one is looked at.
        if !invocation.makes_container {
            return;
        }
        if let Err(error) = &level {
            self.warning(&format!("{}: {error}", toolkit.key(keys::LOG_LEVEL)));
        }
        for key in &config.unknown_keys {
            self.warning(&key.to_string());
        }
    }

    /// For people who look for a fault.
    pub(super) fn debug(&self, text: &str) {
        self.tell(LogLevel::Debug, text);
    }

    /// What was done, and what is missing that nobody asked for by name.
    pub(super) fn info(&self, text: &str) {
        self.tell(LogLevel::Info, text);
    }

    /// What somebody should look at.
    pub(super) fn warning(&self, text: &str) {
        self.tell(LogLevel::Warning, text);
    }

    /// Why there is no container: the engine reads its log for that, and people read standard error.
    pub(super) fn error(&self, error: &anyhow::Error) {
        // Nobody is left to tell if it is closed.
        let _ = writeln!(std::io::stderr(), "error: {error:#}");
        self.tell(LogLevel::Error, &format!("{error:#}"));
    }

    fn tell(&self, level: LogLevel, text: &str) {
        if level > self.level {
            return;
        }
        let (name, subject) = (name(level), &self.subject);
        if let Some(path) = &self.file {
            append(path, &format!("{name}: {subject}{text}"));
        }
        let Some(path) = self.engine.as_ref().filter(|_| level <= LogLevel::Warning) else {
            return;
        };
        let text = format!("gpu-container-runtime: {subject}{text}");
        if self.engine_is_json {
            append(path, &json!({ "level": name, "msg": text }).to_string());
        } else {
            append(path, &format!("{name}: {text}"));
        }
    }
}

fn append(path: &Path, line: &str) {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    // A pipe that nobody reads is not waited for.
    options.custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let file = options.open(path);
    // There is nobody else to tell.
    let _ = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn each_log_gets_what_its_readers_look_for_with_the_containers_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let invocation = Invocation {
            makes_container: true,
            container: Some("c1".to_owned()),
            log: Some(path("engine")),
            log_is_json: true,
            ..Invocation::default()
        };
        let mut toolkit = ToolkitConfig {
            path: "/c".into(),
            ..ToolkitConfig::default()
        };
        toolkit.config.log_file = Some(path("file").to_string_lossy().into_owned());
        let mut log = Log::new(&invocation);
        log.configure(&toolkit, &invocation);
        log.debug("1");
        log.info("2");
        log.warning("3");
        let read = |name: &str| fs::read_to_string(path(name)).unwrap_or_default();
        assert_eq!(read("file"), "info: container c1: 2\nwarning: container c1: 3\n");
        assert_eq!(
            read("engine"),
            "{\"level\":\"warning\",\"msg\":\"gpu-container-runtime: container c1: 3\"}\n"
        );
        for (level, lines) in [("error", 0), ("WARN", 1), ("info", 2), ("trace", 3), ("loud", 3)] {
            fs::write(path("file"), "").unwrap();
            toolkit.config.log_level = level.to_owned();
            log.configure(&toolkit, &invocation);
            log.debug("1");
            log.info("2");
            log.warning("3");
            assert_eq!(read("file").lines().count(), lines, "{level}");
        }
        assert!(read("file").contains("`nvidia-container-runtime.log-level` of `/c`: there is no log level `loud`"));
    }
}
