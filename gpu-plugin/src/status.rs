use gpu_sharing::config::ResourceName;

/// What a plugin offers at a moment, for probes and metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// Why nothing is offered yet; `None` once the node is served.
    pub waiting: Option<String>,
    /// The resources that are served, by name.
    pub resources: Vec<ResourceStatus>,
    /// What is amiss, in words.
    pub problems: Vec<String>,
}

/// One resource of a [`Status`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceStatus {
    /// Its name.
    pub name: ResourceName,
    /// How many devices the kubelet is told, replicas counted.
    pub devices: usize,
    /// How many of them are healthy.
    pub healthy: usize,
    /// Whether the kubelet has registered it and listens.
    pub registered: bool,
}

impl Status {
    pub(crate) fn waiting(reason: String) -> Self {
        Self {
            waiting: Some(reason),
            ..Self::default()
        }
    }

    /// Whether the kubelet has all that there is to offer; why not, in words.
    ///
    /// # Errors
    /// Before the node is served, while a resource is not registered, and where nothing is offered.
    pub fn ready(&self) -> Result<(), String> {
        if let Some(reason) = &self.waiting {
            return Err(reason.clone());
        }
        if self.resources.is_empty() {
            return Err("nothing is offered".to_owned());
        }
        match self.resources.iter().find(|resource| !resource.registered) {
            Some(resource) => Err(format!("{} is not registered with the kubelet", resource.name)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(status: &Status, expected: Result<(), &str>) {
        assert_eq!(status.ready(), expected.map_err(str::to_owned));
    }

    #[test]
    fn a_plugin_is_ready_when_the_kubelet_has_all_its_resources() {
        let resource = |name: &str, registered| ResourceStatus {
            name: name.parse().unwrap(),
            devices: 1,
            healthy: 0,
            registered,
        };
        check(&Status::default(), Err("nothing is offered"));
        check(&Status::waiting("no driver".to_owned()), Err("no driver"));
        let mut status = Status {
            resources: vec![resource("gpu", true), resource("mig-1g.10gb", false)],
            ..Status::default()
        };
        check(
            &status,
            Err("nvidia.com/mig-1g.10gb is not registered with the kubelet"),
        );
        status.resources[1].registered = true;
        check(&status, Ok(()));
    }
}
