//! The Multi-Process Service, driven as the device plugin's MPS daemon drives it: commands on standard input.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::{fs::MetadataExt as _, net::UnixStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use gpu_sim::NodeSpec;

use crate::{Simulated, output};

/// Folders of a daemon, and the node whose program it is. The daemon ends with the value.
struct Mps {
    node: Simulated,
    folder: tempfile::TempDir,
}

impl Mps {
    fn new() -> Self {
        Self {
            node: Simulated::new(&NodeSpec::new("h100").gpus(1)),
            folder: tempfile::tempdir().expect("a temporary folder can be made"),
        }
    }

    fn started() -> Self {
        let mps = Self::new();
        assert_eq!(mps.run("-d", ""), (String::new(), String::new(), 0));
        mps
    }

    fn program(&self) -> Command {
        let mut command = Command::new(self.node.node.root().join("usr/bin/nvidia-cuda-mps-control"));
        command
            .env("CUDA_MPS_PIPE_DIRECTORY", self.pipe())
            .env("CUDA_MPS_LOG_DIRECTORY", self.folder.path().join("log"));
        command
    }

    fn pipe(&self) -> PathBuf {
        self.folder.path().join("pipe")
    }

    /// What it prints, says on stderr, and its exit code.
    fn run(&self, arguments: &str, commands: &str) -> (String, String, i32) {
        let input = self.folder.path().join("commands");
        fs::write(&input, commands).expect("a file can be written");
        let mut command = self.program();
        command
            .args(arguments.split_whitespace())
            .stdin(fs::File::open(input).expect("the file is there"));
        let output = output(&mut command);
        let text = |bytes| String::from_utf8(bytes).expect("it prints UTF-8");
        (
            text(output.stdout),
            text(output.stderr),
            output.status.code().expect("it ends by itself"),
        )
    }

    /// What the front end prints of commands that the daemon answers.
    #[track_caller]
    fn ask(&self, commands: &str) -> String {
        let (out, err, code) = self.run("", commands);
        assert_eq!((err.as_str(), code), ("", 0), "{commands}");
        out
    }

    /// Lines of a log, without the time and number in front.
    fn log(&self, name: &str) -> Vec<String> {
        let log = fs::read_to_string(self.folder.path().join("log").join(name)).expect("the log is there");
        let line = |line: &str| {
            let (head, text) = line.split_once("] ").expect("a line has a head");
            let words: Vec<&str> = head.trim_start_matches('[').split_whitespace().collect();
            assert!(
                matches!(words.as_slice(), [date, time, _, pid]
                if date.len() == 10 && time.len() == 12 && pid.parse::<u32>().is_ok()),
                "{line}"
            );
            text.to_owned()
        };
        log.lines().map(line).collect()
    }

    /// A client, with what the daemon answers it.
    fn client(&self) -> (UnixStream, String) {
        let stream = UnixStream::connect(self.pipe().join("control")).expect("the daemon listens");
        let mut answer = String::new();
        BufReader::new(&stream)
            .read_line(&mut answer)
            .expect("the daemon answers");
        (stream, answer.trim_end().to_owned())
    }
}

impl Drop for Mps {
    fn drop(&mut self) {
        if self.pipe().join("control_privileged").exists() {
            let _ = self.run("", "quit -t 0\n");
        }
    }
}

#[test]
fn limits_are_kept_between_front_ends() {
    let mps = Mps::started();
    assert_eq!(mps.ask("get_default_active_thread_percentage\n"), "100.0\n");
    assert_eq!(mps.ask("set_default_device_pinned_mem_limit 0 10240M"), "");
    assert_eq!(mps.ask("set_default_active_thread_percentage 25"), "25.0\n");
    assert_eq!(
        mps.ask("get_default_active_thread_percentage\n\nget_default_device_pinned_mem_limit 0\n"),
        "25.0\n10240M\n"
    );
    let refused = mps.ask("set_default_active_thread_percentage 0\nget_default_active_thread_percentage\n");
    assert_eq!(refused, "`0` is no percentage above 0 and up to 100\n25.0\n");
}

