"""nvidia-ctk cdi generate: the spec that it writes."""

import json
import re

import yaml

from node import HERE, Node, difference

RECORDS = HERE.parent.parent / "gpu-cdi/tests/upstream/nvidia-ctk-1.20.0"
MIG_RECORD = HERE / "ctk-mig.yaml"

# (case, GPUs if not all, arguments beyond those of all cases)
SPECS = [
    ("a100-default", None, []),
    ("h100-default", None, []),
    ("t4-default", None, []),
    ("a100-1gpu-default", 1, []),
    ("a100-1gpu-devroot-slash", 1, ["--dev-root=/"]),
    ("a100-1gpu-disable-two-hooks", 1, ["--disable-hook=enable-cuda-compat", "--disable-hook=create-symlinks"]),
    ("a100-1gpu-ff-no-additional-gids-for-device-nodes", 1, ["--feature-flag=no-additional-gids-for-device-nodes"]),
    ("a100-1gpu-mode-management", 1, ["--mode=management"]),
    ("a100-1gpu-mode-nvml", 1, ["--mode=nvml"]),
    ("a100-1gpu-no-hooks", 1, ["--disable-hook=all"]),
    ("a100-2gpu-device-id-uuid", 2, ["--device-id=GPU-12345678-1234-1234-1234-123456780001"]),
    ("a100-2gpu-names-index", 2, ["--device-name-strategy=index"]),
    ("a100-2gpu-names-uuid", 2, ["--device-name-strategy=uuid"]),
    ("a100-2gpu-vendor-class", 2, ["--vendor=example.com", "--class=acc"]),
]

# (case, arguments, what it says on stderr)
REFUSED = [
    ("a100-1gpu-mode-bogus", ["--mode=bogus"], "invalid discovery mode: bogus"),
    ("a100-1gpu-mode-imex", ["--mode=imex", "--device-id=all"], 'failed add device "all": invalid device, empty device edits'),
    ("a100-1gpu-mode-gds", ["--mode=gds"], 'failed add device "all": invalid device, empty device edits'),
    ("a100-1gpu-mode-nvswitch", ["--mode=nvswitch"], 'failed add device "all": invalid device, empty device edits'),
]


def cases():
    for name, gpus, arguments in SPECS:
        yield name, lambda options, case=(name, gpus, arguments): check(options, *case)
    for name, arguments, message in REFUSED:
        yield name, lambda options, case=(name, arguments, message): check_refused(options, *case)
    for case in yaml.safe_load(MIG_RECORD.read_text())["cases"]:
        yield case["name"], lambda options, case=case: check_mig(options, case)


def recorded(name):
    """A recorded spec; a list that is the name of another case is that case's."""
    spec = json.loads((RECORDS / f"{name}.json").read_text())
    for key, value in spec.get("containerEdits", {}).items():
        if isinstance(value, str):
            spec["containerEdits"][key] = recorded(value)["containerEdits"][key]
    return spec


def generate(options, node, arguments):
    command = [options.nvidia_ctk, "cdi", "generate", f"--driver-root={node.folder}/root"]
    return node.run([*command, "--nvidia-cdi-hook-path=/usr/bin/nvidia-cdi-hook", *arguments])


def spec_of(result, node):
    spec = yaml.safe_load(result.stdout.replace(f"{node.folder}/root", "/driver-root"))
    for hook in (spec.get("containerEdits") or {}).get("hooks", []):
        hook["args"] = without_vdpau_link(hook["args"])
    return spec


def without_vdpau_link(arguments):
    """The library has a SONAME, as the driver's has; the recorder's file had none, and so the record has no link for it."""
    kept = []
    for argument in arguments:
        if argument.endswith("/vdpau/libvdpau_nvidia.so.1"):
            kept.pop()  # the `--link` before it
        else:
            kept.append(argument)
    return kept


def comparable(spec):
    """Devices by name and device nodes by path: their order is not the same from run to run."""
    by_path = lambda edits: {**edits, **({"deviceNodes": by(edits["deviceNodes"], "path")} if "deviceNodes" in edits else {})}
    devices = {device["name"]: by_path(device["containerEdits"]) for device in spec["devices"]}
    return {**spec, "devices": devices, "containerEdits": by_path(spec.get("containerEdits", {}))}


def by(values, key):
    return {value[key]: value for value in values}


def check(options, name, gpus, arguments):
    profile = name.split("-")[0]
    uuids = [gpu[0] for gpu in json.loads((RECORDS / "inventories.json").read_text())[profile]["gpus"]]
    with Node(options.gpu_sim, profile, gpus) as node:
        # The simulated GPUs have UUIDs of their own.
        pairs = list(zip(node.gpu_uuids(), uuids))
        for ours, theirs in pairs:
            arguments = [argument.replace(theirs, ours) for argument in arguments]
        result = generate(options, node, arguments)
        if result.returncode:
            yield f"exit code {result.returncode}: {result.stderr[-600:]}"
            return
        for ours, theirs in pairs:
            result.stdout = result.stdout.replace(ours, theirs)
        found = comparable(spec_of(result, node))
        if name == "a100-1gpu-mode-management":
            # A driver's capability nodes are there also while MIG is off (so on an H200); the recorder's were not.
            for number in (1, 2):
                found["devices"]["all"]["deviceNodes"].pop(f"/dev/nvidia-caps/nvidia-cap{number}", None)
        yield from difference(found, comparable(recorded(name)))


def check_refused(options, _name, arguments, message):
    with Node(options.gpu_sim, "a100", 1) as node:
        result = generate(options, node, arguments)
        if result.returncode == 0 or message not in result.stderr.replace('\\"', '"'):
            yield f"exit code {result.returncode}, expected `{message}`: {result.stderr[-600:]}"


def check_mig(options, case):
    with Node(options.gpu_sim, "a100", 1) as node:
        node.divide([case["layout"]])
        result = generate(options, node, case.get("arguments", []))
        if "error" in case:
            if result.returncode == 0 or case["error"] not in result.stderr.replace('\\"', '"'):
                yield f"exit code {result.returncode}, expected `{case['error']}`: {result.stderr[-600:]}"
            return
        if result.returncode:
            yield f"exit code {result.returncode}: {result.stderr[-600:]}"
            return
        spec = spec_of(result, node)
        numbers = {device["name"]: capabilities(device) for device in spec["devices"]}
        named = sorted((name for name in numbers if name.startswith("MIG-")), key=numbers.get)
        for place, name in enumerate(named):
            numbers[f"MIG-{place}"] = numbers.pop(name)
        yield from difference(numbers, case["devices"], "devices")
        shared = comparable(recorded("a100-1gpu-default"))["containerEdits"]
        yield from difference(comparable(spec)["containerEdits"], shared, "containerEdits")


def capabilities(device):
    """The numbers of a device's capability files; the nodes themselves must have the same minor numbers."""
    numbers = []
    for node in device["containerEdits"]["deviceNodes"]:
        match = re.fullmatch(r"/dev/nvidia-caps/nvidia-cap(\d+)", node["path"])
        if match:
            number = int(match[1])
            numbers.append(number if node["minor"] == number else f"{node['path']} has minor number {node['minor']}")
        elif node["path"] != "/dev/nvidia0":
            numbers.append(node["path"])
    return numbers
