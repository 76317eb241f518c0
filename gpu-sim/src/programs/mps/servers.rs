//! The servers of a daemon: processes that it starts, and the clients of each.

use std::{
    collections::BTreeMap,
    env,
    fs::File,
    io::{self, BufRead as _, BufReader, Write as _},
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, Stdio},
};

use super::{SERVER, command::Percentage, log::Log, peer::Peer, server, settings::Settings};

/// How many clients a server takes at most, as the vendor's manual says for Volta and later.
pub(super) const MOST_CLIENTS: usize = 48;

/// Tells the connection of one client from others, as several processes may show the same number here.
pub(super) type Connection = u64;

#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    pub(super) uid: u32,
    pub(super) percentage: Percentage,
    pub(super) clients: BTreeMap<Connection, Peer>,
    /// Whether it ends when its last client has left.
    pub(super) closing: bool,
}

impl Server {
    /// Starts one for a user and waits until clients may come.
    pub(super) fn start(uid: u32, settings: &Settings, log: &Path) -> io::Result<Self> {
        let log = File::options().append(true).create(true).open(log)?;
        let mut command = Command::new(env::current_exe()?);
        command
            .arg0(SERVER)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log);
        if uid != rustix::process::geteuid().as_raw() {
            command.uid(uid);
        }
        let child = command.spawn()?;
        let mut server = Self {
            child,
            uid,
            percentage: settings.percentage,
            clients: BTreeMap::new(),
            closing: false,
        };
        let started = server.wait_until_ready(settings);
        if started.is_err() {
            server.kill();
        }
        started.map(|()| server)
    }

    fn wait_until_ready(&mut self, settings: &Settings) -> io::Result<()> {
        for line in settings.lines() {
            self.tell(&line)?;
        }
        self.tell("")?;
        let stdout = self.child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut said = String::new();
        BufReader::new(stdout).read_line(&mut said)?;
        if said == server::READY {
            Ok(())
        } else {
            let status = self.child.wait()?;
            Err(io::Error::other(format!("it ended ({status}): see server.log")))
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it takes a client of this user.
    pub(super) fn takes(&self, uid: u32, multi_user: bool) -> bool {
        !self.closing && (multi_user || self.uid == uid)
    }

    pub(super) fn add(&mut self, connection: Connection, client: Peer) {
        // One that has died is noticed by whoever looks next.
        let _ = self.tell(&format!("Client {{PID: {}}} connected", client.pid));
        self.clients.insert(connection, client);
    }

    pub(super) fn remove(&mut self, connection: Connection) {
        if let Some(client) = self.clients.remove(&connection) {
            let _ = self.tell(&format!("Client {{PID: {}}} disconnected", client.pid));
        }
    }

    pub(super) fn tell(&mut self, line: &str) -> io::Result<()> {
        let mut stdin = self.child.stdin.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
        stdin.write_all(format!("{line}\n").as_bytes())
    }

    /// Ends it in good order: it exits when its standard input does.
    fn end(mut self) -> io::Result<std::process::ExitStatus> {
        drop(self.child.stdin.take());
        self.child.wait()
    }

    pub(super) fn kill(&mut self) {
        let _ = self.child.kill(); // it fails for one that has ended
        let _ = self.child.wait();
    }
}

/// Ends servers that are to end and have no clients left, and forgets those that have died.
pub(super) fn tidy(servers: &mut Vec<Server>, log: &Log) {
    for mut server in std::mem::take(servers) {
        let pid = server.pid();
        if let Ok(Some(status)) = server.child.try_wait() {
            log.line("Control", format_args!("Server {pid} ended unexpectedly ({status})"));
        } else if server.closing && server.clients.is_empty() {
            match server.end() {
                Ok(status) => log.line("Control", format_args!("Server {pid} ended ({status})")),
                Err(error) => log.line("Control", format_args!("Server {pid} cannot be waited for: {error}")),
            }
        } else {
            servers.push(server);
        }
    }
}
