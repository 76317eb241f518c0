use std::path::Path;

use serde_json::Value;

use super::{Error, Result};
use crate::{ANNOTATION_PREFIX, Companion, Kind, QualifiedName, annotated_devices, names};

/// Mounts that name devices have this source, since nothing is to be mounted.
const MOUNT_SOURCE: &str = "/dev/null";
/// Mounts beneath this one name IMEX channels.
const IMEX_MOUNT: &str = "imex/";
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
    if !request.devices.is_empty() {
        request.companions = companions(config, policy)?;
    }
    Ok(request)
}

/// The devices that are asked for beside GPUs, of kinds of their own: by variables, and IMEX channels also by mounts.
fn companions(config: &Value, policy: &RequestPolicy) -> Result<Vec<QualifiedName>> {
    let heard = is_environment_heard(config, policy);
    let vendor = policy.default_kind.vendor();
    let mut asked = Vec::new();
    for (variable, companion) in COMPANIONS {
        if heard && last(config, variable).is_some_and(|(_, value)| value == "enabled") {
            asked.push(format!("{vendor}/{companion}={}", names::ALL));
        }
    }
    let mut channels = mounted_channels(config, policy);
    let mut place = mounts();
    if channels.is_empty() && heard {
        channels = selected(last(config, names::IMEX_CHANNELS).as_slice());
        // Nobody gets all channels by the word.
        channels.retain(|channel| channel != names::ALL);
        place = variable(names::IMEX_CHANNELS);
    }
    for channel in &channels {
        let channel = channel.strip_prefix("channel").unwrap_or(channel);
        asked.push(format!("{vendor}/{}={channel}", names::IMEX_CHANNEL_CLASS));
    }
    let asked = asked.iter().map(|name| name.parse());
    asked
        .collect::<Result<_, _>>()
        .map_err(|source| Error::Request { place, source })
}

fn without_companions(config: &Value, policy: &RequestPolicy) -> Result<Request> {
    let devices = from_annotations(config, policy)?;
    if !devices.is_empty() {
        return Ok(Request::for_devices(devices));
    }
    let mounted = from_mounts(config, policy);
    if !mounted.is_empty() {
        return Ok(Request::for_devices(named(&mounted, policy, mounts)?));
    }
    let (variables, names) = from_environment(config, policy);
    if !names.is_empty() && !is_environment_heard(config, policy) {
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

/// Names of devices; `cdi/vendor/class/name` and `cdi/vendor/class=name` are qualified ones.
fn from_mounts(config: &Value, policy: &RequestPolicy) -> Vec<String> {
    mounted(config, policy)
        .filter(|name| !name.starts_with(IMEX_MOUNT))
        .map(|name| {
            let qualified = name.strip_prefix("cdi/").map(|name| match name.rsplit_once('/') {
                Some((kind, name)) if !name.contains('=') => format!("{kind}={name}"),
                _ => name.to_owned(),
            });
            qualified.unwrap_or_else(|| name.to_owned())
        })
        .collect()
}

fn mounted_channels(config: &Value, policy: &RequestPolicy) -> Vec<String> {
    let channels = mounted(config, policy).filter_map(|name| name.strip_prefix(IMEX_MOUNT));
    channels.map(str::to_owned).collect()
}

/// What the mounts name, if they may.
fn mounted<'a>(config: &'a Value, policy: &RequestPolicy) -> impl Iterator<Item = &'a str> {
    let mounts = config["mounts"].as_array().filter(|_| policy.volume_mounts);
    let mounts = mounts.into_iter().flatten();
    let mounts = mounts.filter_map(|mount| Some((mount["source"].as_str()?, mount["destination"].as_str()?)));
    mounts
        // As paths, in which `/` twice or in the end means nothing.
        .filter(|(source, _)| Path::new(source) == Path::new(MOUNT_SOURCE))
        .filter_map(|(_, destination)| Path::new(destination).strip_prefix(names::DEVICE_MOUNTS).ok()?.to_str())
        .map(|name| name.trim_end_matches('/'))
        .filter(|name| !name.is_empty())
}

fn mounts() -> String {
    format!("mounts beneath `{}`", names::DEVICE_MOUNTS)
}

/// Names of devices, and the variables that hold them.
fn from_environment<'a>(config: &'a Value, policy: &RequestPolicy) -> (Vec<&'a str>, Vec<String>) {
    let swarm: Vec<_> = policy
        .swarm_resources
        .iter()
        .filter_map(|name| last(config, name))
        .collect();
    let says = |name: &str| last(config, name).filter(|(_, value)| !value.is_empty());
    let asking = if swarm.is_empty() {
        match (last(config, names::VISIBLE_DEVICES), says(names::CUDA_VERSION)) {
            (Some(asking), _) => vec![asking],
            // Images of CUDA before version 9 meant it without saying so.
            (None, Some((variable, _))) if says(names::REQUIRE_CUDA).is_none() => vec![(variable, names::ALL)],
            _ => Vec::new(),
        }
    } else {
        swarm
    };
    let names = selected(&asking);
    (asking.into_iter().map(|(variable, _)| variable).collect(), names)
}

