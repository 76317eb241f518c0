//! The service: it listens for other nodes, looks for them, and says whether it is ready.

use std::{
    fs::File,
    io::{self, Write as _},
    net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use super::{
    config::{self, Config},
    failure::Failure,
};
use crate::smi::Date;

/// How often missing nodes are looked for; names are resolved each time, as they may mean another address by then.
const PAUSE: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_millis(500);

struct Log {
    file: File,
    echo: bool,
}

impl Log {
    /// A log that cannot be written ends nothing.
    fn line(&self, text: &str) {
        let line = format!("[{}] {text}\n", Date::now().iso());
        let _ = (&self.file).write_all(line.as_bytes());
        if self.echo {
            let _ = io::stdout().write_all(line.as_bytes());
        }
    }
}

/// Serves until it is killed; `serving` is called when nodes and commands are answered.
pub(super) fn run(config: &Config, echo: bool, serving: impl FnOnce() -> io::Result<()>) -> Result<(), Failure> {
    let nodes = config::nodes(&config.nodes)?;
    let file = File::options().append(true).create(true).open(&config.log);
    let file = file.map_err(|source| Failure::Log {
        path: config.log.clone(),
        source,
    })?;
    let log = Log { file, echo };
    let own = SocketAddr::new(config.ip, config.port);
    let listener = TcpListener::bind(own).map_err(Failure::listening(own))?;
    let ready = Arc::new(AtomicBool::new(false));
    if let Some(address) = config.command {
        let commands = TcpListener::bind(address).map_err(Failure::listening(address))?;
        let ready = Arc::clone(&ready);
        thread::spawn(move || answer(&commands, &ready));
    }
    // A connection is all that a node wants to see.
    thread::spawn(move || for_each(&listener, drop));
    log.line(&format!("listening on {own}, {} nodes", nodes.len()));
    for key in &config.others {
        log.line(&format!("{key} is not simulated"));
    }
    serving().map_err(Failure::Start)?;
    watch(config, &nodes, &ready, &log)
}

fn answer(commands: &TcpListener, ready: &AtomicBool) {
    for_each(commands, |mut stream| {
        let state: &[u8] = if ready.load(Ordering::Relaxed) {
            b"READY\n"
        } else {
            b"INITIALIZING\n"
        };
        let _ = stream.write_all(state); // who asked has gone
    });
}

fn for_each(listener: &TcpListener, serve: impl Fn(TcpStream)) {
    loop {
        match listener.accept() {
            Ok((stream, _)) => serve(stream),
            Err(_) => thread::sleep(PAUSE), // such as too many open files
        }
    }
}

/// Looks for nodes that were not there, and tells when one is or is no more.
fn watch(config: &Config, nodes: &[String], ready: &AtomicBool, log: &Log) -> ! {
    let mut there = vec![false; nodes.len()];
    loop {
        for (node, was) in nodes.iter().zip(&mut there) {
            let is = is_there(node, config.port);
            if is != *was {
                log.line(&format!("node {node} is {}", if is { "connected" } else { "gone" }));
                *was = is;
            }
        }
        let now = !config.wait_for_all || there.iter().all(|there| *there);
        // A service that has been ready stays so.
        if now && !ready.swap(true, Ordering::Relaxed) {
            log.line("READY");
        }
        thread::sleep(PAUSE);
    }
}

fn is_there(node: &str, port: u16) -> bool {
    let Ok(mut addresses) = (node, port).to_socket_addrs() else {
        return false;
    };
    addresses.any(|address| TcpStream::connect_timeout(&address, PATIENCE).is_ok())
}
