//! The IMEX service as a compute domain's daemon runs it.

use std::{
    fs,
    net::TcpListener,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use gpu_sim::NodeSpec;

use crate::{Simulated, output};

struct Imex {
    node: Simulated,
    folder: tempfile::TempDir,
    service: Option<Child>,
}

impl Drop for Imex {
    fn drop(&mut self) {
        if let Some(mut service) = self.service.take() {
            let _ = service.kill();
            let _ = service.wait();
        }
    }
}

/// A port that nobody listens on now.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("it is bound").port()
}

impl Imex {
    fn new(nodes: &str, quorum: &str, server_port: u16) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let path = |name: &str| folder.path().join(name);
        fs::write(path("nodes.cfg"), nodes).expect("a file can be written");
        let config = format!(
            "DAEMONIZE=0\nSERVER_PORT={server_port}\nBIND_INTERFACE_IP=127.0.0.1\nIMEX_NODE_CONFIG_FILE={}\nLOG_FILE_NAME={}\n\
             IMEX_CMD_ENABLED=1\nIMEX_CMD_PORT={}\nIMEX_WAIT_FOR_QUORUM={quorum}\n",
            path("nodes.cfg").display(),
            path("imex.log").display(),
            free_port(),
        );
        fs::write(path("imexd.cfg"), config).expect("a file can be written");
        Self {
            node: Simulated::new(&NodeSpec::new("gb200").gpus(1)),
            folder,
            service: None,
        }
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.node.node.root().join("usr/bin").join(name));
        command.arg("-c").arg(self.folder.path().join("imexd.cfg"));
        command
    }

    fn start(&mut self) {
        self.service = Some(
            self.program("nvidia-imex")
                .stdout(Stdio::null())
                .spawn()
                .expect("it runs"),
        );
    }

    /// What `nvidia-imex-ctl -q` prints, or says on stderr.
    fn state(&self) -> Result<String, String> {
        let output = output(self.program("nvidia-imex-ctl").arg("-q"));
        let text = |bytes| String::from_utf8(bytes).expect("it prints UTF-8");
        if output.status.success() {
            Ok(text(output.stdout))
        } else {
            Err(text(output.stderr))
        }
    }

    /// Until it has that state.
    fn wait_for(&self, state: &str) {
        while self.state().as_deref() != Ok(state) {
            thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn a_service_that_need_not_wait_for_others_is_ready_and_one_that_is_not_there_cannot_be_asked() {
    let mut imex = Imex::new(
        "# none of these is there\n127.0.0.1\nabsent.invalid\n",
        "RECOVERY",
        free_port(),
    );
    assert!(
        imex.state()
            .unwrap_err()
            .contains("cannot ask the service at 127.0.0.1:")
    );
    imex.start();
    imex.wait_for("READY\n");
    let log = fs::read_to_string(imex.folder.path().join("imex.log")).unwrap();
    assert!(log.contains("2 nodes"), "{log}");
}

#[test]
fn a_service_waits_for_all_nodes_and_stays_ready() {
    let port = free_port();
    let mut imex = Imex::new("127.0.0.1\n127.0.0.2\n", "FULL", port);
    imex.start();
    imex.wait_for("INITIALIZING\n");
    let other = TcpListener::bind(("127.0.0.2", port)).unwrap();
    imex.wait_for("READY\n");
    drop(other);
    imex.wait_for("READY\n");
}

#[test]
fn broken_files_and_options_are_named() {
    let imex = Imex::new("", "NONE", free_port());
    let said = |command: &mut Command| {
        let output = output(command);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let nodes = imex.folder.path().join("nodes.cfg");
    assert_eq!(
        said(&mut imex.program("nvidia-imex")),
        format!("nvidia-imex: `{}` names no node\n", nodes.display())
    );
    assert_eq!(
        said(imex.program("nvidia-imex").arg("--bad")),
        "nvidia-imex: unknown option `--bad`\n"
    );
    let config = imex.folder.path().join("imexd.cfg");
    fs::write(&config, "DAEMONIZE=0\nSERVER_PORT=none\n").unwrap();
    let expected = format!("`{}` line 2: SERVER_PORT: `none` is not a port\n", config.display());
    assert_eq!(
        said(&mut imex.program("nvidia-imex")),
        format!("nvidia-imex: {expected}")
    );
    assert_eq!(
        said(imex.program("nvidia-imex-ctl").arg("-q")),
        format!("nvidia-imex-ctl: {expected}")
    );
    fs::write(&config, "").unwrap();
    let expected = format!(
        "nvidia-imex-ctl: `{}` has no command service: IMEX_CMD_ENABLED is not 1\n",
        config.display()
    );
    assert_eq!(said(imex.program("nvidia-imex-ctl").arg("-q")), expected);
}

#[test]
fn in_the_background_it_serves_when_the_command_returns() {
    let imex = Imex::new("127.0.0.1\n", "NONE", free_port());
    let config = imex.folder.path().join("imexd.cfg");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("DAEMONIZE=0", "DAEMONIZE=1")).unwrap();
    assert!(output(&mut imex.program("nvidia-imex")).status.success());
    imex.wait_for("READY\n");
    // It is the one whose command line names this configuration.
    let mine = |pid: &str| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.starts_with("nvidia-imex\0") && line.contains(config.to_str().expect("it is UTF-8"))
    };
    let pids = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let pid = pids.into_iter().find(|pid| mine(pid)).expect("the service runs");
    assert!(Command::new("kill").arg(pid).status().unwrap().success());
}
