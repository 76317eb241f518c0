use std::{fs::File, path::PathBuf, pin::pin, sync::Arc, time::Duration};

use gpu_core::GpuUuid;
use tokio::{
    io::AsyncReadExt as _,
    process::Child,
    sync::watch,
    task::spawn_blocking,
    time::{Instant, interval, sleep, timeout},
};

use super::{Control, Error, Result, Settings, files, predecessor, tail::Tail};
use crate::{
    config::ResourceName,
    mps::{Agreement, SharedResource, names::CONTROL},
};

/// Something that happened to the daemon of a resource.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// It serves, with its limits set.
    Serves {
        /// The resource.
        resource: ResourceName,
    },
    /// It logged a line.
    Log {
        /// The resource.
        resource: ResourceName,
        /// The line.
        line: String,
    },
    /// It does not serve, and is started again after a pause.
    Failed {
        /// The resource.
        resource: ResourceName,
        /// Why.
        error: Error,
        /// The pause.
        pause: Duration,
    },
    /// It was stopped, as was asked for.
    Stopped {
        /// The resource.
        resource: ResourceName,
    },
    /// Something was not tidied up.
    Untidy {
        /// The resource.
        resource: ResourceName,
        /// What.
        error: Error,
    },
}

/// The pause before a daemon is started again; it doubles up to the longest, and starts anew once one has served that long.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long a daemon may take until it answers.
pub(super) const START: Duration = Duration::from_secs(10);
pub(super) const LOOK: Duration = Duration::from_millis(100);
/// How often the daemon is asked whether it is well, and how often in a row it may fail to answer.
const ASK: Duration = Duration::from_secs(10);
const FAILURES: u32 = 3;
/// How often the log is looked at.
const READ_LOG: Duration = Duration::from_millis(250);
/// Ends the daemon, and its clients after a second. A program is to end within two.
const LEAVE: &str = "quit -t 1";
const LEAVE_LIMIT: Duration = Duration::from_millis(1300);

/// What asks whether the daemon is well: it is cheap and changes nothing.
const QUESTION: &str = "get_default_active_thread_percentage";

/// Keeps the daemon of one resource alive.
pub(super) struct Keeper {
    resource: SharedResource,
    settings: Settings,
    /// Whether it serves.
    serves: watch::Sender<bool>,
    /// The daemon, from its start to its end. It is killed with the keeper.
    child: Option<Child>,
    /// The file that says what is served; its lock tells that the daemon lives.
    started: Option<File>,
}

impl Keeper {
    pub(super) fn new(resource: SharedResource, settings: Settings, serves: watch::Sender<bool>) -> Self {
        Self {
            resource,
            settings,
            serves,
            child: None,
            started: None,
        }
    }

