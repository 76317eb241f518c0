//! The ground under all other tests: the node runs pods, shows their logs, and lets commands in.

use std::time::Duration;

use anyhow::Result;
use gpu_e2e::Cluster;
use serde_json::json;

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn a_pod_runs_logs_answers_exec_and_goes_away() -> Result<()> {
    let cluster = Cluster::current()?;
    cluster.apply(&json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "ground" },
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "main",
                "image": "localhost/gpu-e2e/busybox:test",
                "imagePullPolicy": "Never",
                "command": ["sh", "-c", "echo hello from the pod; exec sleep 600"],
            }],
        },
    }))?;
    cluster.wait_for_phase("default", "ground", "Running", LIMIT)?;
    gpu_e2e::wait::until("the pod's log has its line", LIMIT, || {
        Ok((cluster.logs("default", "ground")? == "hello from the pod\n").then_some(()))
    })?;
    let answer = cluster.exec("default", "ground", &["sh", "-c", "echo exec in $HOSTNAME"])?;
    assert_eq!(answer.stdout, "exec in ground\n");
    cluster.delete("pod", "default", "ground", LIMIT)?;
    assert!(cluster.kubectl(["get", "pod", "ground"]).is_err(), "the pod is still there");
    Ok(())
}
