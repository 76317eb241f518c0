#![expect(clippy::disallowed_methods, reason = "a node is made and looked at")]

use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _, net::UnixListener},
    sync::OnceLock,
    time::Duration,
};

use super::*;
use crate::{Error as ConfigError, Runtime, Settings, containerd, docker, revert};

const MAIN: &str = "/etc/containerd/config.toml";
const DROP_IN: &str = "/etc/containerd/conf.d/99-nvidia.toml";

struct Node {
    root: tempfile::TempDir,
}

impl Node {
    fn new(main: &str) -> Node {
        let node = Node {
            root: tempfile::tempdir().unwrap(),
        };
        fs::create_dir_all(node.path("/etc/containerd")).unwrap();
        fs::create_dir_all(node.path("/run")).unwrap();
        fs::write(node.path(MAIN), main).unwrap();
        fs::set_permissions(node.path(MAIN), fs::Permissions::from_mode(0o640)).unwrap();
        node
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path.trim_start_matches('/'))
    }

    fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.path(path)).ok()
    }

    fn plan(&self) -> Plan {
        let settings = Settings {
            runtimes: vec![Runtime::new("nvidia", "/t/n")],
            ..Settings::default()
        };
        let receipt = read_receipt(self.root.path(), MAIN.as_ref()).unwrap();
        let files = read_containerd(self.root.path(), MAIN.as_ref(), DROP_IN.as_ref(), receipt.as_ref()).unwrap();
        let daemon = Some("2.1".parse().unwrap());
        containerd::configure(&files, daemon, containerd::Placement::Auto, &settings, receipt.as_ref()).unwrap()
    }

    fn apply(&self, health: Option<Health>) -> Apply {
        Apply {
            host_root: self.root.path().to_owned(),
            main: MAIN.into(),
            restart: Restart::None,
            health,
            stop: Stop::default(),
            tell: |_| {},
        }
    }

    /// Takes back what was set up.
    fn revert(&self) {
        self.revert_as(&self.apply(None)).unwrap();
    }

    fn revert_as(&self, how: &Apply) -> Result<Outcome, Error> {
        let root = self.root.path();
        let receipt = read_receipt(root, &how.main).unwrap().expect("a receipt");
        let found: Vec<_> = receipt.paths().map(|path| read_file(root, path).unwrap()).collect();
        self.carry_out(&revert(&found, &receipt).unwrap(), how)
    }

    fn carry_out(&self, plan: &Plan, how: &Apply) -> Result<Outcome, Error> {
        apply(plan, how, &lock(self.root.path(), &how.stop)?)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("/etc/containerd")).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

fn health() -> Health {
    Health {
        socket: Socket::own("/run/c.sock"),
        timeout: Duration::from_millis(300),
        settle: Duration::from_millis(100),
        new_process: true,
    }
}

#[test]
fn a_plan_is_written_once_and_taken_back_exactly() {
    let main = "version = 3\n# mine\n";
    let node = Node::new(main);
    assert!(matches!(
        node.carry_out(&node.plan(), &node.apply(None)).unwrap(),
        Outcome::Applied
    ));
    assert!(node.text(DROP_IN).unwrap().contains("/t/n"));
    assert_eq!(
        fs::metadata(node.path(MAIN)).unwrap().permissions().mode() & 0o7777,
        0o640
    );
    let receipt_mode = fs::metadata(node.path("/etc/containerd/config.toml.gpu-runtime-config"))
        .unwrap()
        .permissions();
    assert_eq!(receipt_mode.mode() & 0o7777, 0o600);

    let before = fs::metadata(node.path(MAIN)).unwrap().modified().unwrap();
    assert!(matches!(
        node.carry_out(&node.plan(), &node.apply(None)).unwrap(),
        Outcome::Unchanged
    ));
    assert_eq!(fs::metadata(node.path(MAIN)).unwrap().modified().unwrap(), before);

    node.revert();
    assert_eq!(node.text(MAIN).as_deref(), Some(main));
    assert_eq!(node.text(DROP_IN), None);
    assert_eq!(node.names(), ["config.toml"]);
}

