//! A scheduler extender that knows how MIG instances fit: it filters nodes for a pod's `nvidia.com/mig-…` requests, and
//! prefers the node that is worth least less afterwards.
//!
//! Nodes are JSON files of `gpuctl inventory -o json`, named by their node: `cargo run -p gpu-examples --example
//! scheduler_extender FOLDER 127.0.0.1:8888`. What exists counts as taken; what is asked for is made beside it. In the
//! scheduler's configuration: `filterVerb: filter`, `prioritizeVerb: prioritize`, `weight: 1`, `nodeCacheCapable: true`,
//! and of each resource `managedResources: [{ name: nvidia.com/mig-1g.10gb, ignoredByScheduler: true }]`.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    sync::Arc,
};

use anyhow::Context as _;
use axum::{Json, Router, extract::State, routing::post};
use gpu_core::{Inventory, Usage};
use gpu_sharing::mig::{Demand, Fleet, Instance, Profile, fleet, plan};
use serde_json::{Value, json};

type Nodes = Arc<BTreeMap<String, Fleet>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut arguments = env::args().skip(1);
    let usage = "usage: scheduler_extender FOLDER ADDRESS:PORT";
    let (folder, address) = (arguments.next().context(usage)?, arguments.next().context(usage)?);
    let mut nodes = BTreeMap::new();
    for file in fs::read_dir(&folder).with_context(|| format!("cannot list `{folder}`"))? {
        let path = file?.path();
        let Some(name) = path.file_stem().and_then(|name| name.to_str()) else {
            continue;
        };
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
        let node = node(&text).with_context(|| format!("cannot use `{}`", path.display()))?;
        nodes.insert(name.to_owned(), node);
    }
    let listener = tokio::net::TcpListener::bind(&address)
        .await
        .with_context(|| format!("cannot listen on {address}"))?;
    axum::serve(listener, router(Arc::new(nodes)))
        .await
        .context("the server ended")
}

/// The GPUs of a node, all that exists on them in use.
fn node(text: &str) -> anyhow::Result<Fleet> {
    let inventory: Inventory = serde_json::from_str(text)?;
    let mut gpus = fleet(&inventory, &Usage::default())?.gpus().to_vec();
    let all = gpus.iter_mut().flat_map(|gpu| &mut gpu.instances);
    all.for_each(|held| held.pinned = true);
    Ok(Fleet::new(gpus)?)
}

fn router(nodes: Nodes) -> Router {
    Router::new()
        .route("/filter", post(filter))
        .route("/prioritize", post(prioritize))
        .with_state(nodes)
}

/// What a pod has at most at one time: its containers, or one that prepares it, beside those that stay.
fn demand(pod: &Value) -> Result<Demand, String> {
    let list = |kind: &str| pod["spec"][kind].as_array().into_iter().flatten();
    let prepare = list("initContainers").map(|container| (container["restartPolicy"] == "Always", container));
    let (mut most, mut beside) = (BTreeMap::new(), BTreeMap::new());
    for (stays, container) in prepare.chain(list("containers").map(|container| (true, container))) {
        let mut with = beside.clone();
        for limit in container["resources"]["limits"].as_object().into_iter().flatten() {
            if let Some((profile, count)) = asked(limit)? {
                let sum: &mut u32 = with.entry(profile).or_default();
                *sum = sum.saturating_add(count);
            }
        }
        for (profile, &count) in &with {
            let so_far: &mut u32 = most.entry(profile.clone()).or_default();
            *so_far = count.max(*so_far);
        }
        if stays {
            beside = with;
        }
    }
    Ok(most.into_iter().collect())
}

/// The instances of a limit, if it is one of instances.
fn asked((resource, count): (&String, &Value)) -> Result<Option<(Profile, u32)>, String> {
    let Some(name) = resource.strip_prefix("nvidia.com/mig-") else {
        return Ok(None);
    };
    // In resource names attributes follow a dot: `1g.10gb.me`.
    let profile = name.replacen("gb.", "gb+", 1).parse();
    let number = count.to_string().trim_matches('"').parse();
    let number = number.map_err(|_| format!("`{resource}`: {count} is no count"))?;
    let profile = profile.map_err(|error| format!("`{resource}`: {error}"))?;
    Ok(Some((profile, number)))
}

/// The fields have the names that they have in Go (`k8s.io/kube-scheduler/extender/v1`), but in the pod.
fn named(arguments: &Value) -> impl Iterator<Item = &str> {
    let names = arguments["NodeNames"].as_array().into_iter().flatten();
    names.filter_map(Value::as_str)
}

