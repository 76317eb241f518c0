"""The device plugin: what a kubelet sees of it and gets."""

import json
import subprocess

import yaml

from node import HERE, Node, difference

RECORDS = HERE.parent.parent / "gpu-plugin/tests/upstream/k8s-device-plugin-0.20.0/cases.yaml"
FOLDER = "/var/lib/kubelet/device-plugins"

# Cases of whole GPUs that need nothing beside them: not MIG, whose devices the record tells apart by their place in a list, nor Xids,
# IMEX channels and driver roots elsewhere.
NEEDS_MORE = {"mig", "xid", "imex"}
ELSEWHERE = {"NVIDIA_DRIVER_ROOT", "NVIDIA_DEV_ROOT"}


def cases():
    for case in yaml.safe_load(RECORDS.read_text())["cases"]:
        if not NEEDS_MORE & case.keys() and not ELSEWHERE & (case.get("env") or {}).keys():
            yield case["name"], lambda options, case=case: check(options, case)


def check(options, case):
    for resource in case["resources"]:
        with Node(options.gpu_sim, case["profile"], len(resource["devices"])) as node:
            yield from check_resource(options, case, resource, node)


def check_resource(options, case, resource, node):
    # `~3::1` stands for replica 1 of device 3, which is the GPU that the list says.
    uuids = node.gpu_uuids()
    ours = [uuids[device["gpu"]] for device in resource["devices"]]
    replicas = [f"::{replica}" for replica in range(resource.get("replicas") or 0)] or [""]
    offered = [f"~{number}{replica}" for number in range(len(ours)) for replica in replicas]
    questions = {
        "resource": resource["name"],
        "allocate": [request["ids"] for request in resource["allocate"]],
        "preferred": [
            {
                "available": [one for one in offered if one not in question.get("without", [])],
                "must": question.get("must", []),
                "size": question["size"],
            }
            for question in resource["preferred"]
        ],
    }
    environment = dict(case.get("env") or {})
    if "config" in case:
        environment["CONFIG_FILE"] = str(node.scratch / "config.yaml")
        (node.scratch / "config.yaml").write_text(case["config"])
    # The plugin gives the kubelet's path as the name of the host it calls. A Go server takes any; the double's needs one that a host
    # could have.
    command = [options.kubelet_double, FOLDER, options.nvidia_device_plugin, "--kubelet-socket=kubelet.sock"]
    if "cdi" in environment.get("DEVICE_LIST_STRATEGY", ""):
        root = f"{node.folder}/root"
        command += [f"--nvidia-driver-root={root}", f"--container-driver-root={root}"]
    pairs = [(f"~{number}", uuid) for number, uuid in enumerate(ours)]
    try:
        result = node.run(command, environment, given=translate(json.dumps(questions), reversed(pairs)))
    except subprocess.TimeoutExpired:
        yield "no answer within two minutes"
        return
    if result.returncode:
        yield f"exit code {result.returncode}: {result.stderr[-600:]}"
        return
    found = json.loads(translate(result.stdout, [(uuid, name) for name, uuid in pairs]))
    by_index = environment.get("DEVICE_ID_STRATEGY") == "index"
    yield from differences(found, resource, offered, by_index)


def translate(text, pairs):
    for one, other in pairs:
        text = text.replace(one, other)
    return text


def differences(found, resource, offered, by_index):
    register = {"endpoint": resource["socket"], "resourceName": resource["name"], "version": "v1beta1"}
    yield from difference(found["register"], register, "register")
    nodes = [device["numa"] for device in resource["devices"]]
    numa = {one: nodes[int(one[1:].split("::")[0])] for one in offered}
    expected = {one: [] if node is None else [node] for one, node in numa.items()}
    yield from difference({device["id"]: device["numa_nodes"] for device in found["devices"]}, expected, "devices")
    for answer, request in zip(found["allocate"], resource["allocate"], strict=True):
        if "error" in request:
            recorded = {"error": request["error"]}
        else:
            recorded = [in_order(**one) for one in request["answers"]]
        yield from difference(comparable(answer, by_index), recorded, f"allocate {request['ids']}")
    for answer, question in zip(found["preferred"], resource["preferred"], strict=True):
        yield from preference(answer, question)


def preference(answer, question):
    """Which of several equal devices the plugin prefers is not the same from run to run; how many of each is."""
    name = f"preferred, {question}"
    if "error" in question:
        yield from difference(answer.get("error"), question["error"], name)
        return
    ids = answer.get("ids", [])
    if len(set(ids)) != question["count"] or not set(question.get("must", [])) <= set(ids):
        yield f"{name}: {answer}"
    elif "spread" in question:
        devices = [one.split("::")[0] for one in ids]
        spread = sorted((devices.count(device) for device in set(devices)), reverse=True)
        yield from difference(spread, question["spread"], name)


def in_order(envs=None, cdi=(), mounts=(), nodes=(), **_):
    """An answer without what the double does not tell, and without order: the plugin gives devices at random."""
    envs = {key: sorted(value.split(",")) for key, value in (envs or {}).items()}
    return {"envs": envs, "cdi": sorted(cdi), "mounts": sorted(mounts), "nodes": sorted(nodes)}


def comparable(answer, by_index):
    if answer.get("error"):
        return {"error": answer["error"]}

    def envs(response):
        # Told by index a device is its number, and numbers are in the order of the record's list.
        named = lambda value: ",".join(f"~{one}" if one.isdigit() else one for one in value.split(","))
        return {key: named(value) if by_index else value for key, value in response["envs"].items()}

    def node(path):
        number = path.removeprefix("/dev/nvidia")
        return f"gpu {number}" if number.isdigit() else path

    return [
        in_order(
            envs(response),
            response["cdi"],
            [path for path, _ in response["mounts"]],
            [node(path) for path, _ in response["devices"]],
        )
        for response in answer["response"]
    ]
