//! The IMEX service: `nvidia-imex` and `nvidia-imex-ctl -q`.
//!
//! Options, the two configuration files and `READY` are the vendor's, as its guide shows them. What goes between the
//! services, and to the command service, is our own: a connection alone says that a node is there.

mod config;
mod failure;
mod service;

use std::{
    ffi::{OsStr, OsString},
    io::{self, BufRead as _, BufReader, Write as _},
    net::{IpAddr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use self::{config::Config, failure::Failure};
use super::background;

pub(super) const SERVICE: &str = "nvidia-imex";
pub(super) const CONTROL: &str = "nvidia-imex-ctl";

const CONFIG: &str = "/etc/nvidia-imex/config.cfg";

const SERVICE_HELP: &str = "\
nvidia-imex of a simulated node

  -c FILE      configuration (/etc/nvidia-imex/config.cfg)
  -p, --port PORT
               in the place of SERVER_PORT
  -h, --help   this text
";

const CONTROL_HELP: &str = "\
nvidia-imex-ctl of a simulated node

  -q           print the state of the service: READY, or INITIALIZING while nodes are missing
  -c FILE      its configuration, which says where it listens (/etc/nvidia-imex/config.cfg)
  -i IP PORT   where it listens
  -h, --help   this text
";

/// Runs `nvidia-imex`. Exit codes: 0 done, 1 failed, with a message on stderr.
pub(super) fn service(arguments: &[OsString]) -> ExitCode {
    exit(SERVICE, run_service(arguments))
}

/// Runs `nvidia-imex-ctl`. Exit codes: 0 the service answered, 1 failed, with a message on stderr.
pub(super) fn control(arguments: &[OsString]) -> ExitCode {
    exit(CONTROL, run_control(arguments))
}

fn exit(name: &str, done: Result<(), Failure>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let _ = writeln!(io::stderr(), "{name}: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run_service(arguments: &[OsString]) -> Result<(), Failure> {
    let (mut file, mut port) = (PathBuf::from(CONFIG), None);
    let mut words = arguments.iter().skip(1);
    while let Some(word) = words.next() {
        let mut value = || {
            words
                .next()
                .ok_or_else(|| Failure::NoValue(word.to_string_lossy().into_owned()))
        };
        match word.to_string_lossy().as_ref() {
            "-c" => file = value()?.into(),
            "-p" | "--port" => port = Some(number(value()?)?),
            "-h" | "--help" => return print(SERVICE_HELP),
            other => return Err(Failure::Option(other.to_owned())),
        }
    }
    let mut config = Config::read(&file)?;
    config.port = port.unwrap_or(config.port);
    if !config.daemonize {
        return service::run(&config, true, || Ok(()));
    }
    if background::is_daemon() {
        return service::run(&config, false, background::detach);
    }
    match background::start(SERVICE, arguments).map_err(Failure::Start)? {
        None => Ok(()),
        Some(status) => Err(Failure::Background(status)),
    }
}

fn run_control(arguments: &[OsString]) -> Result<(), Failure> {
    let (mut file, mut address, mut query) = (PathBuf::from(CONFIG), None, false);
    let mut words = arguments.iter().skip(1);
    while let Some(word) = words.next() {
        let mut value = || {
            words
                .next()
                .ok_or_else(|| Failure::NoValue(word.to_string_lossy().into_owned()))
        };
        match word.to_string_lossy().as_ref() {
            "-q" => query = true,
            "-c" => file = value()?.into(),
            "-i" => {
                let ip = value()?.to_string_lossy().into_owned();
                let ip: IpAddr = ip.parse().map_err(|_| Failure::Value(ip))?;
                address = Some(SocketAddr::new(ip, number(value()?)?));
            }
            "-h" | "--help" => return print(CONTROL_HELP),
            other => return Err(Failure::Option(other.to_owned())),
        }
    }
    if !query {
        return Err(Failure::NoCommand);
    }
    let address = match address {
        Some(address) => address,
        None => command_address(&file)?,
    };
    print(&ask(address).map_err(Failure::asking(address))?)
}

fn command_address(file: &Path) -> Result<SocketAddr, Failure> {
    let command = Config::read(file)?.command;
    command.ok_or_else(|| Failure::NoCommandService(file.to_owned()))
}

/// The state of the service at that address.
fn ask(address: SocketAddr) -> io::Result<String> {
    const PATIENCE: Duration = Duration::from_secs(5);
    let service = TcpStream::connect_timeout(&address, PATIENCE)?;
    service.set_read_timeout(Some(PATIENCE))?;
    let mut state = String::new();
    BufReader::new(service).read_line(&mut state)?;
    if state.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(state)
}

fn number(text: &OsStr) -> Result<u16, Failure> {
    let text = text.to_string_lossy();
    text.parse().map_err(|_| Failure::Value(text.into_owned()))
}

fn print(text: &str) -> Result<(), Failure> {
    io::stdout().write_all(text.as_bytes()).map_err(Failure::Output)
}
