//! What a call of the runtime tells, and to whom.

use std::{
    fs::OpenOptions,
    io::Write as _,
    path::{Path, PathBuf},
};

use gpu_cdi::runtime::Invocation;
use gpu_runtime_config::toolkit::Config;
use serde_json::json;

/// How much a message matters, the most important first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Error,
    Warning,
    Info,
    Debug,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }

    /// A level of the vendor's configuration.
    fn parse(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "panic" | "fatal" | "error" => Self::Error,
            "warn" | "warning" => Self::Warning,
            "info" => Self::Info,
            "debug" | "trace" => Self::Debug,
            _ => return None,
        })
    }
}

/// The logs of one call: the file that the toolkit's configuration names gets everything, down to its level; the one that the
/// engine named by `--log` gets errors and warnings, as it does from runc. What cannot be logged must stop no container.
#[derive(Debug)]
pub(super) struct Log {
    /// `container NAME: `, in a call that makes one.
    subject: String,
    level: Level,
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
            level: if invocation.debug { Level::Debug } else { Level::Info },
            file: None,
            engine: invocation.log.clone(),
            engine_is_json: invocation.log_is_json,
        }
    }

    /// Takes in what the configuration says of logs, and tells what of it has no effect.
    pub(super) fn configure(&mut self, config: &Config, invocation: &Invocation) {
        self.file = config.log_file.as_ref().map(PathBuf::from);
        let level = Level::parse(&config.log_level);
        if !invocation.debug {
            self.level = level.unwrap_or(Level::Info);
        }
        // Once for each container, and not for each time that one is looked at.
        if !invocation.makes_container {
            return;
        }
        if level.is_none() {
            self.warning(&format!(
                "`{}` of the toolkit's configuration is no log level",
                config.log_level
            ));
        }
        for key in &config.unknown_keys {
            self.warning(&format!("{key}; it has no effect"));
        }
    }

    /// For people who look for a fault.
    pub(super) fn debug(&self, text: &str) {
        self.tell(Level::Debug, text);
    }

    /// What was done, and what is missing that nobody asked for by name.
    pub(super) fn info(&self, text: &str) {
        self.tell(Level::Info, text);
    }

    /// What somebody should look at.
    pub(super) fn warning(&self, text: &str) {
        self.tell(Level::Warning, text);
    }

    /// Why there is no container: the engine reads its log for that, and people read standard error.
    pub(super) fn error(&self, error: &anyhow::Error) {
        // Nobody is left to tell if it is closed.
        let _ = writeln!(std::io::stderr(), "error: {error:#}");
        self.tell(Level::Error, &format!("{error:#}"));
    }

    fn tell(&self, level: Level, text: &str) {
        if level > self.level {
            return;
        }
        let (name, subject) = (level.name(), &self.subject);
        if let Some(path) = &self.file {
            append(path, &format!("{name}: {subject}{text}"));
        }
        let Some(path) = self.engine.as_ref().filter(|_| level <= Level::Warning) else {
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
    let file = OpenOptions::new().append(true).create(true).open(path);
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
        let mut config = Config::default();
        config.log_file = Some(path("file").to_string_lossy().into_owned());
        let mut log = Log::new(&invocation);
        log.configure(&config, &invocation);
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
            config.log_level = level.to_owned();
            log.configure(&config, &invocation);
            log.debug("1");
            log.info("2");
            log.warning("3");
            assert_eq!(read("file").lines().count(), lines, "{level}");
        }
        assert!(read("file").contains("`loud` of the toolkit's configuration is no log level"));
    }
}
