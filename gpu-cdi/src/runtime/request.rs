use serde_json::Value;

use super::{Error, Result};
use crate::{ANNOTATION_PREFIX, Companion, Kind, QualifiedName, annotated_devices, names};

/// Mounts that name devices have this source, since nothing is to be mounted.
const MOUNT_SOURCE: &str = "/dev/null";
const PRIVILEGE: &str = "CAP_SYS_ADMIN";

/// Variables that ask, by the value `enabled`, for devices beside the GPUs.
const COMPANIONS: [(&str, Companion); 4] = [
    (names::GDS, Companion::Gds),
    (names::GDRCOPY, Companion::GdrCopy),
    (names::MOFED, Companion::Mofed),
    (names::NVSWITCH, Companion::NvSwitch),
];

/// Which requests count.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestPolicy {
    /// The kind of devices that are named without one. Default: `nvidia.com/gpu`.
    pub default_kind: Kind,
    /// Annotations that name devices begin with one of these. Default: `cdi.k8s.io/`.
    pub annotation_prefixes: Vec<String>,
    /// Whether mounts may name devices. Default: no.
    pub volume_mounts: bool,
    /// Whether the environment of a container that is not privileged may name devices, so that an image can. Default: yes,
    /// as for the vendor's runtime.
    pub environment_when_unprivileged: bool,
    /// Variables that count in the place of `NVIDIA_VISIBLE_DEVICES` if one of them is set. Default: none.
    pub swarm_resources: Vec<String>,
}

impl Default for RequestPolicy {
    fn default() -> Self {
        Self {
            default_kind: Kind::new(names::VENDOR, names::CLASS).expect("a valid kind"),
            annotation_prefixes: vec![ANNOTATION_PREFIX.to_owned()],
            volume_mounts: false,
            environment_when_unprivileged: true,
            swarm_resources: Vec::new(),
        }
    }
}

/// What a container asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// The devices, each once, in the order in which they were named.
    pub devices: Vec<QualifiedName>,
    /// Devices that go with the GPUs and that it gets where the node has them: its environment says that it can use them.
    pub companions: Vec<QualifiedName>,
    /// Devices that its environment names and that it does not get, because it is not privileged.
    pub refused: Vec<String>,
}

/// Reads what a container asks for from its OCI configuration.
///
/// Annotations count before mounts, and mounts before the environment; the first that names a device is all that counts.
///
/// # Errors
/// [`Error::Request`] if a name is none.
pub fn requested(config: &Value, policy: &RequestPolicy) -> Result<Request> {
    let mut request = without_companions(config, policy)?;
    let heard = policy.environment_when_unprivileged || is_privileged(config);
    if heard && !request.devices.is_empty() {
        request.companions = companions(config, policy)?;
    }
    Ok(request)
}

/// The devices that variables ask for beside GPUs, of kinds of their own.
fn companions(config: &Value, policy: &RequestPolicy) -> Result<Vec<QualifiedName>> {
    let vendor = policy.default_kind.vendor();
    let mut asked = Vec::new();
    for (variable, companion) in COMPANIONS {
        if variables(config)
            .rev()
            .find(|(key, _)| *key == variable)
            .is_some_and(|(_, value)| value == "enabled")
        {
            asked.push(format!("{vendor}/{companion}={}", names::ALL));
        }
    }
    let channels = variables(config).rev().find(|(key, _)| *key == names::IMEX_CHANNELS);
    let channels = channels
        .into_iter()
        .flat_map(|(_, value)| value.split(','))
        .map(str::trim);
    for channel in channels.filter(|channel| !channel.is_empty()) {
        let channel = channel.strip_prefix("channel").unwrap_or(channel);
        asked.push(format!("{vendor}/{}={channel}", names::IMEX_CHANNEL_CLASS));
    }
    let asked = asked.iter().map(|name| name.parse());
    let place = variable(names::IMEX_CHANNELS);
    asked
        .collect::<Result<_, _>>()
        .map_err(|source| Error::Request { place, source })
}

