use super::{ContainerEdits, Hook, HookStage, Spec};

/// Whose view of the paths in a spec is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PathSide {
    /// The host: where nodes and mounts come from, and the programs of hooks.
    Host,
    /// The container: where nodes and mounts go, and what hooks are told that work in it.
    Container,
}

impl Spec {
    /// Moves all paths of one side that lie in the folder `from` to the folder `to`.
    ///
    /// Only whole components count: `/driver` does not contain `/driver-root/x`. A device node whose host path was that
    /// in the container is given one of its own where only one of them moves. The version is raised if that is needed.
    ///
    /// ```
    /// use gpu_cdi::{Format, PathSide, Spec};
    ///
    /// let mut spec = Spec::from_text(
    ///     r#"{"cdiVersion": "0.3.0", "kind": "example.com/nic", "devices": [
    ///         {"name": "nic0", "containerEdits": {"deviceNodes": [{"path": "/dev/nic0"}]}}]}"#,
    ///     Format::Json,
    /// )?;
    /// spec.transform_root("/", "/host", PathSide::Host);
    /// assert_eq!(spec.devices[0].container_edits.device_nodes[0].host_path.as_deref(), Some("/host/dev/nic0"));
    /// assert_eq!(spec.cdi_version.as_str(), "0.5.0");
    /// # Ok::<(), gpu_cdi::Error>(())
    /// ```
    pub fn transform_root(&mut self, from: &str, to: &str, side: PathSide) {
        let root = Move {
            from: from.trim_end_matches('/'),
            to: to.trim_end_matches('/'),
        };
        let devices = self.devices.iter_mut().map(|device| &mut device.container_edits);
        for edits in devices.chain([&mut self.container_edits]) {
            match side {
                PathSide::Host => root.host(edits),
                PathSide::Container => root.container(edits),
            }
        }
        // What is read with a version of its own keeps it, unless it would no longer do.
        self.cdi_version = self.cdi_version.max(self.required_version());
    }
}

/// Two roots without their last slash, so that `/` is empty.
struct Move<'m> {
    from: &'m str,
    to: &'m str,
}

impl Move<'_> {
    fn host(&self, edits: &mut ContainerEdits) {
        for node in &mut edits.device_nodes {
            if let Some(moved) = self.moved(node.host_path.as_ref().unwrap_or(&node.path)) {
                node.host_path = Some(moved);
            }
        }
        for mount in &mut edits.mounts {
            self.apply(&mut mount.host_path);
        }
        for hook in &mut edits.hooks {
            if hook.hook_name != HookStage::StartContainer {
                self.apply(&mut hook.path);
            }
            if !works_in_container(hook) {
                self.arguments(hook);
            }
        }
    }

    fn container(&self, edits: &mut ContainerEdits) {
        for node in &mut edits.device_nodes {
            if let Some(moved) = self.moved(&node.path) {
                let path = std::mem::replace(&mut node.path, moved);
                node.host_path.get_or_insert(path);
            }
        }
        for mount in &mut edits.mounts {
            self.apply(&mut mount.container_path);
        }
        for hook in &mut edits.hooks {
            if hook.hook_name == HookStage::StartContainer {
                self.apply(&mut hook.path);
            }
            if works_in_container(hook) {
                self.arguments(hook);
            }
        }
    }

    /// Moves arguments that are paths, and both halves of links (`target::link`).
    fn arguments(&self, hook: &mut Hook) {
        for argument in &mut hook.args {
            let parts = argument
                .split("::")
                .map(|part| self.moved(part).unwrap_or_else(|| part.to_owned()));
            *argument = parts.collect::<Vec<_>>().join("::");
        }
    }

    fn apply(&self, path: &mut String) {
        if let Some(moved) = self.moved(path) {
            *path = moved;
        }
    }

    /// Where a path lies after the move; `None` if it does not lie in the folder.
    fn moved(&self, path: &str) -> Option<String> {
        let rest = path.strip_prefix(self.from)?;
        match rest {
            "" if self.to.is_empty() => Some("/".to_owned()),
            "" => Some(self.to.to_owned()),
            "/" if !self.to.is_empty() => Some(self.to.to_owned()),
            rest if rest.starts_with('/') => Some(format!("{}{rest}", self.to)),
            _ => None,
        }
    }
}

