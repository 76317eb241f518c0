//! Plans carried out on an engine that runs: restarted by signal, taken back where it does not come up again, and finished
//! where whoever carried them out was killed.
//!
//! A program of its own without the test harness: it is the engine too, and the one that is killed.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a node is made and looked at"
)]

use std::{
    env, fs,
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::{
            net::{UnixListener, UnixStream},
            process::ExitStatusExt as _,
        },
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle, sleep},
    time::{Duration, Instant},
};

use gpu_runtime_config::{
    Plan, Runtime, Settings,
    apply::{
        Apply, Error, Health, Outcome, Restart, Socket, Stop, apply, lock, read_containerd, read_file, read_receipt,
        receipt_path,
    },
    containerd::{self, Placement},
    revert,
};

const MAIN: &str = "/etc/containerd/config.toml";
const DROP_IN: &str = "/etc/containerd/conf.d/99-nvidia.toml";
const SOCKET: &str = "/run/c.sock";
/// What the engine has read.
const LOADED: &str = "/run/loaded";
const PLAIN: &str = "version = 3 # mine\n";
/// An engine with a runtime of this name does not come up.
const BROKEN: &str = "broken";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["engine", root] => return engine(&Host::at(root)),
        ["activated", _] => return activated(),
        ["configure", root, name] => {
            let host = Host::at(root);
            let lock = lock(&host.root, &Stop::default()).expect("the lock");
            let plan = host.plan(name);
            let outcome = apply(&plan, &host.how(&plan), &lock).expect("carried out");
            assert!(matches!(outcome, Outcome::Applied | Outcome::Unchanged), "{outcome:?}");
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let tests: [(&str, fn()); 6] = [
        (
            "an_engine_reads_its_files_when_they_changed_and_only_then",
            an_engine_reads_its_files_when_they_changed_and_only_then,
        ),
        (
            "an_engine_that_does_not_come_up_lives_with_its_old_files",
            an_engine_that_does_not_come_up_lives_with_its_old_files,
        ),
        (
            "what_a_killed_process_left_is_finished_and_taken_back",
            what_a_killed_process_left_is_finished_and_taken_back,
        ),
        (
            "an_engine_that_was_left_broken_gets_its_old_files_back",
            an_engine_that_was_left_broken_gets_its_old_files_back,
        ),
        (
            "the_engine_is_told_and_not_the_one_that_made_its_socket",
            the_engine_is_told_and_not_the_one_that_made_its_socket,
        ),
        (
            "programs_that_change_files_at_once_do_so_one_after_the_other",
            programs_that_change_files_at_once_do_so_one_after_the_other,
        ),
    ];
    for (name, test) in tests {
        if arguments
            .iter()
            .all(|wanted| wanted.starts_with('-') || name.contains(wanted))
        {
            test();
            println!("test {name} ... ok");
        }
    }
    ExitCode::SUCCESS
}

/// Answers on its socket until SIGHUP ends it, unless its files are broken.
fn engine(host: &Host) -> ExitCode {
    let text = host.texts();
    if text.contains(BROKEN) {
        return ExitCode::FAILURE;
    }
    fs::write(host.path(LOADED), text).expect("a file");
    let socket = host.path(SOCKET);
    let _ = fs::remove_file(&socket);
    let listener = UnixListener::bind(socket).expect("a socket");
    listener.incoming().for_each(drop);
    ExitCode::SUCCESS
}

/// Answers HTTP on a socket that another process has made and hands over as standard input, as systemd does for Docker.
fn activated() -> ExitCode {
    let socket = io::stdin().as_fd().try_clone_to_owned().expect("a socket");
    for stream in UnixListener::from(socket).incoming() {
        let mut stream = stream.expect("a connection");
        let mut question = [0; 256];
        let length = stream.read(&mut question).expect("a question");
        assert!(question[..length].starts_with(b"GET /"), "HTTP");
        stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nOK").expect("an answer");
    }
    ExitCode::SUCCESS
}

/// A host that is a folder.
struct Host {
    root: PathBuf,
}

impl Host {
    fn at(root: impl AsRef<Path>) -> Host {
        Host {
            root: root.as_ref().to_owned(),
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.path(path)).ok()
    }

    /// All that an engine reads.
    fn texts(&self) -> String {
        [MAIN, DROP_IN].iter().filter_map(|path| self.text(path)).collect()
    }

    fn plan(&self, name: &str) -> Plan {
        let settings = Settings {
            runtimes: vec![Runtime::new(name, "/t/n")],
            default_runtime: Some(name.to_owned()),
            ..Settings::default()
        };
        let receipt = read_receipt(&self.root, MAIN.as_ref()).expect("a receipt or none");
        let files = read_containerd(&self.root, MAIN.as_ref(), DROP_IN.as_ref(), receipt.as_ref()).expect("files");
        let daemon = Some("2.1".parse().expect("a version"));
        containerd::configure(&files, daemon, Placement::Auto, &settings, receipt.as_ref()).expect("a plan")
    }

