//! A scheduler extender that knows how MIG instances fit: it filters nodes for a pod's `nvidia.com/mig-…` requests, and
//! prefers the node that is worth least less afterwards.
//!
//! Nodes are JSON files of `gpuctl inventory -o json`, named by their node: `cargo run -p gpu-examples --example
//! scheduler_extender FOLDER 127.0.0.1:8888`. The scheduler's configuration names `filterVerb: filter`, `prioritizeVerb:
//! prioritize` and `nodeCacheCapable: true`. What exists counts as taken; what is asked for is made beside it.

use std::{collections::BTreeMap, env, fs, sync::Arc};

use anyhow::Context as _;
use axum::{Json, Router, extract::State, routing::post};
use gpu_core::{Inventory, Usage};
use gpu_sharing::mig::{Demand, Fleet, GpuState, Profile, fleet, plan};
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
        nodes.insert(
            name.to_owned(),
            node(&text).with_context(|| format!("cannot use `{}`", path.display()))?,
        );
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
    let taken = |gpu: &GpuState| {
        let mut gpu = gpu.clone();
        for held in &mut gpu.instances {
            held.pinned = true;
        }
        gpu
    };
    Ok(Fleet::new(
        fleet(&inventory, &Usage::default())?.gpus().iter().map(taken),
    )?)
}

fn router(nodes: Nodes) -> Router {
    Router::new()
        .route("/filter", post(filter))
        .route("/prioritize", post(prioritize))
        .with_state(nodes)
}

/// What the containers of a pod ask for together.
fn demand(pod: &Value) -> Demand {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let limits = containers
        .filter_map(|container| container["resources"]["limits"].as_object())
        .flatten();
    let profile = |(name, count): (&String, &Value)| {
        let name = name.strip_prefix("nvidia.com/mig-")?;
        // In resource names attributes follow a dot: `1g.10gb.me`.
        let name = name
            .split_once("gb.")
            .map_or_else(|| name.to_owned(), |(size, list)| format!("{size}gb+{list}"));
        let count = count
            .as_str()
            .and_then(|text| text.parse().ok())
            .or_else(|| u32::try_from(count.as_u64()?).ok());
        Some((name.parse::<Profile>().ok()?, count?))
    };
    limits.filter_map(profile).collect()
}

fn named(arguments: &Value) -> impl Iterator<Item = &str> {
    arguments["nodenames"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

/// What the node is worth less after the pod than before; why not, where it does not fit.
fn added(nodes: &Nodes, name: &str, demand: &Demand) -> Result<u32, String> {
    let fleet = nodes.get(name).ok_or("nothing is known of its GPUs")?;
    let loss = |demand| {
        plan(fleet, demand)
            .map(|plan| plan.cost.loss)
            .map_err(|error| error.to_string())
    };
    Ok(loss(demand)?.saturating_sub(loss(&Demand::default())?))
}

async fn filter(State(nodes): State<Nodes>, Json(arguments): Json<Value>) -> Json<Value> {
    let demand = demand(&arguments["pod"]);
    let mut fit = Vec::new();
    let mut failed = BTreeMap::new();
    for name in named(&arguments) {
        // A pod that asks for no instance is none of ours.
        match demand.iter().next().map_or(Ok(0), |_| added(&nodes, name, &demand)) {
            Ok(_) => fit.push(name),
            Err(reason) => drop(failed.insert(name, reason)),
        }
    }
    Json(json!({ "nodenames": fit, "failedNodes": failed }))
}

async fn prioritize(State(nodes): State<Nodes>, Json(arguments): Json<Value>) -> Json<Value> {
    let demand = demand(&arguments["pod"]);
    let added: Vec<_> = named(&arguments)
        .map(|name| (name, added(&nodes, name, &demand).unwrap_or(u32::MAX)))
        .collect();
    let mut distinct: Vec<_> = added.iter().map(|&(_, added)| added).collect();
    distinct.sort_unstable();
    distinct.dedup();
    // The scheduler's scores go from 0 to 10: the rank counts, not the distance.
    let score = |added| 10_usize.saturating_sub(distinct.iter().position(|&other| other == added).unwrap_or(10));
    Json(
        added
            .iter()
            .map(|&(name, added)| json!({ "host": name, "score": score(added) }))
            .collect(),
    )
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
        let body = json!({ "pod": pod, "nodenames": ["empty", "used"] }).to_string();
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
        let answer: Value = serde_json::from_slice(&runtime.block_on(answer)).expect("JSON");
        assert_eq!(answer, *expected);
    }

    #[test]
    fn nodes_without_room_are_left_out_and_what_is_cut_up_already_comes_first() {
        let folder = tempfile::tempdir().expect("a folder");
        let nodes = nodes(folder.path());
        let reason = "1 of 1 × `7g.80gb` do not fit on";
        let Json(answer) = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime")
            .block_on(filter(
                State(Arc::clone(&nodes)),
                Json(
                    json!({ "nodenames": ["used"], "pod": { "spec": { "containers": [{ "resources": { "limits":
                { "nvidia.com/mig-7g.80gb": "1" } } }] } } }),
                ),
            ));
        assert!(
            answer["failedNodes"]["used"]
                .as_str()
                .is_some_and(|text| text.starts_with(reason)),
            "{answer}"
        );
        check(
            &nodes,
            "/filter",
            "1g.10gb.me",
            &json!({ "nodenames": ["empty", "used"], "failedNodes": {} }),
        );
        let scores = json!([{ "host": "empty", "score": 9 }, { "host": "used", "score": 10 }]);
        check(&nodes, "/prioritize", "1g.10gb", &scores);
    }
}