#[test]
fn folders_that_were_made_go_with_the_files() {
    let bare = || {
        let node = Node::new("");
        fs::remove_dir_all(node.path("/etc/containerd")).unwrap();
        node
    };
    let node = bare();
    node.carry_out(&node.plan(), &node.apply(None)).unwrap();
    assert_eq!(
        node.names(),
        ["conf.d", "config.toml", "config.toml.gpu-runtime-config"]
    );
    // On top of an edit of ours.
    let mut again = node.plan();
    assert!(again.is_empty());
    again.changes.push(FileChange {
        path: "/etc/containerd/other.d/x.toml".into(),
        before: None,
        after: Some(String::new()),
    });
    node.carry_out(&again, &node.apply(None)).unwrap();
    fs::remove_file(node.path("/etc/containerd/other.d/x.toml")).unwrap();
    node.revert();
    assert_eq!(fs::read_dir(node.path("/etc")).unwrap().count(), 0);

    let node = bare();
    node.carry_out(&node.plan(), &node.apply(Some(health()))).unwrap();
    assert_eq!(fs::read_dir(node.path("/etc")).unwrap().count(), 0, "rolled back");
    // A folder that cannot be made, because a file is in its place.
    let mut plan = node.plan();
    plan.changes.push(FileChange {
        path: "/etc/containerd/config.toml/x".into(),
        before: None,
        after: Some(String::new()),
    });
    node.carry_out(&plan, &node.apply(None)).unwrap_err();
    assert_eq!(fs::read_dir(node.path("/etc")).unwrap().count(), 0, "not written");
}

#[test]
fn folders_of_others_and_those_with_something_in_them_stay() {
    let node = Node::new("version = 3\n");
    fs::create_dir(node.path("/etc/containerd/conf.d")).unwrap();
    node.carry_out(&node.plan(), &node.apply(None)).unwrap();
    node.revert();
    assert_eq!(node.names(), ["conf.d", "config.toml"], "it was there before");

    fs::remove_dir(node.path("/etc/containerd/conf.d")).unwrap();
    node.carry_out(&node.plan(), &node.apply(None)).unwrap();
    fs::write(node.path("/etc/containerd/conf.d/other.toml"), "").unwrap();
    node.revert();
    assert!(node.path("/etc/containerd/conf.d/other.toml").exists());
}

#[test]
fn what_is_due_is_told_beforehand() {
    let node = Node::new("version = 3\n");
    let is_due = || is_due(&node.plan(), node.root.path(), MAIN.as_ref()).unwrap();
    assert!(is_due());
    node.carry_out(&node.plan(), &node.apply(None)).unwrap();
    assert!(!is_due());
    let receipt = read_receipt(node.root.path(), MAIN.as_ref()).unwrap().unwrap();
    let path = node.path("/etc/containerd/config.toml.gpu-runtime-config");
    fs::write(path, receipt.unfinished().to_json()).unwrap();
    assert!(node.plan().is_empty() && is_due(), "a change that was interrupted");
}

#[test]
fn files_that_cannot_be_given_back_are_not_said_to_be_back() {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    let node = Node::new("version = 3\n");
    ROOT.set(node.path("/")).unwrap();
    let how = Apply {
        tell: |step| {
            if let Step::Awaited(_) = step {
                fs::write(ROOT.get().unwrap().join(&DROP_IN[1..]), "# somebody's\n").unwrap();
            }
        },
        ..node.apply(Some(health()))
    };
    let error = node.carry_out(&node.plan(), &how).unwrap_err();
    let Error::NotTakenBack { cause, source } = error else {
        panic!("{error}");
    };
    assert!(matches!(*cause, Error::Unhealthy { .. }), "{cause}");
    assert_eq!(source.to_string(), format!("`{DROP_IN}` has changed since it was read"));
    assert_eq!(node.text(DROP_IN).as_deref(), Some("# somebody's\n"));
    assert!(read_receipt(node.root.path(), MAIN.as_ref()).unwrap().is_some());
}

#[test]
fn an_engine_that_does_not_come_up_gets_its_old_files_back() {
    let node = Node::new("version = 3\n");
    let outcome = node.carry_out(&node.plan(), &node.apply(Some(health()))).unwrap();
    let Outcome::RolledBack { cause, still } = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(
        cause.to_string(),
        "the engine behind `/run/c.sock` did not come up within 0 s: No such file or directory (os error 2)"
    );
    assert!(still.is_some(), "no engine runs here at all");
    assert_eq!(
        (node.text(MAIN).as_deref(), node.text(DROP_IN)),
        (Some("version = 3\n"), None)
    );
    assert_eq!(node.names(), ["config.toml"]);
}

