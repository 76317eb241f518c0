"""GPU Feature Discovery: the labels that it writes."""

import pathlib

import yaml

from node import HERE, Node, difference

RECORD = HERE.parent.parent / "gpu-labels/tests/upstream/gpu-feature-discovery-0.20.0/cases.yaml"


def cases():
    record = yaml.safe_load(RECORD.read_text())
    by_name = {case["name"]: case for case in record["cases"]}
    for case in record["cases"]:
        driver = record["profiles"][case["profile"]]["driver"]
        yield case["name"], lambda options, case=case, driver=driver: check(options, case, by_name, driver)


def labels(case, by_name):
    base = labels(by_name[case["as"]], by_name) if "as" in case else {}
    merged = {**base, **case.get("labels", {})}
    return {key: value for key, value in merged.items() if value is not None}


def check(options, case, by_name, driver):
    profile = {"real-h200": "h200-vm"}.get(case["profile"], case["profile"])
    with Node(options.gpu_sim, profile, case.get("gpus"), driver) as node:
        instances = [(constant, None, compute) for constant, compute in case.get("mig", [])]
        node.divide([instances] * case.get("mig_gpus", 0))
        written = node.scratch / "labels"
        machine = "/nonexistent"
        if case.get("machine", True):
            machine = node.scratch / "product_name"
            machine.write_text("Simulated-DGX\n")  # the recorder gave this one to all
        command = [options.gpu_feature_discovery, "--use-node-feature-api=false", "--oneshot", "--no-timestamp"]
        command += ["--machine-type-file", str(machine), "--output-file", str(written)]
        if "mig_strategy" in case:
            command += ["--mig-strategy", case["mig_strategy"]]
        if "config" in case:
            config = node.scratch / "config.yaml"
            config.write_text(case["config"])
            command += ["--config-file", str(config)]
        result = node.run(command)
        if case.get("error"):
            if written.exists() or case["error"] not in result.stderr:
                yield f"expected no labels and `{case['error']}`; exit code {result.returncode}: {result.stderr[-600:]}"
            return
        if not written.exists():
            yield f"exit code {result.returncode} and no labels: {result.stderr[-600:]}"
            return
        found = dict(line.split("=", 1) for line in pathlib.Path(written).read_text().splitlines())
        yield from difference(found, labels(case, by_name))
