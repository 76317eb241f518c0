//! What is left of the environment that the hook program is called with, and what a process does that may open no more files.
//!
//! A program of its own without the test harness: only a process with a single thread may empty its environment, and a limit
//! counts for a whole process.

use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("noop") {
        let code = gpu_cdi::hook::main(std::env::args_os());
        // A child gets the environment as it is, also what the standard library would not list.
        let status = Command::new("/usr/bin/env").status().expect("the program `env`");
        assert!(status.success());
        return code;
    }
    // `A` and `B` are removed by name easily; a name that starts with `=` is none to the functions that take names.
    let output = Command::new(std::env::current_exe().expect("this program"))
        .arg("noop")
        .env_clear()
        .envs([("A", "1"), ("=B", "2"), ("LD_LIBRARY_PATH", "/nonexistent")])
        .output()
        .expect("this program once more");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{stderr}");
    what_cannot_be_searched_to_the_end_is_an_error();
    ExitCode::SUCCESS
}

/// With fewer descriptors than a search needs, at whatever point they run out: never a value with less in it.
fn what_cannot_be_searched_to_the_end_is_an_error() {
    use gpu_cdi::{DiscoverConfig, DriverFiles, Error};
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let root = tempfile::tempdir().expect("a temporary folder");
    let folder = root.path().join("usr/lib64");
    std::fs::create_dir_all(&folder).expect("a new folder");
    for name in ["libcuda.so.1.2.3", "libnvidia-ml.so.1.2.3"] {
        std::fs::write(folder.join(name), "").expect("a new file");
    }
    let config = DiscoverConfig::new(root.path());
    let whole = DriverFiles::discover(&config).expect("a driver root");
    assert_eq!(whole.libraries.len(), 2);
    let old = getrlimit(Resource::Nofile);
    let (mut short, mut in_full) = (0, 0);
    for limit in 3..40 {
        let limit = Rlimit {
            current: Some(limit),
            maximum: old.maximum,
        };
        setrlimit(Resource::Nofile, limit).expect("a lower limit");
        let found = DriverFiles::discover(&config);
        setrlimit(Resource::Nofile, old).expect("the limit that there was");
        match found {
            Ok(files) => {
                assert_eq!(files, whole);
                in_full += 1;
            }
            Err(Error::Exhausted { .. } | Error::Root { .. }) => short += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(short > 2 && in_full > 2, "{short} {in_full}");
}
