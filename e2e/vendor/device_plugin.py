"""The device plugin: what a kubelet sees of it and gets."""

import json
import subprocess

from node import HERE, Node, difference

RECORDS = HERE.parent.parent / "gpu-plugin/tests/upstream/k8s-device-plugin-0.20.0"
FOLDER = "/var/lib/kubelet/device-plugins"


def cases():
    for file in sorted(RECORDS.glob("*.json")):
        record = json.loads(file.read_text())
        if {"devices", "allocate", "register"} <= record.keys():
            yield file.stem, lambda options, case=(file.stem, record): check(options, *case)


def check(options, name, record):
    profile = name.split("-")[0]
    with Node(options.gpu_sim, profile, len(record["devices"])) as node:
        theirs = [device["id"] for device in record["devices"]]
        pairs = list(zip(theirs, node.gpu_uuids()))
        questions = {
            "resource": record["register"]["resourceName"],
            "allocate": [request["ids"] for request in record["allocate"]],
            "preferred": record.get("preferred", []),
        }
        command = [options.kubelet_double, FOLDER, options.nvidia_device_plugin]
        # The plugin gives the kubelet's path as the name of the host it calls. A Go server takes any; the double's needs one that a host
        # could have.
        command += ["--kubelet-socket=kubelet.sock"]
        command += [f"--device-list-strategy={record['list_strategy']}", f"--device-id-strategy={record['id_strategy']}"]
        if "cdi" in record["list_strategy"]:
            root = f"{node.folder}/root"
            command += [f"--nvidia-driver-root={root}", f"--container-driver-root={root}"]
        try:
            result = node.run(command, given=translate(json.dumps(questions), pairs))
        except subprocess.TimeoutExpired:
            yield "no answer within two minutes"
            return
        if result.returncode:
            yield f"exit code {result.returncode}: {result.stderr[-600:]}"
            return
        found = json.loads(translate(result.stdout, [(ours, other) for other, ours in pairs]))
        yield from differences(found, record)


def translate(text, pairs):
    for one, other in pairs:
        text = text.replace(one, other)
    return text


def differences(found, record):
    register = {key: record["register"][key] for key in ("endpoint", "resourceName", "version")}
    yield from difference(found["register"], register, "register")
    expected = {device["id"]: [] if device["numa_node"] is None else [device["numa_node"]] for device in record["devices"]}
    yield from difference({device["id"]: device["numa_nodes"] for device in found["devices"]}, expected, "devices")
    for answer, request in zip(found["allocate"], record["allocate"]):
        yield from difference(comparable(answer), comparable(request), request["name"])
    for answer, question in zip(found["preferred"], record.get("preferred", [])):
        # Which of several equal devices it prefers is not the same from run to run; how many is.
        error = question.get("error")
        if error:
            yield from difference(answer.get("error"), error, question["name"])
        elif len(set(answer.get("ids", []))) != question["count"] or not set(question["must"]) <= set(answer["ids"]):
            yield f"{question['name']}, size {question['size']}: {answer}"


def comparable(answer):
    """An answer to Allocate without what the record does not keep, and without order: the plugin gives devices at random."""
    if answer.get("error"):
        return {"error": answer["error"]}

    def container(response):
        envs = {key: sorted(value.split(",")) for key, value in response["envs"].items()}
        return {"envs": envs, "cdi": sorted(response["cdi"])}

    return {"response": [container(response) for response in answer["response"]]}