#[test]
fn an_engine_that_answers_is_healthy() {
    let node = Node::new("version = 3\n");
    let _listener = UnixListener::bind(node.path("/run/c.sock")).unwrap();
    assert!(matches!(
        node.carry_out(&node.plan(), &node.apply(Some(health()))).unwrap(),
        Outcome::Applied
    ));
}

#[test]
fn a_file_that_changed_meanwhile_is_left_alone() {
    let node = Node::new("version = 3\n");
    let plan = node.plan();
    fs::write(node.path(MAIN), "version = 3\n# new\n").unwrap();
    let error = node.carry_out(&plan, &node.apply(None)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`/etc/containerd/config.toml` has changed since it was read"
    );
    assert_eq!(
        (node.text(MAIN).as_deref(), node.text(DROP_IN)),
        (Some("version = 3\n# new\n"), None)
    );
}

#[test]
fn a_failed_write_takes_back_those_before_it() {
    let node = Node::new("version = 3\n");
    let plan = node.plan();
    let mut changes = plan.changes.clone();
    // A folder that cannot be made, because a file is in its place.
    let impossible = Path::new(MAIN).join("x.toml");
    changes.push(FileChange {
        path: impossible,
        before: None,
        after: Some(String::new()),
    });
    let error = disk::write_all(node.root.path(), &changes).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot make the folder of `/etc/containerd/config.toml/x.toml`"
    );
    assert_eq!(
        (node.text(MAIN).as_deref(), node.text(DROP_IN)),
        (Some("version = 3\n"), None)
    );
}

#[test]
fn imports_are_followed_as_containerd_does() {
    let node = Node::new("version = 3\nimports = ['conf.d/*.toml', '/etc/x.toml', '/none.toml']\n");
    fs::create_dir_all(node.path("/etc/containerd/conf.d")).unwrap();
    fs::write(
        node.path("/etc/containerd/conf.d/b.toml"),
        "imports = ['/etc/y.toml']\n",
    )
    .unwrap();
    fs::write(
        node.path("/etc/containerd/conf.d/a.toml"),
        "imports = ['/etc/containerd/config.toml']\n",
    )
    .unwrap();
    fs::write(node.path("/etc/containerd/conf.d/c.txt"), "").unwrap();
    fs::write(node.path("/etc/x.toml"), "").unwrap();
    fs::write(node.path("/etc/y.toml"), "").unwrap();
    let files = read_containerd(node.root.path(), MAIN.as_ref(), DROP_IN.as_ref(), None).unwrap();
    let paths: Vec<_> = files
        .imported
        .iter()
        .map(|file| file.path.display().to_string())
        .collect();
    let expected = [
        "/etc/containerd/conf.d/a.toml",
        "/etc/containerd/conf.d/b.toml",
        "/etc/x.toml",
        "/etc/y.toml",
    ];
    assert_eq!(paths, expected);
}

#[test]
fn a_link_is_followed_below_the_host_root_and_stays_a_link() {
    let node = Node::new("");
    fs::rename(node.path(MAIN), node.path("/etc/real.toml")).unwrap();
    fs::write(node.path("/etc/real.toml"), "version = 3\n").unwrap();
    std::os::unix::fs::symlink("/etc/real.toml", node.path(MAIN)).unwrap();
    node.carry_out(&node.plan(), &node.apply(None)).unwrap();
    assert!(node.text("/etc/real.toml").unwrap().contains("imports"));
    assert!(fs::symlink_metadata(node.path(MAIN)).unwrap().is_symlink());
}

#[test]
fn a_folder_that_is_a_link_is_followed_below_the_host_root() {
    let node = Node::new("version = 3\n");
    fs::create_dir_all(node.path("/var")).unwrap();
    std::os::unix::fs::symlink("/run", node.path("/var/run")).unwrap();
    std::os::unix::fs::symlink("../../../../..", node.path("/run/up")).unwrap();
    let found = |path: &str| host_path::resolve(node.root.path(), Path::new(path)).unwrap();
    assert_eq!(found("/var/run/c.sock"), node.path("/run/c.sock"));
    assert_eq!(found("/run/up/etc/x"), node.path("/etc/x"));
}

/// Flushes no folder from the `at`-th time on.
fn failing_from(at: usize) -> impl Fn(&Path) -> std::io::Result<()> {
    let count = std::cell::Cell::new(0);
    move |_| {
        count.set(count.get() + 1);
        if count.get() < at {
            return Ok(());
        }
        Err(std::io::Error::other("a worn out disk"))
    }
}