#[test]
fn a_daemon_leaves_what_the_vendors_does_and_takes_it_away_when_it_quits() {
    let mps = Mps::started();
    let names = || {
        let entries = fs::read_dir(mps.pipe()).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    assert_eq!(
        names(),
        [
            "control",
            "control_lock",
            "control_privileged",
            "nvidia-cuda-mps-control.pid"
        ]
    );
    let mode = |name: &str| fs::metadata(mps.pipe().join(name)).unwrap().mode() & 0o777;
    assert_eq!((mode("control"), mode("control_privileged")), (0o666, 0o600));
    let pid = fs::read_to_string(mps.pipe().join("nvidia-cuda-mps-control.pid")).unwrap();
    let command_line = fs::read(format!("/proc/{}/cmdline", pid.trim())).unwrap();
    assert_eq!(command_line, b"nvidia-cuda-mps-control\0-d\0");

    assert_eq!(mps.ask("quit\n"), "");
    assert_eq!(names(), ["control_lock"]);
    let socket = mps.pipe().join("control");
    let pipe = mps.pipe();
    assert_eq!(
        mps.log("control.log"),
        [
            format!("Starting control daemon using socket {}", socket.display()),
            format!(
                "To connect CUDA applications to this daemon, set env CUDA_MPS_PIPE_DIRECTORY={}",
                pipe.display()
            ),
            "NEW UI".to_owned(),
            "Cmd:quit".to_owned(),
            "Exit".to_owned(),
        ]
    );
}

#[test]
fn without_a_daemon_there_is_none_to_ask_and_a_second_one_is_refused() {
    let mps = Mps::new();
    let none = (String::new(), "Cannot find MPS control daemon process\n".to_owned(), 1);
    assert_eq!(mps.run("", "get_server_list\n"), none);
    assert_eq!(mps.run("-d", "").2, 0);
    for second in ["-d", "-f"] {
        let (out, err, code) = mps.run(second, "");
        assert_eq!((out.as_str(), code), ("", 1));
        assert!(
            err.starts_with("An instance of this daemon is already running\n"),
            "{err}"
        );
    }
    assert_eq!(mps.ask("get_server_list\n"), "", "the first one still serves");
    mps.ask("quit\n");
    assert_eq!(mps.run("", "get_server_list\n"), none);
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let mps = Mps::new();
    fs::write(mps.pipe(), "").unwrap();
    let (_, err, code) = mps.run("-d", "");
    let expected = format!("cannot use `{}`: File exists (os error 17)\n", mps.pipe().display());
    assert!(err.starts_with(&expected), "{err}");
    assert_eq!(code, 1);
}

#[test]
fn a_daemon_that_was_killed_leaves_the_way_free_and_takes_its_server_with_it() {
    let mps = Mps::started();
    let (_client, answer) = mps.client();
    let server = answer.split(' ').nth(1).unwrap().to_owned();
    let pid = fs::read_to_string(mps.pipe().join("nvidia-cuda-mps-control.pid")).unwrap();
    assert!(
        Command::new("kill")
            .args(["-9", pid.trim()])
            .status()
            .unwrap()
            .success()
    );
    wait_until_gone(&server);
    assert_eq!(
        mps.run("", "get_server_list\n").1,
        "Cannot find MPS control daemon process\n"
    );
    assert_eq!(mps.run("-d", "").2, 0);
    assert_eq!(mps.ask("get_server_list\n"), "");
}

/// The kernel tells the server that its input has ended; that takes a moment.
fn wait_until_gone(pid: &str) {
    let ended = || match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.contains(") Z "),
        Err(_) => true,
    };
    while !ended() {
        std::thread::yield_now();
    }
}

#[test]
fn clients_share_one_server_that_their_leaving_does_not_end() {
    let mps = Mps::started();
    mps.ask("set_default_active_thread_percentage 50\nset_default_device_pinned_mem_limit 0 5G\n");
    let (first, answer) = mps.client();
    let (second, again) = mps.client();
    assert_eq!(answer, again);
    let [word, server, percentage] = answer.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{answer}")
    };
    assert_eq!((word, percentage), ("server", "50.0"));
    assert_eq!(mps.ask("get_server_list\n"), format!("{server}\n"));
    assert_eq!(mps.ask(&format!("get_server_status {server}\n")), "ACTIVE\n");
    let me = std::process::id();
    assert_eq!(mps.ask(&format!("get_client_list {server}\n")), format!("{me}\n{me}\n"));
    assert_eq!(
        mps.ask("start_server -uid 0\n"),
        format!("Server {server} runs already\n")
    );

    drop((first, second));
    // The daemon sees it when the kernel tells it.
    while !mps.ask(&format!("get_client_list {server}\n")).is_empty() {}
    assert_eq!(mps.ask("get_server_list\n"), format!("{server}\n"));
    assert_eq!(mps.ask(&format!("shutdown_server {server}\nget_server_list\n")), "");
    assert_eq!(
        mps.log("server.log"),
        [
            "Startup".to_owned(),
            "Initializing server process".to_owned(),
            "Active Threads Percentage set to 50.0".to_owned(),
            "Device pinned memory limit for device 0 set to 0x140000000 bytes".to_owned(),
            "Server has started".to_owned(),
            format!("Client {{PID: {me}}} connected"),
            format!("Client {{PID: {me}}} connected"),
            format!("Client {{PID: {me}}} disconnected"),
            format!("Client {{PID: {me}}} disconnected"),
            "Server exit".to_owned(),
        ]
    );
    let uid = fs::metadata(mps.pipe()).unwrap().uid();
    let log = mps.log("control.log");
    let has = |line: String| assert!(log.contains(&line), "{line} in {log:#?}");
    has(format!(
        "NEW CLIENT {me} from user {uid}: Server is not ready, push client to pending list"
    ));
    has(format!("NEW SERVER {server}: Ready"));
    has(format!("NEW CLIENT {me} from user {uid}: Server already exists"));
}

#[test]
fn a_server_that_dies_is_noticed_and_the_next_client_gets_another() {
    let mps = Mps::started();
    let (_client, answer) = mps.client();
    let server = answer.split(' ').nth(1).unwrap();
    assert!(Command::new("kill").args(["-9", server]).status().unwrap().success());
    wait_until_gone(server);
    assert_eq!(mps.ask("get_server_list\n"), "");
    let (_next, answer) = mps.client();
    assert!(answer.starts_with("server "), "{answer}");
    assert_ne!(answer.split(' ').nth(1), Some(server));
}

#[test]
fn a_49th_client_is_refused() {
    let mps = Mps::started();
    let clients: Vec<_> = (0..48).map(|_| mps.client()).collect();
    assert!(clients.iter().all(|(_, answer)| answer.starts_with("server ")));
    assert_eq!(mps.client().1, "refused the server has 48 clients");
}

#[test]
fn quitting_waits_for_clients_as_long_as_it_is_told() {
    let mps = Mps::started();
    let (client, _) = mps.client();
    let mut waiting: Child = mps
        .program()
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    waiting.stdin.take().unwrap().write_all(b"quit\n").unwrap();
    // Until it has read the command it takes clients as before.
    while mps.client().1 != "refused the daemon ends" {}
    assert_eq!(waiting.try_wait().unwrap(), None);
    drop(client);
    assert!(waiting.wait().unwrap().success());

    let mps = Mps::started();
    let (_client, _) = mps.client();
    assert_eq!(mps.ask("quit -t 0\n"), "");
}