    /// Runs until `stop` is true, or its sender gone.
    pub(super) async fn keep(mut self, mut stop: watch::Receiver<bool>) {
        let mut pause = PAUSE;
        loop {
            let since = Instant::now();
            let error = tokio::select! {
                error = self.serve() => error,
                () = stopped(&mut stop) => break,
            };
            self.withdraw();
            if let Some(mut child) = self.child.take() {
                let _ = child.kill().await; // one that has ended cannot be, and need not
            }
            if since.elapsed() > LONGEST_PAUSE * 2 {
                pause = PAUSE;
            }
            self.tell(Event::Failed {
                resource: self.name(),
                error,
                pause,
            });
            tokio::select! {
                () = sleep(pause) => {}
                () = stopped(&mut stop) => break,
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        self.end().await;
    }

    /// Starts the daemon and serves until something is amiss.
    async fn serve(&mut self) -> Error {
        if let Err(error) = self.start().await {
            return error;
        }
        self.serves.send_replace(true);
        self.tell(Event::Serves { resource: self.name() });
        self.watch().await
    }

    async fn start(&mut self) -> Result<()> {
        let (pipe, log) = (self.pipe(), self.log());
        files::folder(&pipe)?;
        files::label_for_containers(&pipe, &self.settings.selinux)?;
        self.end_predecessor().await?;
        files::remove_folder(&log)?; // whose lines would be told again
        files::folder(&log)?;
        if let Some(modes) = self.settings.compute_modes.clone() {
            let tell = self.untidy();
            self.change_modes(move |gpus| modes.exclusive(gpus, tell)).await?;
        }
        let control = self.control();
        let child = self.child.insert(control.start()?);
        wait_until_it_answers(&control, child).await?;
        for command in self.resource.limit_commands() {
            control.set(&command).await?;
        }
        let text = Agreement::Serves(self.resource.clone()).to_text();
        self.started = Some(files::replace(&self.started_file(), &text)?);
        Ok(())
    }

    /// Tells nobody any more that it serves.
    fn withdraw(&mut self) {
        self.serves.send_replace(false);
        self.tidy(files::remove(&self.started_file()));
        self.started = None;
    }

    /// A daemon that was left by a keeper that was killed: its limits are not known. One that does not answer is killed.
    async fn end_predecessor(&self) -> Result<()> {
        let control = self.control();
        let ended = match control.command(QUESTION).await {
            Ok(_) => control.command_within(LEAVE, START).await.map(drop),
            Err(Error::Refused { .. }) => Ok(()), // there is none
            Err(error) => Err(error),
        };
        match ended {
            Err(error @ Error::NoAnswer { .. }) if predecessor::kill(&self.pipe()).await? => {
                (self.untidy())(error);
                Ok(())
            }
            ended => ended,
        }
    }

    async fn watch(&mut self) -> Error {
        let mut tail = Tail::new(self.log().join("control.log"));
        let (mut ask, mut read) = (interval(ASK), interval(READ_LOG));
        let control = self.control();
        let mut failures = 0;
        let error = loop {
            tokio::select! {
                error = ended(self.child.as_mut()) => break error,
                _ = ask.tick() => match control.command(QUESTION).await {
                    Ok(_) => failures = 0,
                    Err(error) => {
                        failures += 1;
                        if failures == FAILURES {
                            break error;
                        }
                    }
                },
                _ = read.tick() => self.tell_log(&mut tail),
            }
        };
        self.tell_log(&mut tail);
        error
    }

    fn tell_log(&self, tail: &mut Tail) {
        // A log that cannot be read is told of by nothing better.
        for line in tail.lines().unwrap_or_default() {
            self.tell(Event::Log {
                resource: self.name(),
                line,
            });
        }
    }

    /// Ends the daemon, its clients first, and tidies up. The folder in which clients have their end of the pipe stays.
    async fn end(&mut self) {
        self.withdraw();
        if let Some(mut child) = self.child.take() {
            // What it does not do by itself is done to it.
            let _ = self.control().command_within(LEAVE, LEAVE_LIMIT).await;
            let _ = timeout(LOOK, child.wait()).await;
            let _ = child.kill().await;
        }
        if let Some(modes) = self.settings.compute_modes.clone() {
            let tell = self.untidy();
            self.tidy(self.change_modes(move |gpus| modes.restore(gpus, tell)).await);
        }
        self.tidy(files::remove_folder(&self.log()));
        self.tell(Event::Stopped { resource: self.name() });
    }

    async fn change_modes(&self, change: impl FnOnce(&[GpuUuid]) -> Result<()> + Send + 'static) -> Result<()> {
        let gpus: Vec<_> = self.resource.gpus.iter().map(|gpu| gpu.uuid.clone()).collect();
        // A runtime that ends is the one thing that fails it, and ends this too.
        spawn_blocking(move || change(&gpus)).await.unwrap_or(Ok(()))
    }

    fn tidy(&self, done: Result<()>) {
        if let Err(error) = done {
            (self.untidy())(error);
        }
    }

    /// Tells of what was not tidied up, from wherever that is found.
    fn untidy(&self) -> impl FnOnce(Error) + Send + use<> {
        let (tell, resource) = (Arc::clone(&self.settings.tell), self.name());
        move |error| tell(Event::Untidy { resource, error })
    }

    fn tell(&self, event: Event) {
        (self.settings.tell)(event);
    }

    fn name(&self) -> ResourceName {
        self.resource.resource.clone()
    }

    fn pipe(&self) -> PathBuf {
        self.settings.root.pipe(&self.resource.resource)
    }

    fn log(&self) -> PathBuf {
        self.settings.root.log(&self.resource.resource)
    }

    fn started_file(&self) -> PathBuf {
        self.settings.root.started(&self.resource.resource)
    }

    fn control(&self) -> Control {
        Control {
            program: self.settings.control.clone(),
            environment: self.resource.daemon_environment(&self.settings.root),
        }
    }
}

async fn wait_until_it_answers(control: &Control, child: &mut Child) -> Result<()> {
    let until = Instant::now() + START;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        tokio::select! {
            biased;
            error = ended(Some(&mut *child)) => return Err(error),
            answer = control.command_within(QUESTION, left.max(LOOK)) => match answer {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() >= until => return Err(error),
                Err(_) => {}
            },
        }
        tokio::select! {
            error = ended(Some(&mut *child)) => return Err(error),
            () = sleep(LOOK) => {}
        }
    }
}

/// Completes when the daemon has ended by itself.
async fn ended(child: Option<&mut Child>) -> Error {
    let Some(child) = child else {
        return std::future::pending().await;
    };
    match child.wait().await {
        Ok(status) => Error::Ended {
            status,
            said: last_words(child).await,
        },
        Err(source) => Error::Run {
            program: CONTROL.into(),
            source,
        },
    }
}

/// What it wrote to standard error. A server that outlives it holds the stream, so that its end is not waited for.
async fn last_words(child: &mut Child) -> String {
    let Some(stderr) = &mut child.stderr else {
        return String::new();
    };
    let mut words = Vec::new();
    let _ = timeout(LOOK, pin!(stderr.take(4096)).read_to_end(&mut words)).await;
    String::from_utf8_lossy(&words).trim().to_owned()
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that nobody can ask for it any more, which is the same.
    let _ = stop.wait_for(|stop| *stop).await;
}
