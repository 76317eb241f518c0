//! The control daemon: one thread for each connection, over one state.

use std::{
    fs::{self, File, TryLockError},
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    os::unix::{
        fs::PermissionsExt as _,
        net::{UnixListener, UnixStream},
    },
    path::Path,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use super::{
    command::Command,
    failure::Failure,
    folders::Folders,
    frontend::END,
    log::Log,
    peer::Peer,
    servers::{self, Connection, MOST_CLIENTS, Server},
    settings::Settings,
};

#[derive(Debug, Clone, Copy)]
pub(super) struct Options {
    /// One server for the clients of all users.
    pub(super) multi_user: bool,
    /// Whether the log goes to standard output too.
    pub(super) echo: bool,
}

/// Serves until told to quit; `serving` is called when clients and commands are answered.
pub(super) fn run(
    folders: &Folders,
    options: Options,
    serving: impl FnOnce() -> io::Result<()>,
) -> Result<(), Failure> {
    for folder in [&folders.pipe, &folders.log] {
        fs::create_dir_all(folder).map_err(Failure::file(folder))?;
    }
    let _lock = lock(&folders.lock())?;
    let log = Log::open(&folders.control_log(), options.echo)?;
    let clients = listen(&folders.clients(), 0o666)?;
    let commands = listen(&folders.commands(), 0o600)?;
    let pid = format!("{}\n", std::process::id());
    fs::write(folders.pid(), pid).map_err(Failure::file(folders.pid()))?;

    let socket = folders.clients();
    log.line(
        "Control",
        format_args!("Starting control daemon using socket {}", socket.display()),
    );
    let pipe = folders.pipe.display();
    log.line(
        "Control",
        format_args!("To connect CUDA applications to this daemon, set env CUDA_MPS_PIPE_DIRECTORY={pipe}"),
    );

    let (quit, told_to_quit) = mpsc::channel();
    let daemon = Arc::new(Daemon {
        folders: folders.clone(),
        multi_user: options.multi_user,
        log,
        state: Mutex::default(),
        changed: Condvar::new(),
        quit,
    });
    daemon.accept(clients, Daemon::serve_client);
    daemon.accept(commands, |daemon, stream, _| daemon.serve_commands(&stream));
    serving().map_err(Failure::Start)?;
    // The daemon itself holds the sender.
    let _ = told_to_quit.recv();
    Ok(())
}

/// Held as long as the daemon lives, however it ends.
fn lock(path: &Path) -> Result<File, Failure> {
    let file = File::options().create(true).truncate(false).write(true).open(path);
    let file = file.map_err(Failure::file(path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Failure::Running),
        Err(TryLockError::Error(error)) => Err(Failure::file(path)(error)),
    }
}

/// In the place of what a daemon that was killed has left; that none lives, the lock says.
fn listen(path: &Path, mode: u32) -> Result<UnixListener, Failure> {
    let listen = || {
        crate::tree::absent(path)?;
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        Ok(listener)
    };
    listen().map_err(Failure::file(path))
}

struct Daemon {
    folders: Folders,
    multi_user: bool,
    log: Log,
    state: Mutex<State>,
    /// That a server or client is gone.
    changed: Condvar,
    quit: mpsc::Sender<()>,
}

#[derive(Default)]
struct State {
    settings: Settings,
    servers: Vec<Server>,
    quitting: bool,
}

impl Daemon {
    fn accept(
        self: &Arc<Self>,
        listener: UnixListener,
        serve: impl Fn(&Self, UnixStream, Connection) + Copy + Send + 'static,
    ) {
        let daemon = Arc::clone(self);
        thread::spawn(move || {
            for connection in 0.. {
                match listener.accept() {
                    Ok((stream, _)) => {
                        let daemon = Arc::clone(&daemon);
                        thread::spawn(move || serve(&daemon, stream, connection));
                    }
                    Err(error) => {
                        daemon
                            .log
                            .line("Control", format_args!("Cannot accept a connection: {error}"));
                        thread::sleep(Duration::from_millis(100)); // such as too many open files
                    }
                }
            }
        });
    }

    /// The state as it is now: servers that have died are gone from it.
    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        servers::tidy(&mut state.servers, &self.log);
        state
    }

    /// Answers `server PID PERCENTAGE`, or `refused REASON`, and takes the client for one as long as it is connected.
    fn serve_client(&self, mut stream: UnixStream, connection: Connection) {
        self.log.line("Control", "Accepting connection...");
        let Ok(client) = Peer::of(&stream) else { return };
        let answer = match self.admit(client, connection) {
            Ok((server, percentage)) => format!("server {server} {percentage}\n"),
            Err(reason) => {
                self.log
                    .line("Control", format_args!("Client {} refused: {reason}", client.pid));
                format!("refused {reason}\n")
            }
        };
        if stream.write_all(answer.as_bytes()).is_ok() {
            // It says nothing more; it ends.
            let _ = stream.read(&mut [0]);
        }
        for server in &mut self.state().servers {
            server.remove(connection);
        }
        drop(self.state());
        self.changed.notify_all();
    }

    /// Finds or starts a server for a client; it waits for the clients of another user's server to leave.
    fn admit(&self, client: Peer, connection: Connection) -> Result<(u32, String), String> {
        let Peer { pid, uid } = client;
        let mut state = self.state();
        let mut told = false;
        loop {
            if state.quitting {
                return Err("the daemon ends".to_owned());
            }
            let takes = |server: &&mut Server| server.takes(uid, self.multi_user);
            if let Some(server) = state.servers.iter_mut().find(takes) {
                if server.clients.len() >= MOST_CLIENTS {
                    return Err(format!("the server has {MOST_CLIENTS} clients"));
                }
                if !told {
                    let line = format_args!("NEW CLIENT {pid} from user {uid}: Server already exists");
                    self.log.line("Control", line);
                }
                server.add(connection, client);
                return Ok((server.pid(), server.percentage.to_string()));
            }
            if !told {
                let line =
                    format!("NEW CLIENT {pid} from user {uid}: Server is not ready, push client to pending list");
                self.log.line("Control", line);
                told = true;
            }
            for server in &mut state.servers {
                server.closing = true;
            }
            servers::tidy(&mut state.servers, &self.log);
            if state.servers.is_empty() {
                self.start_server(&mut state, uid)?;
            } else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                servers::tidy(&mut state.servers, &self.log);
            }
        }
    }

    fn start_server(&self, state: &mut State, uid: u32) -> Result<(), String> {
        self.log
            .line("Control", format_args!("Starting new server for user {uid}"));
        let server = Server::start(uid, &state.settings, &self.folders.server_log());
        let server = server.map_err(|error| format!("Cannot start a server for user {uid}: {error}"))?;
        self.log
            .line("Control", format_args!("NEW SERVER {}: Ready", server.pid()));
        state.servers.push(server);
        Ok(())
    }

    /// Carries out the commands of a front end, one line each; an answer ends in [`END`].
    fn serve_commands(&self, stream: &UnixStream) {
        self.log.line("Control", "NEW UI");
        for line in BufReader::new(stream).lines() {
            let Ok(line) = line else { break };
            let command = Command::parse(&line);
            self.log.line("Control", format_args!("Cmd:{}", line.trim()));
            let quits = matches!(command, Ok(Command::Quit(_)));
            let mut answer = command
                .and_then(|command| self.carry_out(command))
                .unwrap_or_else(|message| message + "\n");
            answer.push(END.into());
            let mut to = stream;
            let told = to.write_all(answer.as_bytes());
            if quits {
                self.log.line("Control", "Exit");
                let _ = self.quit.send(()); // the daemon waits for it
                return;
            }
            if told.is_err() {
                break;
            }
        }
        self.log.line("Control", "UI closed");
    }

    /// What there is to print, lines and all.
    fn carry_out(&self, command: Command) -> Result<String, String> {
        let mut state = self.state();
        let server = |state: &State, pid: u32| {
            let place = state.servers.iter().position(|server| server.pid() == pid);
            place.ok_or_else(|| format!("There is no server {pid}"))
        };
        Ok(match command {
            Command::GetServerList => lines(state.servers.iter().map(Server::pid)),
            Command::StartServer { uid } => {
                if let Some(other) = state.servers.first() {
                    return Err(format!("Server {} runs already", other.pid()));
                }
                self.start_server(&mut state, uid)?;
                String::new()
            }
            Command::ShutdownServer { server: pid, force } => {
                let place = server(&state, pid)?;
                let found = &mut state.servers[place];
                found.closing = true;
                if force {
                    found.kill();
                }
                servers::tidy(&mut state.servers, &self.log);
                self.changed.notify_all();
                String::new()
            }
            Command::GetServerStatus(pid) => server(&state, pid).map(|_| "ACTIVE\n".to_owned())?,
            Command::GetClientList(pid) => {
                let place = server(&state, pid)?;
                lines(state.servers[place].clients.values().map(|client| client.pid))
            }
            Command::GetDefaultPercentage => format!("{}\n", state.settings.percentage),
            Command::SetDefaultPercentage(percentage) => {
                state.settings.percentage = percentage;
                format!("{percentage}\n")
            }
            Command::GetPercentage(pid) => {
                let place = server(&state, pid)?;
                format!("{}\n", state.servers[place].percentage)
            }
            Command::SetPercentage(pid, percentage) => {
                let place = server(&state, pid)?;
                let found = &mut state.servers[place];
                found.percentage = percentage;
                let _ = found.tell(&format!("Active Threads Percentage set to {percentage}"));
                format!("{percentage}\n")
            }
            Command::GetDefaultMemoryLimit(gpu) => match state.settings.memory.get(&gpu) {
                Some(limit) => format!("{limit}\n"),
                None => return Err(format!("No limit is set for device {gpu}")),
            },
            Command::SetDefaultMemoryLimit(gpu, limit) => {
                state.settings.memory.insert(gpu, limit);
                String::new()
            }
            Command::Quit(longest) => {
                self.end(state, longest);
                String::new()
            }
        })
    }

    /// Ends the servers when their clients have left, or after the time given, and removes what the daemon has made.
    fn end(&self, mut state: MutexGuard<'_, State>, longest: Option<Duration>) {
        let until = longest.and_then(|time| Instant::now().checked_add(time));
        state.quitting = true;
        for server in &mut state.servers {
            server.closing = true;
        }
        self.changed.notify_all(); // pending clients are refused
        servers::tidy(&mut state.servers, &self.log);
        while !state.servers.is_empty() {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                state.servers.iter_mut().for_each(Server::kill);
                state.servers.clear();
                break;
            }
            // Now and then, because a server may die without a word.
            let pause = left.unwrap_or(Duration::MAX).min(Duration::from_millis(200));
            let waited = self.changed.wait_timeout(state, pause);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            servers::tidy(&mut state.servers, &self.log);
        }
        for path in [self.folders.clients(), self.folders.commands(), self.folders.pid()] {
            if let Err(error) = crate::tree::absent(&path) {
                self.log
                    .line("Control", format_args!("Cannot remove {}: {error}", path.display()));
            }
        }
    }
}

fn lines(numbers: impl Iterator<Item = u32>) -> String {
    numbers.fold(String::new(), |text, number| text + &format!("{number}\n"))
}