/// What the node is worth less after the pod than before, and where its instances would be; why not, where it does not fit.
fn added(nodes: &Nodes, name: &str, demand: &Demand) -> Result<(u32, Value), String> {
    if demand.iter().next().is_none() {
        return Ok((0, json!([]))); // a pod that asks for no instance is none of ours
    }
    let fleet = nodes.get(name).ok_or("nothing is known of its GPUs")?;
    let planned = |demand| plan(fleet, demand).map_err(|error| error.to_string());
    let (before, after) = (planned(&Demand::default())?, planned(demand)?);
    let place = |(gpu, at): &(String, Instance)| json!({ "gpu": gpu, "instance": at.to_string() });
    let places = after.serving.iter().map(place).collect();
    Ok((after.cost.loss.saturating_sub(before.cost.loss), places))
}

/// Beside what the scheduler reads, `Placements` says by node where the planner would make the instances. A node that is left
/// out is so for good, since what exists counts as taken whoever goes: or the scheduler would preempt pods for nothing.
async fn filter(State(nodes): State<Nodes>, Json(arguments): Json<Value>) -> Json<Value> {
    let demand = match demand(&arguments["Pod"]) {
        Err(error) => return Json(json!({ "Error": error })),
        Ok(_) if arguments["NodeNames"].is_null() => return Json(json!({ "Error": "no `nodeCacheCapable: true`" })),
        Ok(demand) => demand,
    };
    let (mut placements, mut failed) = (BTreeMap::new(), BTreeMap::new());
    for name in named(&arguments) {
        match added(&nodes, name, &demand) {
            Ok((_, places)) => drop(placements.insert(name, places)),
            Err(reason) => drop(failed.insert(name, reason)),
        }
    }
    let fit: Vec<_> = placements.keys().collect();
    Json(json!({ "NodeNames": fit, "FailedAndUnresolvableNodes": failed, "Placements": placements }))
}

