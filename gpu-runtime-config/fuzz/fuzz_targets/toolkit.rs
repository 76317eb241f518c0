#![no_main]

//! Settings, one a line, and behind a form feed the file that they are made in.

use std::path::Path;

use gpu_runtime_config::toolkit::{self, Assignment, Config};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let (settings, file) = text.split_once('\x0c').unwrap_or((text, ""));
    let path = Path::new("config.toml");
    let _ = (Config::parse(path, file), toolkit::check(path, file));
    let assignments: Vec<_> = settings.lines().filter_map(|line| Assignment::parse(line, ",").ok()).collect();
    let Ok(set) = toolkit::set(path, file, &assignments) else {
        return;
    };
    let again = toolkit::set(path, &set, &assignments).expect("what was written is read");
    assert_eq!(again, set, "twice");
});