#[test]
fn a_change_whose_folder_cannot_be_flushed_is_taken_back_like_those_before_it() {
    let main = "version = 3\n";
    for at in 1..=2 {
        let node = Node::new(main);
        let changes = node.plan().changes;
        assert_eq!(changes.len(), 2);
        let error = disk::write_and_flush(node.root.path(), &changes, &failing_from(at)).unwrap_err();
        assert!(error.to_string().starts_with("cannot flush the folder of"), "{error}");
        assert_eq!(
            (node.text(MAIN).as_deref(), node.text(DROP_IN)),
            (Some(main), None),
            "{at}"
        );
    }
}

#[test]
fn what_could_not_be_read_again_is_not_written() {
    let node = Node::new("version = 3\n");
    let change = |path: &Path, length| FileChange {
        path: path.to_owned(),
        before: None,
        after: Some("x".repeat(length)),
    };
    let receipt = receipt_path(MAIN.as_ref());
    let changes = [change(DROP_IN.as_ref(), 1), change(&receipt, (16 << 20) + 1)];
    let error = disk::write_all(node.root.path(), &changes).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot write `/etc/containerd/config.toml.gpu-runtime-config`"
    );
    assert_eq!(node.names(), ["config.toml"]);
}

#[test]
fn a_hosts_root_that_is_no_folder_is_named() {
    let node = Node::new("");
    for root in ["/nowhere", MAIN] {
        let root = node.path(root);
        let error = lock(&root, &Stop::default()).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("cannot open the host's root `{}`", root.display())
        );
    }
}

#[test]
fn one_program_at_a_time_changes_a_hosts_files() {
    let node = Node::new("");
    let stop = Stop::default();
    let first = lock(node.root.path(), &stop).unwrap();
    std::thread::scope(|scope| {
        let second = scope.spawn(|| lock(node.root.path(), &stop).map(drop));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!second.is_finished());
        drop(first);
        second.join().unwrap().unwrap();
    });
    let _first = lock(node.root.path(), &stop).unwrap();
    stop.stop();
    assert!(matches!(lock(node.root.path(), &stop), Err(Error::Stopped { .. })));
}

#[test]
fn what_killed_processes_left_of_a_file_is_removed_and_nothing_else() {
    let node = Node::new("version = 3\n");
    for name in [
        "config.toml.7.gpu-runtime-config.tmp",
        "config.toml.x.7.gpu-runtime-config.tmp",
    ] {
        fs::write(node.path("/etc/containerd").join(name), "").unwrap();
    }
    node.carry_out(&node.plan(), &node.apply(None)).unwrap();
    let names = ["conf.d", "config.toml", "config.toml.gpu-runtime-config"];
    let others = ["config.toml.x.7.gpu-runtime-config.tmp"];
    assert_eq!(node.names(), [&names[..], &others].concat());
}

#[test]
fn what_killed_processes_left_is_removed_where_the_files_are_right() {
    let node = Node::new("version = 3\n");
    let left = || {
        for name in [
            "config.toml.7.gpu-runtime-config.tmp",
            "config.toml.gpu-runtime-config.7.gpu-runtime-config.tmp",
            "conf.d/99-nvidia.toml.7.gpu-runtime-config.tmp",
        ] {
            fs::write(node.path("/etc/containerd").join(name), "").unwrap();
        }
    };
    node.carry_out(&node.plan(), &node.apply(None)).unwrap();
    left();
    let outcome = node.carry_out(&node.plan(), &node.apply(None)).unwrap();
    assert!(matches!(outcome, Outcome::Unchanged), "{outcome:?}");
    assert_eq!(
        node.names(),
        ["conf.d", "config.toml", "config.toml.gpu-runtime-config"]
    );
    assert_eq!(fs::read_dir(node.path("/etc/containerd/conf.d")).unwrap().count(), 1);
    left();
    node.revert();
    assert_eq!(node.names(), ["config.toml"]);
}

#[test]
fn what_cannot_be_written_is_found_before_any_file_changes() {
    let node = Node::new("version = 3\n");
    let mut changes = node.plan().changes;
    // A folder that cannot be made, because a file is in its place.
    changes.push(FileChange {
        path: Path::new(MAIN).join("x.toml"),
        before: None,
        after: Some(String::new()),
    });
    let flush = |path: &Path| panic!("something in `{}` has changed", path.display());
    disk::write_and_flush(node.root.path(), &changes, &flush).unwrap_err();
    assert_eq!(fs::read_dir(node.path("/etc/containerd/conf.d")).unwrap().count(), 0);
    assert_eq!(node.names(), ["conf.d", "config.toml"]);
}