async fn prioritize(State(nodes): State<Nodes>, Json(arguments): Json<Value>) -> Json<Value> {
    let demand = demand(&arguments["Pod"]).unwrap_or_default(); // the filter has refused it
    let worth = |name| added(&nodes, name, &demand).map_or(u32::MAX, |(added, _)| added);
    let added: Vec<_> = named(&arguments).map(|name| (name, worth(name))).collect();
    let distinct: BTreeSet<_> = added.iter().map(|&(_, added)| added).collect();
    // The scheduler's scores go from 0 to 10: the rank counts, not the distance.
    let score = |added| 10_usize.saturating_sub(distinct.range(..added).count());
    let scores = added
        .iter()
        .map(|&(name, added)| json!({ "Host": name, "Score": score(added) }));
    Json(scores.collect())
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use gpu_core::nvml::{Library, LibrarySearch};
    use gpu_sim::{Node, NodeSpec};
    use tower::ServiceExt as _;

    use super::*;

    /// Two nodes of one H100 each: one with room for halves alone, and one that is empty.
    fn nodes(folder: &std::path::Path) -> Nodes {
        let read = |name: &str, starts: &[u32]| {
            let node = Node::create(&NodeSpec::new("h100").gpus(1), folder.join(name)).expect("a node");
            node.set_mig_mode(0, true).expect("it has MIG");
            for &start in starts {
                node.create_mig(0, "1g.10gb", Some(start)).expect("it fits");
            }
            let search = LibrarySearch {
                library: Some(node.library()),
                ..LibrarySearch::default()
            };
            let inventory = Library::open(&search)
                .and_then(|library| library.inventory(&node.root()))
                .expect("it is read");
            (
                name.to_owned(),
                super::node(&serde_json::to_string(&inventory).expect("JSON")).expect("a fleet"),
            )
        };
        Arc::new(BTreeMap::from([read("used", &[0]), read("empty", &[])]))
    }

    #[track_caller]
    fn check(nodes: &Nodes, verb: &str, profile: &str, expected: &Value) {
        let limits = json!({ format!("nvidia.com/mig-{profile}"): "1" });
        let pod = json!({ "spec": { "containers": [{ "resources": { "limits": limits } }] } });
        assert_eq!(ask(nodes, verb, &pod), *expected);
    }

    fn ask(nodes: &Nodes, verb: &str, pod: &Value) -> Value {
        let body = json!({ "Pod": pod, "Nodes": null, "NodeNames": ["empty", "used"] });
        send(nodes, verb, body.to_string())
    }

    fn send(nodes: &Nodes, verb: &str, body: String) -> Value {
        let request = http::Request::post(verb)
            .header("content-type", "application/json")
            .body(Body::from(body));
        let answer = async {
            let answer = router(Arc::clone(nodes))
                .oneshot(request.expect("a request"))
                .await
                .expect("an answer");
            to_bytes(answer.into_body(), 1 << 20).await.expect("all of it")
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        serde_json::from_slice(&runtime.block_on(answer)).expect("JSON")
    }

    #[test]
    fn nodes_without_room_are_left_out_and_what_is_cut_up_already_comes_first() {
        let folder = tempfile::tempdir().expect("a folder");
        let nodes = nodes(folder.path());
        let pod = |limit: &Value| json!({ "spec": { "containers": [{ "resources": { "limits": limit } }] } });
        let answer = ask(&nodes, "/filter", &pod(&json!({ "nvidia.com/mig-7g.80gb": "1" })));
        let reason = answer["FailedAndUnresolvableNodes"]["used"].as_str().expect("a reason");
        assert!(reason.starts_with("1 of 1 × `7g.80gb` do not fit on"), "{reason}");
        assert_eq!(answer["NodeNames"], json!(["empty"]));
        let gpu = |name: &str| nodes[name].gpus()[0].name.clone();
        let at = |name: &str, place: &str| json!([{ "gpu": gpu(name), "instance": place }]);
        let placements = json!({ "empty": at("empty", "1g.10gb+me@6"), "used": at("used", "1g.10gb+me@1") });
        check(
            &nodes,
            "/filter",
            "1g.10gb.me",
            &json!({ "NodeNames": ["empty", "used"], "FailedAndUnresolvableNodes": {}, "Placements": placements }),
        );
        let scores = json!([{ "Host": "empty", "Score": 9 }, { "Host": "used", "Score": 10 }]);
        check(&nodes, "/prioritize", "1g.10gb", &scores);
        for count in [json!("-1"), json!(-1), json!("many"), json!(null)] {
            let answer = ask(&nodes, "/filter", &pod(&json!({ "nvidia.com/mig-1g.10gb": count })));
            assert_eq!(
                answer,
                json!({ "Error": format!("`nvidia.com/mig-1g.10gb`: {count} is no count") })
            );
        }
        let unknown = ask(&nodes, "/filter", &pod(&json!({ "nvidia.com/mig-9z": "1" })));
        assert!(
            unknown["Error"]
                .as_str()
                .is_some_and(|error| error.starts_with("`nvidia.com/mig-9z`: ")),
            "{unknown}"
        );
    }

    #[test]
    fn what_a_scheduler_sends_is_understood() {
        let folder = tempfile::tempdir().expect("a folder");
        let nodes = nodes(folder.path());
        // As Go writes `ExtenderArgs` of k8s.io/kube-scheduler v0.36.3.
        let sent = |nodes: &str| {
            format!(
                r#"{{"Pod":{{"metadata":{{"name":"p","namespace":"default"}},"spec":{{"containers":[{{"name":"c","resources":{{"limits":{{"nvidia.com/mig-7g.80gb":"1"}}}}}}]}},"status":{{}}}},{nodes}}}"#
            )
        };
        let by_name = sent(r#""Nodes":null,"NodeNames":["empty","used","other"]"#);
        let answer = send(&nodes, "/filter", by_name.clone());
        assert_eq!(answer["NodeNames"], json!(["empty"]));
        let left_out = answer["FailedAndUnresolvableNodes"].as_object().expect("the others");
        assert_eq!(left_out.keys().collect::<Vec<_>>(), ["other", "used"]);
        assert_eq!(left_out["other"], "nothing is known of its GPUs");
        let scores =
            json!([{ "Host": "empty", "Score": 10 }, { "Host": "used", "Score": 9 }, { "Host": "other", "Score": 9 }]);
        assert_eq!(send(&nodes, "/prioritize", by_name), scores);
        let whole = sent(r#""Nodes":{"metadata":{},"items":[]},"NodeNames":null"#);
        let refused = json!({ "Error": "no `nodeCacheCapable: true`" });
        assert_eq!(send(&nodes, "/filter", whole), refused);
    }

    #[test]
    fn a_pod_is_counted_as_kubernetes_does() {
        #[track_caller]
        fn check(init: &Value, containers: &Value, expected: &str) {
            let pod = json!({ "spec": { "initContainers": init, "containers": containers } });
            assert_eq!(demand(&pod).expect("a demand").to_string(), expected);
        }
        let asks = |profile: &str, count: u32| json!({ "resources": { "limits": { format!("nvidia.com/mig-{profile}"): count } } });
        let (one, two, half) = (asks("1g.10gb", 1), asks("1g.10gb", 2), asks("3g.40gb", 1));
        check(&json!([]), &json!([one, two, half]), "3 × 1g.10gb, 1 × 3g.40gb");
        // One after the other, before the others.
        check(&json!([two, two, half]), &json!([one]), "2 × 1g.10gb, 1 × 3g.40gb");
        // One that stays is there beside those that come after it.
        let mut stays = one.clone();
        stays["restartPolicy"] = json!("Always");
        check(&json!([two, stays, two]), &json!([one]), "3 × 1g.10gb");
        check(&json!([stays]), &json!([one, two]), "4 × 1g.10gb");
    }
}