    fn carry_out(&self, plan: &Plan) -> Result<Outcome, Error> {
        self.carry_out_as(plan, &self.how(plan))
    }

    fn how(&self, plan: &Plan) -> Apply {
        let health = Health {
            socket: Socket::own(SOCKET),
            timeout: Duration::from_secs(if plan_breaks(plan) { 1 } else { 10 }),
            settle: Duration::from_millis(50),
            new_process: true,
        };
        Apply {
            host_root: self.root.clone(),
            main: MAIN.into(),
            restart: Restart::Signal {
                socket: Socket::own(SOCKET),
            },
            health: Some(health),
            stop: Stop::default(),
            tell: |_| {},
        }
    }

    fn carry_out_as(&self, plan: &Plan, how: &Apply) -> Result<Outcome, Error> {
        apply(plan, how, &lock(&self.root, &how.stop)?)
    }

    fn take_back(&self) {
        if let Some(receipt) = read_receipt(&self.root, MAIN.as_ref()).expect("a receipt or none") {
            let found = receipt.paths().map(|path| read_file(&self.root, path).expect("a file"));
            let plan = revert(&found.collect::<Vec<_>>(), &receipt).expect("reverts");
            self.carry_out(&plan).expect("carried out");
        }
    }

    /// That nothing of ours is on it, and that its engine knows.
    fn is_plain(&self) {
        assert_eq!((self.text(MAIN).as_deref(), self.text(DROP_IN)), (Some(PLAIN), None));
        assert_eq!(self.text(LOADED).as_deref(), Some(PLAIN));
        assert!(!self.path(&receipt_path(MAIN.as_ref()).to_string_lossy()).exists());
        let left = fs::read_dir(self.path("/etc/containerd/conf.d")).into_iter().flatten();
        assert_eq!(left.count(), 0, "no temporary file either");
    }
}

fn plan_breaks(plan: &Plan) -> bool {
    plan.changes
        .iter()
        .any(|change| change.after.as_deref().is_some_and(|text| text.contains(BROKEN)))
}

/// An engine that is started anew when it ends, as by systemd, and ends with the test.
struct Kept {
    host: Host,
    ended: Arc<AtomicBool>,
    keeper: Option<JoinHandle<()>>,
    _folder: tempfile::TempDir,
}

impl Kept {
    fn start() -> Kept {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let host = Host::at(folder.path());
        for path in ["/etc/containerd", "/run"] {
            fs::create_dir_all(host.path(path)).expect("a new folder");
        }
        fs::write(host.path(MAIN), PLAIN).expect("a new file");
        let ended = Arc::new(AtomicBool::new(false));
        let (root, stop) = (host.root.clone(), Arc::clone(&ended));
        let keeper = thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let mut engine = again(&["engine"], &root);
                while engine.try_wait().expect("its end").is_none() {
                    if stop.load(Ordering::Relaxed) {
                        engine.kill().expect("it runs");
                    }
                    sleep(Duration::from_millis(5));
                }
            }
        });
        let kept = Kept {
            host,
            ended,
            keeper: Some(keeper),
            _folder: folder,
        };
        let start = Instant::now();
        // A socket is there before anybody listens on it.
        while kept.host.text(LOADED).is_none() || !listens(&kept.host.path(SOCKET)) {
            assert!(start.elapsed() < Duration::from_secs(10), "the engine does not come up");
            sleep(Duration::from_millis(5));
        }
        kept
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
    }
}

/// This program once more.
fn again(arguments: &[&str], root: &Path) -> Child {
    let mut command = this_program();
    command
        .arg(arguments[0])
        .arg(root)
        .args(&arguments[1..])
        .stdin(Stdio::null());
    command.spawn().expect("this program once more")
}

/// Ended by SIGHUP, also where the tests themselves are not (`nohup`).
fn this_program() -> Command {
    let mut command = Command::new("env");
    command
        .arg("--default-signal=HUP")
        .arg(env::current_exe().expect("this program"));
    command
}

fn an_engine_reads_its_files_when_they_changed_and_only_then() {
    let engine = Kept::start();
    let host = &engine.host;
    let outcome = host.carry_out(&host.plan("nvidia")).expect("carried out");
    assert!(matches!(outcome, Outcome::Applied), "{outcome:?}");
    assert_eq!(host.text(LOADED), Some(host.texts()));
    assert!(host.texts().contains("/t/n"));
    fs::remove_file(host.path(LOADED)).expect("a file");
    let outcome = host.carry_out(&host.plan("nvidia")).expect("carried out");
    assert!(matches!(outcome, Outcome::Unchanged), "{outcome:?}");
    assert_eq!(host.text(LOADED), None, "not started again");
    host.take_back();
    host.is_plain();
}