fn command(name: &str, arguments: &[&OsStr]) {
    let status = std::process::Command::new(name).args(arguments).status().unwrap();
    assert!(status.success(), "{name}");
}

#[test]
#[ignore = "needs root: it mounts a file"]
fn a_file_that_is_a_mount_point_says_so_and_what_to_do() {
    let node = Node::new("version = 3\n");
    let main = node.path(MAIN);
    command("mount", &[OsStr::new("--bind"), main.as_os_str(), main.as_os_str()]);
    let error = node.carry_out(&node.plan(), &node.apply(None)).unwrap_err();
    let source = std::error::Error::source(&error).map(ToString::to_string);
    command("umount", &[main.as_os_str()]);
    assert_eq!(
        source.as_deref(),
        Some("it is a mount point, and cannot be replaced: mount the folder that it is in")
    );
    assert_eq!(node.names(), ["config.toml"]);
}

#[test]
#[ignore = "needs root: it mounts a small file system"]
fn a_full_disk_changes_nothing() {
    let main = format!("version = 3\nimports = ['x.toml']\n{}", "# a line\n".repeat(2700));
    let mut outcomes = Vec::new();
    for pages in 0..32 {
        let node = Node::new("");
        let root = node.root.path().to_owned();
        let small = ["-ttmpfs", "-osize=256k", "tmpfs"].map(OsStr::new);
        command("mount", &[&small[..], &[root.as_os_str()]].concat());
        fs::create_dir_all(node.path("/etc/containerd")).unwrap();
        fs::write(node.path(MAIN), &main).unwrap();
        fs::write(node.path("/fill"), vec![0; 4096 * pages + 65536]).unwrap();
        let result = node.carry_out(&node.plan(), &node.apply(None));
        let is_changed = node.text(MAIN).as_deref() != Some(&main) || node.text(DROP_IN).is_some();
        assert_eq!(result.is_ok(), is_changed, "{pages}: {result:?}");
        outcomes.push(is_changed);
        command("umount", &[root.as_os_str()]);
    }
    assert!(outcomes.contains(&true) && outcomes.contains(&false), "{outcomes:?}");
}