/// The names in these values, as the vendor's runtime takes them (`internal/config/image` of v1.20): `void` anywhere is
/// nothing, and else the first `all` or `none` is all that counts.
fn selected(variables: &[(&str, &str)]) -> Vec<String> {
    let names = variables.iter().flat_map(|(_, value)| value.split(',')).map(str::trim);
    let names: Vec<_> = names.filter(|name| !name.is_empty()).collect();
    if names.contains(&names::VISIBLE_DEVICES_VOID) {
        return Vec::new();
    }
    match names.iter().find(|name| matches!(**name, names::ALL | names::NONE)) {
        Some(&names::ALL) => vec![names::ALL.to_owned()],
        Some(_) => Vec::new(),
        None => names.into_iter().map(str::to_owned).collect(),
    }
}

fn variable(name: &str) -> String {
    format!("the variable `{name}`")
}

/// The variable of this name that the process gets: the last one counts.
fn last<'a>(config: &'a Value, name: &str) -> Option<(&'a str, &'a str)> {
    variables(config).rev().find(|(key, _)| *key == name)
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

fn is_environment_heard(config: &Value, policy: &RequestPolicy) -> bool {
    policy.environment_when_unprivileged || is_privileged(config)
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

    fn mount(name: &str) -> Value {
        json!({ "source": "/dev/null", "destination": format!("{}{name}", names::DEVICE_MOUNTS) })
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
        check(&["PATH=/bin"], &[]);
    }

    #[test]
    fn void_all_and_none_count_as_they_do_for_the_vendor() {
        #[track_caller]
        fn check_value(value: &str, expected: &[&str]) {
            // A variable that is there, whatever it says, makes nothing of what the image's age would mean.
            for variables in [&["CUDA_VERSION=8.0"][..], &[]] {
                let asking = format!("NVIDIA_VISIBLE_DEVICES={value}");
                let variables = [&[asking.as_str()], variables].concat();
                check(&env(&variables), &RequestPolicy::default(), expected);
            }
        }
        for nothing in [
            "",
            " ",
            ",",
            " , ,",
            "void",
            " void ",
            "none",
            "void,0",
            "0,void",
            "all,void",
            "void,all",
            "none,0",
            "0,none",
            "none,all",
            "0,none,all",
            "none,none",
        ] {
            check_value(nothing, &[]);
        }
        for all in [
            "all",
            "all,77",
            "77, all",
            "all,none",
            "0,all,none",
            "all,all",
            ",all,",
            "v.com/nic=eth0,all",
            "all,../x",
        ] {
            check_value(all, &["nvidia.com/gpu=all"]);
        }
        check_value(",0,, 1 ,0,", &["nvidia.com/gpu=0", "nvidia.com/gpu=1"]);
        check_value("Void,ALL", &["nvidia.com/gpu=Void", "nvidia.com/gpu=ALL"]);
    }

    #[test]
    fn images_from_before_cuda_9_ask_for_all() {
        #[track_caller]
        fn check_age(variables: &[&str], all: bool) {
            let expected: &[&str] = if all { &["nvidia.com/gpu=all"] } else { &[] };
            check(&env(variables), &RequestPolicy::default(), expected);
        }
        check_age(&["CUDA_VERSION=8.0"], true);
        check_age(&["CUDA_VERSION="], false);
        check_age(&["CUDA_VERSION=8.0", "CUDA_VERSION="], false);
        check_age(&["CUDA_VERSION=8.0", "NVIDIA_REQUIRE_CUDA="], true);
        check_age(&["CUDA_VERSION=12.4", "NVIDIA_REQUIRE_CUDA=cuda>=12.4"], false);
        check_age(&["NVIDIA_REQUIRE_CUDA=cuda>=12.4"], false);
    }

    #[test]
    fn annotations_count_before_mounts_and_mounts_before_variables() {
        let mut policy = RequestPolicy::default();
        let mut config = env(&["NVIDIA_VISIBLE_DEVICES=0"]);
        config["mounts"] = json!([
            { "source": "/x", "destination": format!("{}5", names::DEVICE_MOUNTS) },
            { "source": "//dev/null", "destination": "/var/run//nvidia-container-devices/1/" },
            mount(""),
            mount("cdi/v.com/nic/eth0"),
            mount("cdi/v.com/nic=eth1"),
            mount("imex/3"),
        ]);
        check(&config, &policy, &["nvidia.com/gpu=0"]);
        policy.volume_mounts = true;
        check(
            &config,
            &policy,
            &["nvidia.com/gpu=1", "v.com/nic=eth0", "v.com/nic=eth1"],
        );
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
        for (value, expected) in [
            ("all", &[][..]),
            ("all,0", &[]),
            ("void,0", &[]),
            ("none", &[]),
            (" 0,,1", &["nvidia.com/imex-channel=0", "nvidia.com/imex-channel=1"]),
        ] {
            let variables = [variables[0], &format!("NVIDIA_IMEX_CHANNELS={value}")];
            assert_eq!(companions(&variables, &policy), expected, "{value}");
        }
        policy.environment_when_unprivileged = false;
        assert!(companions(&variables, &policy).is_empty());
        policy.volume_mounts = true;
        let mut config = env(&variables);
        config["mounts"] = json!([mount("0"), mount("imex/2")]);
        let request = requested(&config, &policy).unwrap();
        assert_eq!(devices(&request), ["nvidia.com/gpu=0"]);
        let channels: Vec<_> = request.companions.iter().map(ToString::to_string).collect();
        assert_eq!(
            channels,
            ["nvidia.com/imex-channel=2"],
            "mounts count before variables that do not count"
        );
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
        let place = format!("mounts beneath `{}`", names::DEVICE_MOUNTS);
        check(json!({ "mounts": [mount("a b")] }), &place, "a b");
    }
}