fn works_in_container(hook: &Hook) -> bool {
    matches!(hook.hook_name, HookStage::CreateContainer | HookStage::StartContainer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_components_move() {
        #[track_caller]
        fn check(from: &str, to: &str, path: &str, expected: Option<&str>) {
            let root = Move {
                from: from.trim_end_matches('/'),
                to: to.trim_end_matches('/'),
            };
            assert_eq!(root.moved(path).as_deref(), expected, "{from} {to} {path}");
        }
        check(
            "/driver-root",
            "/run/nvidia/driver",
            "/driver-root/usr",
            Some("/run/nvidia/driver/usr"),
        );
        check("/driver", "/x", "/driver-root/usr", None);
        check("/driver/", "/", "/driver/usr", Some("/usr"));
        check("/driver", "/", "/driver", Some("/"));
        check("/", "/host", "/usr", Some("/host/usr"));
        check("/", "/host", "/", Some("/host"));
        check("/", "/host", "usr", None);
        check("/a", "/b", "--flag=/a/b", None);
    }

    #[test]
    fn the_container_side_moves_links_and_keeps_the_host_path() {
        let json = r#"{"cdiVersion": "0.3.0", "kind": "v/c", "devices": [{"name": "a", "containerEdits": {
            "deviceNodes": [{"path": "/r/dev/a"}],
            "mounts": [{"hostPath": "/r/lib", "containerPath": "/r/lib"}],
            "hooks": [
                {"hookName": "createContainer", "path": "/r/hook", "args": ["hook", "--link", "/r/a::/r/b", "--folder", "/r/lib"]},
                {"hookName": "startContainer", "path": "/r/start"},
                {"hookName": "poststop", "path": "/r/stop", "args": ["stop", "/r/x"]}]}}]}"#;
        let read = || serde_json::from_str::<Spec>(json).unwrap();
        let mut spec = read();
        spec.transform_root("/r", "/n", PathSide::Container);
        let edits = &spec.devices[0].container_edits;
        assert_eq!(
            (
                edits.device_nodes[0].path.as_str(),
                edits.device_nodes[0].host_path.as_deref()
            ),
            ("/n/dev/a", Some("/r/dev/a"))
        );
        assert_eq!(
            (
                edits.mounts[0].host_path.as_str(),
                edits.mounts[0].container_path.as_str()
            ),
            ("/r/lib", "/n/lib")
        );
        assert_eq!(edits.hooks[0].path, "/r/hook");
        assert_eq!(
            edits.hooks[0].args,
            ["hook", "--link", "/n/a::/n/b", "--folder", "/n/lib"]
        );
        assert_eq!(
            (edits.hooks[1].path.as_str(), edits.hooks[2].args[1].as_str()),
            ("/n/start", "/r/x")
        );

        let mut spec = read();
        spec.transform_root("/r", "/n", PathSide::Host);
        let edits = &spec.devices[0].container_edits;
        assert_eq!(
            (
                edits.device_nodes[0].path.as_str(),
                edits.device_nodes[0].host_path.as_deref()
            ),
            ("/r/dev/a", Some("/n/dev/a"))
        );
        let paths: Vec<_> = edits.hooks.iter().map(|hook| hook.path.as_str()).collect();
        assert_eq!(paths, ["/n/hook", "/r/start", "/n/stop"]);
        assert_eq!(
            (edits.hooks[0].args[2].as_str(), edits.hooks[2].args[1].as_str()),
            ("/r/a::/r/b", "/n/x")
        );
        assert_eq!(spec.cdi_version.as_str(), "0.5.0");
    }
}