#[test]
fn a_drop_in_that_is_the_main_file_by_a_link_is_refused() {
    let node = Node::new("version = 3\n");
    std::os::unix::fs::symlink("containerd", node.path("/etc/same")).unwrap();
    let drop_in = Path::new("/etc/same/config.toml");
    let error = read_containerd(node.root.path(), MAIN.as_ref(), drop_in, None).unwrap_err();
    let expected = "`/etc/same/config.toml` cannot be a drop-in: it is the main file";
    assert_eq!(error.to_string(), expected);
    let error = read_crio(node.root.path(), MAIN.as_ref(), drop_in, None).unwrap_err();
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_drop_in_in_the_place_of_the_receipt_is_refused() {
    let node = Node::new("version = 3\n");
    let drop_in = receipt_path(MAIN.as_ref());
    let error = read_containerd(node.root.path(), MAIN.as_ref(), &drop_in, None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`/etc/containerd/config.toml.gpu-runtime-config` cannot be a drop-in: it is the receipt of the main file"
    );
}

#[test]
fn an_engine_that_accepts_no_connections_is_not_waited_for_after_the_stop() {
    let node = Node::new("version = 3\n");
    let full = UnixListener::bind(node.path("/run/c.sock")).unwrap();
    rustix::net::listen(&full, 0).unwrap();
    let _queued = std::os::unix::net::UnixStream::connect(node.path("/run/c.sock")).unwrap();
    let stop = Stop::default();
    let how = Apply {
        restart: Restart::Signal {
            socket: Socket::own("/run/c.sock"),
        },
        stop: stop.clone(),
        ..node.apply(Some(health()))
    };
    let start = std::time::Instant::now();
    std::thread::scope(|scope| {
        let applied = scope.spawn(|| node.carry_out(&node.plan(), &how));
        while node.text(DROP_IN).is_none() {
            std::thread::yield_now();
        }
        // It is now asked which process it is, before any is told to read its files.
        stop.stop();
        let outcome = applied.join().unwrap().unwrap();
        assert_eq!(
            outcome.to_string(),
            "the old files are back, since it was told to end before the engine was told to read its files"
        );
    });
    assert_eq!(
        (node.text(MAIN).as_deref(), node.text(DROP_IN)),
        (Some("version = 3\n"), None)
    );
    assert_eq!(node.names(), ["config.toml"]);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[test]
fn what_is_to_end_makes_no_change_and_takes_back_what_was_made() {
    let node = Node::new("version = 3\n");
    let stopped = || {
        let how = node.apply(Some(Health {
            timeout: Duration::from_mins(10),
            ..health()
        }));
        how.stop.stop();
        how
    };
    let error = node.carry_out(&node.plan(), &stopped()).unwrap_err();
    assert_eq!(error.to_string(), "it was told to end before anything was changed");
    assert_eq!(node.names(), ["config.toml"]);
    assert_eq!(node.text(MAIN).as_deref(), Some("version = 3\n"));

    node.carry_out(&node.plan(), &node.apply(None)).unwrap();
    assert!(node.text(DROP_IN).is_some());
    let outcome = node.revert_as(&stopped()).unwrap();
    assert!(matches!(outcome, Outcome::NotAwaited { untold: None }), "{outcome:?}");
    assert_eq!(node.names(), ["config.toml"]);
    assert_eq!(node.text(MAIN).as_deref(), Some("version = 3\n"));
}

#[test]
fn where_nobody_is_told_or_waited_for_a_change_is_made_whole() {
    let node = Node::new("version = 3\n");
    node.carry_out(&node.plan(), &node.apply(None)).unwrap();
    let how = node.apply(None);
    how.stop.stop();
    let outcome = node.revert_as(&how).unwrap();
    assert!(matches!(outcome, Outcome::Applied), "{outcome:?}");
    assert_eq!(node.names(), ["config.toml"]);
}

#[test]
fn what_was_taken_back_stays_so_where_the_engine_is_not_waited_for() {
    let node = Node::new("version = 3\n");
    node.carry_out(&node.plan(), &node.apply(None)).unwrap();
    let stop = Stop::default();
    let how = Apply {
        stop: stop.clone(),
        health: Some(Health {
            timeout: Duration::from_mins(10),
            ..health()
        }),
        ..node.apply(None)
    };
    std::thread::scope(|scope| {
        let reverted = scope.spawn(|| node.revert_as(&how));
        while node.text(DROP_IN).is_some() {
            std::thread::yield_now();
        }
        stop.stop();
        let outcome = reverted.join().unwrap().unwrap();
        assert!(matches!(outcome, Outcome::NotAwaited { untold: None }), "{outcome:?}");
    });
    assert_eq!(node.text(MAIN).as_deref(), Some("version = 3\n"));
    assert_eq!(node.names(), ["config.toml"]);
}

#[test]
fn a_file_whose_name_is_not_utf8_is_not_edited_and_one_beside_it_is() {
    let node = Node::new("");
    let root = node.root.path();
    let folder = Path::new("/etc/containerd");
    let settings = Settings {
        runtimes: vec![Runtime::new("nvidia", "/t/n")],
        ..Settings::default()
    };

    let daemon = folder.join(OsStr::from_bytes(b"d\xff.json"));
    let found = read_file(root, &daemon).unwrap();
    let error = docker::configure(&found, &[], &settings, None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`/etc/containerd/d\u{fffd}.json` is not edited: its name is not UTF-8, and no receipt could name it"
    );

    // It imports the drop-in, so that nothing of it changes; its receipt has its name.
    let main = folder.join(OsStr::from_bytes(b"m\xff.toml"));
    let text = "version = 3\nimports = ['/etc/containerd/conf.d/*.toml']\n";
    fs::write(node.path("/etc/containerd").join(main.file_name().unwrap()), text).unwrap();
    let how = Apply {
        main: main.clone(),
        ..node.apply(None)
    };
    let files = read_containerd(root, &main, DROP_IN.as_ref(), None).unwrap();
    let placement = containerd::Placement::Auto;
    let plan = containerd::configure(&files, Some("2.1".parse().unwrap()), placement, &settings, None).unwrap();
    node.carry_out(&plan, &how).unwrap();
    assert!(node.text(DROP_IN).is_some());
    node.revert_as(&how).unwrap();
    assert!(node.text(DROP_IN).is_none());
    assert!(read_receipt(root, &main).unwrap().is_none());
}

#[test]
fn a_folder_whose_name_is_not_utf8_is_not_made() {
    let node = Node::new("version = 3\n");
    let before = node.names();
    let plan = node.plan();
    let conf_d = node.path("/etc/containerd/conf.d");
    std::os::unix::fs::symlink(OsStr::from_bytes(b"/etc/d\xff"), &conf_d).unwrap();
    let error = node.carry_out(&plan, &node.apply(None)).unwrap_err();
    assert!(matches!(error, Error::Config(ConfigError::NotUtf8 { .. })), "{error}");
    fs::remove_file(conf_d).unwrap();
    assert_eq!(node.names(), before);
    assert_eq!(node.text(MAIN).as_deref(), Some("version = 3\n"));
}

/// A list for the owner, one more user, the group and others; the mode shows its mask in the place of the group.
fn access_list(group: u16) -> Vec<u8> {
    let mut list = 2u32.to_le_bytes().to_vec();
    let anybody = u32::MAX;
    for (tag, may, who) in [
        (1u16, 6u16, anybody),
        (2, 6, 1000),
        (4, group, anybody),
        (16, 6, anybody),
        (32, 0, anybody),
    ] {
        list.extend(tag.to_le_bytes());
        list.extend(may.to_le_bytes());
        list.extend(who.to_le_bytes());
    }
    list
}

fn attribute(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = [0u8; 256];
    let length = rustix::fs::getxattr(path, name, &mut value[..]).ok()?;
    Some(value[..length].to_vec())
}

#[test]
fn who_may_read_a_file_stays() {
    let (acl, default_acl) = ("system.posix_acl_access", "system.posix_acl_default");
    let none = rustix::fs::XattrFlags::empty();
    let node = Node::new("version = 3\n");
    let main = node.path(MAIN);
    rustix::fs::setxattr(&main, acl, &access_list(0), none).unwrap();
    rustix::fs::setxattr(&main, "user.whose", b"mine", none).unwrap();
    let check = || {
        assert_eq!(attribute(&main, acl), Some(access_list(0)));
        assert_eq!(attribute(&main, "user.whose").as_deref(), Some(&b"mine"[..]));
        assert_eq!(fs::metadata(&main).unwrap().permissions().mode() & 0o777, 0o660);
    };
    check();
    node.carry_out(&node.plan(), &node.apply(None)).unwrap();
    check();
    node.revert();
    check();

    // One that the folder gives its new files is not this file's.
    let node = Node::new("version = 3\n");
    rustix::fs::setxattr(node.path("/etc/containerd"), default_acl, &access_list(0), none).unwrap();
    node.carry_out(&node.plan(), &node.apply(None)).unwrap();
    assert!(node.text(MAIN).unwrap().contains("imports"));
    assert_eq!(attribute(&node.path(MAIN), acl), None);
}

#[test]
#[ignore = "needs root"]
fn mode_and_owner_stay() {
    let main = "version = 3\n";
    let node = Node::new(main);
    std::os::unix::fs::chown(node.path(MAIN), Some(1234), Some(55)).unwrap();
    let state = |path: &str| {
        use std::os::unix::fs::MetadataExt as _;
        let status = fs::metadata(node.path(path)).unwrap();
        (status.uid(), status.gid(), status.mode() & 0o7777)
    };
    node.carry_out(&node.plan(), &node.apply(None)).unwrap();
    assert_ne!(node.text(MAIN).as_deref(), Some(main));
    assert_eq!(state(MAIN), (1234, 55, 0o640));
    node.revert();
    assert_eq!(state(MAIN), (1234, 55, 0o640));
}

#[test]
#[ignore = "needs root, and a file system with labels of SELinux"]
fn the_selinux_label_stays() {
    let node = Node::new("version = 3\n");
    let label = c"system_u:object_r:etc_t:s0";
    let attribute = "security.selinux";
    let flags = rustix::fs::XattrFlags::empty();
    // Where SELinux does not run any label is taken, and its policies know this one.
    rustix::fs::setxattr(node.path(MAIN), attribute, label.to_bytes_with_nul(), flags).unwrap();
    node.carry_out(&node.plan(), &node.apply(None)).unwrap();
    let mut found = [0u8; 256];
    let length = rustix::fs::getxattr(node.path(MAIN), attribute, &mut found[..]).unwrap();
    assert_eq!(&found[..length], label.to_bytes_with_nul());
}
