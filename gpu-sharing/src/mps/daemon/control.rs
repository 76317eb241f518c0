use std::{collections::BTreeMap, path::PathBuf, process::Stdio, time::Duration};

use tokio::{
    io::AsyncWriteExt as _,
    process::{Child, Command},
    time::timeout,
};

use super::{Error, Result};

/// How long the daemon may take for a command: it answers within milliseconds.
const LIMIT: Duration = Duration::from_secs(10);

/// `nvidia-cuda-mps-control`, as a daemon and as the program that sends it commands.
#[derive(Debug, Clone)]
pub struct Control {
    /// The program.
    pub program: PathBuf,
    /// The whole environment that it runs in, but for `PATH`, which is where the program is and the system's usual folders:
    /// the daemon looks for the server there.
    pub environment: BTreeMap<&'static str, String>,
}

impl Control {
    /// Starts the daemon in the foreground, so that its death is seen. It is killed when the value is dropped.
    ///
    /// # Errors
    /// Where the program cannot be run.
    pub fn start(&self) -> Result<Child> {
        let mut command = self.program();
        command
            .arg("-f")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        self.spawn(&mut command)
    }

    /// Has the daemon carry out a command; what it says.
    ///
    /// # Errors
    /// Where there is no daemon, it refuses, or it does not answer within ten seconds.
    pub async fn command(&self, command: &str) -> Result<String> {
        self.command_within(command, LIMIT).await
    }

    /// The same with a limit of its own.
    ///
    /// # Errors
    /// As [`command`](Self::command).
    pub async fn command_within(&self, command: &str, limit: Duration) -> Result<String> {
        let mut program = self.program();
        program
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = self.spawn(&mut program)?;
        let talk = async {
            if let Some(mut stdin) = child.stdin.take() {
                // One that ended early has its own words for why.
                let _ = stdin.write_all(format!("{command}\n").as_bytes()).await;
            }
            child.wait_with_output().await
        };
        let output = match timeout(limit, talk).await {
            Ok(output) => output.map_err(|source| self.failed(source))?,
            Err(_) => {
                return Err(Error::NoAnswer {
                    command: command.to_owned(),
                    limit,
                });
            }
        };
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() {
            return Ok(said(&output.stdout));
        }
        let words = [said(&output.stdout), said(&output.stderr)];
        Err(Error::Refused {
            command: command.to_owned(),
            status: output.status,
            said: words
                .into_iter()
                .filter(|words| !words.is_empty())
                .collect::<Vec<_>>()
                .join("; "),
        })
    }

    /// Has the daemon set something. It says nothing then, or the value; a refusal is a text, and the program ends as if all
    /// were well.
    ///
    /// # Errors
    /// As [`command`](Self::command).
    pub async fn set(&self, command: &str) -> Result<()> {
        let said = self.command(command).await?;
        if said.is_empty() || said.starts_with(|first: char| first.is_ascii_digit()) {
            return Ok(());
        }
        Err(Error::Refused {
            command: command.to_owned(),
            status: std::process::ExitStatus::default(),
            said,
        })
    }

    fn program(&self) -> Command {
        let mut command = Command::new(&self.program);
        let folder = self
            .program
            .parent()
            .map(|folder| folder.to_string_lossy().into_owned());
        let folders = [folder.unwrap_or_default(), "/usr/bin:/bin:/usr/sbin:/sbin".to_owned()];
        let path = folders
            .into_iter()
            .filter(|folder| !folder.is_empty())
            .collect::<Vec<_>>()
            .join(":");
        command
            .env_clear()
            .env("PATH", path)
            .envs(&self.environment)
            .kill_on_drop(true);
        command
    }

    fn spawn(&self, command: &mut Command) -> Result<Child> {
        command.spawn().map_err(|source| self.failed(source))
    }

    fn failed(&self, source: std::io::Error) -> Error {
        Error::Run {
            program: self.program.clone(),
            source,
        }
    }
}