fn without_companions(config: &Value, policy: &RequestPolicy) -> Result<Request> {
    let devices = from_annotations(config, policy)?;
    if !devices.is_empty() {
        return Ok(Request::for_devices(devices));
    }
    let mounts = if policy.volume_mounts {
        from_mounts(config)
    } else {
        Vec::new()
    };
    if !mounts.is_empty() {
        let place = || format!("mounts beneath `{}`", names::DEVICE_MOUNTS);
        return Ok(Request::for_devices(named(&mounts, policy, place)?));
    }
    let (variables, names) = from_environment(config, policy);
    if !names.is_empty() && !policy.environment_when_unprivileged && !is_privileged(config) {
        return Ok(Request {
            refused: names,
            ..Request::default()
        });
    }
    let place = || variables.iter().copied().map(variable).collect::<Vec<_>>().join(", ");
    Ok(Request::for_devices(named(&names, policy, place)?))
}

impl Request {
    fn for_devices(all: Vec<QualifiedName>) -> Self {
        let mut devices: Vec<QualifiedName> = Vec::with_capacity(all.len());
        for device in all {
            if !devices.contains(&device) {
                devices.push(device);
            }
        }
        Self {
            devices,
            ..Self::default()
        }
    }
}

fn from_annotations(config: &Value, policy: &RequestPolicy) -> Result<Vec<QualifiedName>> {
    let annotations = config["annotations"].as_object().into_iter().flatten();
    let annotations = annotations.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)));
    let prefixes: Vec<&str> = policy.annotation_prefixes.iter().map(String::as_str).collect();
    let mut devices = Vec::new();
    for (key, value) in annotations {
        let named = annotated_devices([(key, value)], &prefixes).map_err(|source| Error::Request {
            place: format!("the annotation `{key}`"),
            source,
        })?;
        devices.extend(named);
    }
    Ok(devices)
}

/// Names of devices; `cdi/vendor/class/name` is a qualified one.
fn from_mounts(config: &Value) -> Vec<String> {
    let mounts = config["mounts"].as_array().into_iter().flatten();
    mounts
        .filter(|mount| mount["source"] == MOUNT_SOURCE)
        .filter_map(|mount| mount["destination"].as_str()?.strip_prefix(names::DEVICE_MOUNTS))
        .map(|name| {
            let qualified = || {
                let (kind, name) = name.strip_prefix("cdi/")?.rsplit_once('/')?;
                Some(format!("{kind}={name}"))
            };
            qualified().unwrap_or_else(|| name.to_owned())
        })
        .filter(|name| !name.is_empty())
        .collect()
}

/// Names of devices, and the variables that hold them.
fn from_environment<'a>(config: &'a Value, policy: &RequestPolicy) -> (Vec<&'a str>, Vec<String>) {
    // The last one counts, as for the process that gets them.
    let found = |name: &str| variables(config).rev().find(|(key, _)| *key == name);
    let swarm: Vec<_> = policy.swarm_resources.iter().filter_map(|name| found(name)).collect();
    let asking = if swarm.is_empty() {
        match (found(names::VISIBLE_DEVICES), found(names::CUDA_VERSION)) {
            (Some(asking), _) => vec![asking],
            // Images of CUDA before version 9 meant it without saying so.
            (None, Some((variable, _))) if found(names::REQUIRE_CUDA).is_none() => vec![(variable, names::ALL)],
            _ => Vec::new(),
        }
    } else {
        swarm
    };
    let asked = asking.iter().flat_map(|(_, value)| value.split(',')).map(str::trim);
    let asked = asked.filter(|name| !matches!(*name, "" | names::VISIBLE_DEVICES_VOID | names::NONE));
    let names = asked.map(str::to_owned).collect();
    (asking.into_iter().map(|(variable, _)| variable).collect(), names)
}

