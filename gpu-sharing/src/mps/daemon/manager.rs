use std::{
    collections::BTreeMap,
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{
    sync::watch,
    task::{JoinError, JoinHandle, JoinSet},
};

use super::{ComputeModes, Event, Result, files, keeper::Keeper};
use crate::{
    config::ResourceName,
    mps::{Plan, Root, SharedResource},
};

/// How daemons are run.
#[derive(Clone)]
pub struct Settings {
    /// Where they meet their clients. Default: [`Root::default`].
    pub root: Root,
    /// The program `nvidia-cuda-mps-control`. Default: in `/usr/bin`.
    pub control: PathBuf,
    /// The compute modes of the GPUs, to be set for MPS and given back; `None`, the default, leaves them as they are.
    pub compute_modes: Option<ComputeModes>,
    /// The folder that is there where `SELinux` is in force. Default: `/sys/fs/selinux`.
    pub selinux: PathBuf,
    /// Hears what happens. It is called on the runtime, so it must not wait.
    pub tell: Arc<dyn Fn(Event) + Send + Sync>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            root: Root::default(),
            control: PathBuf::from("/usr/bin").join(crate::mps::names::CONTROL),
            compute_modes: None,
            selinux: PathBuf::from("/sys/fs/selinux"),
            tell: Arc::new(|_| {}),
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("root", &self.root)
            .field("control", &self.control)
            .field("compute_modes", &self.compute_modes)
            .finish_non_exhaustive()
    }
}

/// The MPS daemons of a node. Dropped without [`stop`](Self::stop), they end as well, as long as the runtime lives.
#[derive(Debug)]
pub struct Daemons {
    settings: Settings,
    running: BTreeMap<ResourceName, Running>,
    /// Those that are on their way out: their clients may take a second.
    ending: JoinSet<Result<(), JoinError>>,
    /// Which of them serve, and whether the file is there that says that all do.
    ready: Arc<Mutex<Readiness>>,
}

#[derive(Debug)]
struct Running {
    resource: SharedResource,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
    /// Follows whether it serves.
    follow: JoinHandle<()>,
}

#[derive(Debug)]
struct Readiness {
    root: Root,
    serves: BTreeMap<ResourceName, bool>,
}

impl Readiness {
    /// The file is there while all that is planned serves, also where that is nothing.
    fn tell(&self) -> Result<()> {
        let path = self.root.ready();
        if self.serves.values().all(|serves| *serves) {
            files::folder(self.root.path())?;
            files::replace(&path, "").map(drop)
        } else {
            files::remove(&path)
        }
    }
}

impl Daemons {
    /// No daemons yet, and none ready. In a tokio runtime.
    ///
    /// # Errors
    /// Where the MPS root cannot be used.
    pub fn new(settings: Settings) -> Result<Self> {
        files::folder(settings.root.path())?;
        files::remove(&settings.root.ready())?;
        let readiness = Readiness {
            root: settings.root.clone(),
            serves: BTreeMap::new(),
        };
        Ok(Self {
            settings,
            running: BTreeMap::new(),
            ending: JoinSet::new(),
            ready: Arc::new(Mutex::new(readiness)),
        })
    }

    /// Brings what runs to what is planned. Daemons of resources that are the same stay, with their clients; those of others are
    /// ended, which ends their clients too, and started as planned. It returns when all have been started or tried, not when
    /// they serve.
    ///
    /// Dropped before it returns, it leaves daemons that end, and what is planned not yet started; the next call goes on from there,
    /// and [`stop`](Self::stop) waits for their end as for that of the others.
    ///
    /// # Errors
    /// Where the file that tells readiness cannot be written. The daemons run all the same.
    pub async fn apply(&mut self, plan: &Plan) -> Result<()> {
        let stays = |running: &Running| plan.resources.contains(&running.resource);
        if self.running.values().any(|running| !stays(running)) {
            files::remove(&self.settings.root.ready())?;
        }
        for running in self.running.extract_if(.., |_, running| !stays(running)) {
            end(running, &mut self.ending, &self.ready);
        }
        self.ended().await;
        for resource in &plan.resources {
            if !self.running.contains_key(&resource.resource) {
                self.start(resource.clone());
            }
        }
        self.lock().tell()
    }

    /// The resources whose daemons serve at the moment, and those whose do not.
    pub fn serving(&self) -> BTreeMap<ResourceName, bool> {
        self.lock().serves.clone()
    }

    /// Ends all of them, within two seconds, and gives back compute modes.
    ///
    /// # Errors
    /// Where the file that tells readiness cannot be removed.
    pub async fn stop(mut self) -> Result<()> {
        let removed = files::remove(&self.settings.root.ready());
        // The last one to go must not make it appear that all of none are ready.
        for running in self.running.values() {
            running.follow.abort();
        }
        for running in std::mem::take(&mut self.running) {
            end(running, &mut self.ending, &self.ready);
        }
        self.ended().await;
        removed
    }

    fn start(&mut self, resource: SharedResource) {
        let name = resource.resource.clone();
        let (serves, mut served) = watch::channel(false);
        let (stop, stopped) = watch::channel(false);
        let keeper = Keeper::new(resource.clone(), self.settings.clone(), serves);
        self.lock().serves.insert(name.clone(), false);
        let (ready, tell, resource_name) = (Arc::clone(&self.ready), Arc::clone(&self.settings.tell), name.clone());
        let follow = async move {
            while served.changed().await.is_ok() {
                let serves = *served.borrow_and_update();
                let mut ready = lock(&ready);
                ready.serves.insert(resource_name.clone(), serves);
                if let Err(error) = ready.tell() {
                    tell(Event::Untidy {
                        resource: resource_name.clone(),
                        error,
                    });
                }
            }
        };
        let running = Running {
            resource,
            stop,
            task: tokio::spawn(keeper.keep(stopped)),
            follow: tokio::spawn(follow),
        };
        self.running.insert(name, running);
    }

    /// Waits until those that are to end have ended. It may be dropped before.
    async fn ended(&mut self) {
        while self.ending.join_next().await.is_some() {}
    }

    fn lock(&self) -> MutexGuard<'_, Readiness> {
        lock(&self.ready)
    }
}

/// Has a daemon end, among those that do.
fn end(
    (name, running): (ResourceName, Running),
    ending: &mut JoinSet<Result<(), JoinError>>,
    ready: &Mutex<Readiness>,
) {
    running.follow.abort();
    lock(ready).serves.remove(&name);
    running.stop.send_replace(true);
    ending.spawn(running.task);
}

fn lock(ready: &Mutex<Readiness>) -> MutexGuard<'_, Readiness> {
    ready.lock().unwrap_or_else(PoisonError::into_inner)
}