fn an_engine_that_does_not_come_up_lives_with_its_old_files() {
    let engine = Kept::start();
    let host = &engine.host;
    let outcome = host.carry_out(&host.plan(BROKEN)).expect("carried out");
    let Outcome::RolledBack { cause, still: None } = outcome else {
        panic!("{outcome:?}")
    };
    assert!(matches!(cause, Error::Unhealthy { .. }), "{cause}");
    host.is_plain();
}

fn what_a_killed_process_left_is_finished_and_taken_back() {
    for step in 0..24 {
        let engine = Kept::start();
        let host = &engine.host;
        let other = step % 3 == 2;
        if other {
            // On top of another edit of ours.
            let outcome = host.carry_out(&host.plan("other")).expect("carried out");
            assert!(matches!(outcome, Outcome::Applied), "{outcome:?}");
        }
        let mut killed = again(&["configure", "nvidia"], &host.root);
        sleep(Duration::from_micros(500 * step));
        killed.kill().expect("it can be killed");
        killed.wait().expect("its end");
        while !listens(&host.path(SOCKET)) {
            sleep(Duration::from_millis(5)); // it was being started anew
        }
        let main = host.text(MAIN).expect("the main file");
        assert!(main.starts_with(PLAIN), "never half a file: {main}");
        let drop_in = host.text(DROP_IN).unwrap_or("/t/n\"\n".to_owned());
        assert!(drop_in.ends_with("/t/n\"\n"), "never half a file: {drop_in}");

        if step % 2 == 0 {
            assert!(
                again(&["configure", "nvidia"], &host.root)
                    .wait()
                    .expect("its end")
                    .success()
            );
            assert_eq!(
                host.text(LOADED),
                Some(host.texts()),
                "step {step}: the engine knows of it"
            );
            assert!(
                host.texts().contains("nvidia") && !host.texts().contains("other"),
                "step {step}"
            );
        }
        host.take_back();
        host.is_plain();
    }
}

/// Killed between the restart and the look whether the engine lives.
fn an_engine_that_was_left_broken_gets_its_old_files_back() {
    let engine = Kept::start();
    let host = &engine.host;
    let mut killed = again(&["configure", BROKEN], &host.root);
    while !host.texts().contains(BROKEN) || listens(&host.path(SOCKET)) {
        sleep(Duration::from_millis(1));
    }
    killed.kill().expect("it can be killed");
    killed.wait().expect("its end");
    let plan = host.plan(BROKEN);
    assert!(plan.is_empty(), "all is written");
    let outcome = host.carry_out(&plan).expect("carried out");
    assert!(
        matches!(outcome, Outcome::RolledBack { still: None, .. }),
        "{outcome:?}"
    );
    host.is_plain();
}

/// Had it been the one that listens, this test would have ended.
fn the_engine_is_told_and_not_the_one_that_made_its_socket() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let host = Host::at(folder.path());
    for path in ["/etc/containerd", "/run"] {
        fs::create_dir_all(host.path(path)).expect("a new folder");
    }
    fs::write(host.path(MAIN), PLAIN).expect("a new file");
    let listener = UnixListener::bind(host.path(SOCKET)).expect("a socket");
    let mut engine = this_program()
        .args(["activated", "_"])
        .stdin(OwnedFd::from(listener.try_clone().expect("a socket")))
        .spawn()
        .expect("this program once more");
    let how = Apply {
        host_root: host.root.clone(),
        main: MAIN.into(),
        restart: Restart::Signal {
            socket: Socket::http(SOCKET),
        },
        health: None,
        stop: Stop::default(),
        tell: |_| {},
    };
    let outcome = host.carry_out_as(&host.plan("nvidia"), &how).expect("carried out");
    assert!(matches!(outcome, Outcome::Applied), "{outcome:?}");
    assert_eq!(engine.wait().expect("its end").signal(), Some(1), "SIGHUP");
}

fn programs_that_change_files_at_once_do_so_one_after_the_other() {
    let engine = Kept::start();
    let host = &engine.host;
    let mut programs: Vec<Child> = ["a", "b", "c", "d"]
        .iter()
        .map(|name| again(&["configure", name], &host.root))
        .collect();
    for program in &mut programs {
        assert!(program.wait().expect("its end").success());
    }
    assert_eq!(host.text(LOADED), Some(host.texts()));
    host.take_back();
    host.is_plain();
}

fn listens(socket: &Path) -> bool {
    UnixStream::connect(socket).is_ok()
}
