use std::{
    env, fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::{fs::symlink, net::UnixStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use gpu_core::{
    ComputeMode, Inventory,
    nvml::{Library, LibrarySearch},
};
use gpu_sharing::{
    config::ResourceName,
    mps::{Agreement, Root, agreement},
};
use gpu_sim::{Node, NodeSpec};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// More than anything needs on a busy machine.
pub(crate) const LONG: Duration = Duration::from_mins(1);

/// A simulated node with two H100, an MPS root, and a control program.
pub(crate) struct Setup {
    folder: TempDir,
    node: Node,
}

impl Setup {
    pub(crate) fn new(config: &str) -> Self {
        let folder = TempDir::new().expect("a temporary folder can be made");
        let spec = NodeSpec::new("h100").gpus(2);
        let node = Node::create(&spec, folder.path().join("node")).expect("a node can be made");
        let setup = Self { folder, node };
        setup.configure(config);
        fs::create_dir(setup.path("bin")).expect("a folder can be made");
        let here = env::current_exe().expect("this program has a path");
        symlink(here, setup.control()).expect("a link can be made");
        setup
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn control(&self) -> PathBuf {
        self.path("bin/nvidia-cuda-mps-control")
    }

    /// Writes the configuration file, as a mounted `ConfigMap` changes.
    pub(crate) fn configure(&self, config: &str) {
        fs::write(self.path("new.yaml"), config).expect("a file can be written");
        fs::rename(self.path("new.yaml"), self.path("config.yaml")).expect("a file can be renamed");
    }

    pub(crate) fn root(&self) -> Root {
        Root::new(self.path("mps"))
    }

    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        self.start_without("", arguments)
    }

    /// Starts the program without one of the flags that say where this node is.
    pub(crate) fn start_without(&self, flag: &str, arguments: &[&str]) -> Running {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let address = listener.local_addr().expect("it has an address");
        drop(listener);
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.path("log"))
            .expect("a file can be made");
        let usual = [
            ("config-file", self.path("config.yaml")),
            ("mps-dir", self.root().path().to_owned()),
            ("mps-control", self.control()),
            ("nvml-library", self.node.library()),
            ("host-root", self.node.root()),
            ("listen", address.to_string().into()),
        ];
        let usual = usual.into_iter().filter(|(name, _)| *name != flag);
        let child = Command::new(env!("CARGO_BIN_EXE_gpu-mps-daemon"))
            .env_clear()
            .env("RUST_LOG", "info,gpu_examples=debug")
            .args(usual.map(|(name, value)| format!("--{name}={}", value.display())))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the program starts");
        Running { child, address }
    }

    pub(crate) fn path_of_log(&self) -> PathBuf {
        self.path("log")
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    #[track_caller]
    pub(crate) fn wait_for(&self, what: &str, mut done: impl FnMut() -> bool) {
        let start = Instant::now();
        while !done() {
            assert!(
                start.elapsed() < LONG,
                "{what} does not come; the log says:\n{}",
                self.log()
            );
            thread::sleep(Duration::from_millis(20));
        }
    }

    #[track_caller]
    pub(crate) fn wait_until_ready(&self) {
        self.wait_for("readiness", || self.root().ready().exists());
    }

    /// What the daemon of a resource says to a command.
    pub(crate) fn ask(&self, resource: &str, command: &str) -> String {
        let resource: ResourceName = resource.parse().expect("a resource's name");
        let mut child = Command::new(self.control())
            .env_clear()
            .env("CUDA_MPS_PIPE_DIRECTORY", self.root().pipe(&resource))
            .env("CUDA_MPS_LOG_DIRECTORY", self.root().log(&resource))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the control program starts");
        let mut stdin = child.stdin.take().expect("it has one");
        writeln!(stdin, "{command}").expect("it reads");
        drop(stdin);
        let output = child.wait_with_output().expect("it ends");
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    }

    /// The process that is the daemon of a resource.
    pub(crate) fn daemon(&self, resource: &str) -> Option<Pid> {
        let resource: ResourceName = resource.parse().expect("a resource's name");
        let file = self.root().pipe(&resource).join("nvidia-cuda-mps-control.pid");
        Pid::from_raw(fs::read_to_string(file).ok()?.trim().parse().ok()?)
    }

    pub(crate) fn agreement(&self, resource: &str) -> Option<Agreement> {
        agreement(&self.root(), &resource.parse().expect("a resource's name")).expect("the file can be understood")
    }

    /// A client of the daemon of a resource, once it is let in.
    pub(crate) fn client(&self, resource: &str) -> Client {
        let resource: ResourceName = resource.parse().expect("a resource's name");
        let stream = UnixStream::connect(self.root().pipe(&resource).join("control")).expect("the daemon listens");
        let mut answer = String::new();
        BufReader::new(&stream)
            .read_line(&mut answer)
            .expect("the daemon answers");
        assert!(!answer.is_empty());
        Client(stream)
    }

    pub(crate) fn inventory(&self) -> Inventory {
        let search = LibrarySearch {
            library: Some(self.node.library()),
            driver_root: None,
        };
        let library = Library::open(&search).expect("NVML initialises");
        library.inventory(&self.node.root()).expect("the node can be read")
    }

    pub(crate) fn modes(&self) -> Vec<ComputeMode> {
        self.inventory()
            .gpus
            .iter()
            .filter_map(|gpu| gpu.compute_mode)
            .collect()
    }

    pub(crate) fn set_mode(&self, gpu: usize, mode: ComputeMode) {
        let search = LibrarySearch {
            library: Some(self.node.library()),
            driver_root: None,
        };
        let library = Library::open(&search).expect("NVML initialises");
        let gpu = &self.inventory().gpus[gpu].uuid;
        library.set_compute_mode(gpu, mode).expect("the mode can be set");
    }

    pub(crate) fn node(&self) -> &Node {
        &self.node
    }
}

pub(crate) struct Client(UnixStream);

impl Client {
    /// Whether the daemon still holds its end.
    pub(crate) fn is_connected(&self) -> bool {
        self.0.set_nonblocking(true).expect("it can be set");
        let mut byte = [0];
        matches!((&self.0).read(&mut byte), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    }
}

/// The program, which is killed with the value.
pub(crate) struct Running {
    child: Child,
    address: SocketAddr,
}

impl Running {
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the program runs");
    }

    /// Ends it with SIGTERM; its exit code, and how long it took.
    pub(crate) fn end(mut self) -> (Option<i32>, Duration) {
        self.signal(Signal::TERM);
        let start = Instant::now();
        let status = self.child.wait().expect("it can be waited for");
        (status.code(), start.elapsed())
    }

    /// The exit code of a program that ends by itself.
    pub(crate) fn ended(mut self) -> Option<i32> {
        self.child.wait().expect("it can be waited for").code()
    }

    /// The status and body of a page.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address).expect("the program listens");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        (status.expect("a status"), body.to_owned())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
