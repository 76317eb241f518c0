//! What is left of the environment that the hook program is called with.
//!
//! A program of its own without the test harness: only a process with a single thread may empty its environment.

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
    ExitCode::SUCCESS
}