fn variable(name: &str) -> String {
    format!("the variable `{name}`")
}

fn variables(config: &Value) -> impl DoubleEndedIterator<Item = (&str, &str)> {
    let variables = config["process"]["env"].as_array().into_iter().flatten();
    variables.filter_map(|variable| variable.as_str()?.split_once('='))
}

fn named(names: &[String], policy: &RequestPolicy, place: impl FnOnce() -> String) -> Result<Vec<QualifiedName>> {
    let parse = |name: &String| match name.parse::<QualifiedName>() {
        Ok(name) => Ok(name),
        Err(error) if name.contains('=') => Err(error),
        Err(_) => Ok(QualifiedName {
            kind: policy.default_kind.clone(),
            name: name.parse()?,
        }),
    };
    names
        .iter()
        .map(parse)
        .collect::<Result<_, _>>()
        .map_err(|source| Error::Request { place: place(), source })
}

fn is_privileged(config: &Value) -> bool {
    let bounding = config["process"]["capabilities"]["bounding"].as_array();
    bounding.is_some_and(|names| names.iter().any(|name| name == PRIVILEGE))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn devices(request: &Request) -> Vec<String> {
        request.devices.iter().map(ToString::to_string).collect()
    }

    #[track_caller]
    fn check(config: &Value, policy: &RequestPolicy, expected: &[&str]) {
        let request = requested(config, policy).unwrap();
        assert_eq!(devices(&request), expected);
        assert!(request.refused.is_empty());
    }

    fn env(variables: &[&str]) -> Value {
        json!({ "process": { "env": variables } })
    }

    #[test]
    fn variables_name_devices() {
        let policy = RequestPolicy::default();
        let check = |variables: &[&str], expected: &[&str]| check(&env(variables), &policy, expected);
        check(
            &["NVIDIA_VISIBLE_DEVICES=0,GPU-1, 0"],
            &["nvidia.com/gpu=0", "nvidia.com/gpu=GPU-1"],
        );
        check(
            &["NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_VISIBLE_DEVICES=all"],
            &["nvidia.com/gpu=all"],
        );
        check(
            &["NVIDIA_VISIBLE_DEVICES=v.com/nic=eth0,0:1"],
            &["v.com/nic=eth0", "nvidia.com/gpu=0:1"],
        );
        for nothing in ["void", "none", ""] {
            check(&[&format!("NVIDIA_VISIBLE_DEVICES={nothing}"), "CUDA_VERSION=8.0"], &[]);
        }
        check(&["CUDA_VERSION=8.0"], &["nvidia.com/gpu=all"]);
        check(&["CUDA_VERSION=12.4", "NVIDIA_REQUIRE_CUDA=cuda>=12.4"], &[]);
        check(&["PATH=/bin"], &[]);
    }

    #[test]
    fn annotations_count_before_mounts_and_mounts_before_variables() {
        let mut policy = RequestPolicy::default();
        let mut config = env(&["NVIDIA_VISIBLE_DEVICES=0"]);
        let mount =
            |name: &str| json!({ "source": "/dev/null", "destination": format!("{}{name}", names::DEVICE_MOUNTS) });
        config["mounts"] = json!([
            { "source": "/x", "destination": format!("{}5", names::DEVICE_MOUNTS) },
            mount("1"),
            mount("cdi/v.com/nic/eth0"),
        ]);
        check(&config, &policy, &["nvidia.com/gpu=0"]);
        policy.volume_mounts = true;
        check(&config, &policy, &["nvidia.com/gpu=1", "v.com/nic=eth0"]);
        config["annotations"] = json!({ "cdi.k8s.io/plugin_0": "k8s.v.com/gpu=7", "other/x": "y" });
        check(&config, &policy, &["k8s.v.com/gpu=7"]);
    }

    #[test]
    fn the_environment_alone_gives_nothing_where_it_is_not_enabled() {
        let policy = RequestPolicy {
            environment_when_unprivileged: false,
            ..RequestPolicy::default()
        };
        let mut config = env(&["NVIDIA_VISIBLE_DEVICES=all"]);
        let request = requested(&config, &policy).unwrap();
        assert_eq!((request.devices.len(), request.refused), (0, vec!["all".to_owned()]));
        config["process"]["capabilities"] = json!({ "bounding": ["CAP_CHOWN", "CAP_SYS_ADMIN"] });
        check(&config, &policy, &["nvidia.com/gpu=all"]);
    }

    #[test]
    fn devices_beside_gpus_are_asked_for_by_variables_of_their_own() {
        let mut policy = RequestPolicy::default();
        let variables = [
            "NVIDIA_VISIBLE_DEVICES=0",
            "NVIDIA_GDS=enabled",
            "NVIDIA_MOFED=disabled",
            "NVIDIA_IMEX_CHANNELS=0,channel7",
        ];
        let companions = |variables: &[&str], policy: &RequestPolicy| -> Vec<String> {
            let request = requested(&env(variables), policy).unwrap();
            request.companions.iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            companions(&variables, &policy),
            [
                "nvidia.com/gds=all",
                "nvidia.com/imex-channel=0",
                "nvidia.com/imex-channel=7"
            ]
        );
        assert!(companions(&variables[1..], &policy).is_empty(), "none without a GPU");
        policy.environment_when_unprivileged = false;
        assert!(companions(&variables, &policy).is_empty());
    }

    #[test]
    fn swarm_resources_count_in_the_place_of_the_variable() {
        let policy = RequestPolicy {
            swarm_resources: vec!["DOCKER_RESOURCE_GPU".to_owned()],
            ..RequestPolicy::default()
        };
        let config = env(&["NVIDIA_VISIBLE_DEVICES=all", "DOCKER_RESOURCE_GPU=GPU-7"]);
        check(&config, &policy, &["nvidia.com/gpu=GPU-7"]);
        check(&env(&["NVIDIA_VISIBLE_DEVICES=0"]), &policy, &["nvidia.com/gpu=0"]);
    }

    #[test]
    fn what_is_no_device_is_an_error() {
        let policy = RequestPolicy {
            swarm_resources: vec!["SWARM".to_owned()],
            volume_mounts: true,
            ..RequestPolicy::default()
        };
        let check = |config: Value, place: &str, name: &str| {
            let error = requested(&config, &policy).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("the container's request in {place} is not one for devices")
            );
            let cause = std::error::Error::source(&error).unwrap().to_string();
            assert!(cause.starts_with(&format!("`{name}` is not a CDI ")), "{cause}");
        };
        check(
            env(&["NVIDIA_VISIBLE_DEVICES=0,../x"]),
            "the variable `NVIDIA_VISIBLE_DEVICES`",
            "../x",
        );
        check(
            env(&["NVIDIA_VISIBLE_DEVICES=a=b"]),
            "the variable `NVIDIA_VISIBLE_DEVICES`",
            "a",
        );
        check(
            env(&["NVIDIA_VISIBLE_DEVICES=0", "SWARM=a b"]),
            "the variable `SWARM`",
            "a b",
        );
        check(
            env(&["NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_IMEX_CHANNELS=-"]),
            "the variable `NVIDIA_IMEX_CHANNELS`",
            "-",
        );
        check(
            json!({ "annotations": { "cdi.k8s.io/a": "v.com/c=0", "cdi.k8s.io/x": "0" } }),
            "the annotation `cdi.k8s.io/x`",
            "0",
        );
        let mount = json!({ "source": "/dev/null", "destination": format!("{}a b", names::DEVICE_MOUNTS) });
        let place = format!("mounts beneath `{}`", names::DEVICE_MOUNTS);
        check(json!({ "mounts": [mount] }), &place, "a b");
    }
}
