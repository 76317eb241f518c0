"""mig-parted: what it prints, and how it leaves the GPUs divided."""

import re

import yaml

from node import COMPUTE, HERE, SLICES, Node, difference

RECORD = HERE / "mig-parted.yaml"


def cases():
    record = yaml.safe_load(RECORD.read_text())
    for case in record["cases"]:
        yield case["name"], lambda options, case=case: check(options, case, record["files"])


def spread(runs):
    return [instances for count, instances in runs for _ in range(count)]


def named(layout, names):
    """A recorded layout in the words of `Node.layout`."""

    def instance(constant, start, compute):
        slices = SLICES[constant]
        whole = names[constant]
        shares = [whole if COMPUTE[c] == slices else f"{COMPUTE[c]}c.{whole}" for c in compute]
        return [whole, start, sorted(shares)]

    return [None if gpu is None else sorted(instance(*one) for one in gpu) for gpu in layout]


def check(options, case, files):
    with Node(options.gpu_sim, case["profile"], case.get("gpus")) as node:
        node.divide(spread(case.get("before", [])))
        for name, file in case.get("files", {}).items():
            text = files[file].replace("/tmp/gold/", f"{node.scratch}/")
            (node.scratch / name).write_text(text)
        command = f'cd "{node.scratch}"; ' + case["command"].replace("nvidia-mig-parted", '"$MIG_PARTED"')
        environment = {"MIG_PARTED": options.nvidia_mig_parted}
        result = node.run(["bash", "-c", command], environment)
        found = result.stdout.replace(f"{node.scratch}/", "")
        yield from difference(found.rstrip("\n").split("\n"), case.get("stdout", "").rstrip("\n").split("\n"), "stdout")
        yield from difference(messages(result.stderr), case.get("messages", []), "stderr")
        if "after" in case:
            after = spread(case["after"])
            layout = node.layout()
            after += [None] * (len(layout) - len(after))
            yield from difference(layout, named(after, node.profile_names()), "layout")


def messages(stderr):
    """Lines at level info and above as `level: message`, without those on what the kernel offers of iommufd: the record has none."""
    found = []
    for line in stderr.splitlines():
        match = re.match(r'time="[^"]*" level=(\w+) msg="(.*)"$', line)
        if not match:
            if "unable to detect IOMMU FD" not in line:
                found.append(line)
        elif match[1] != "debug":
            found.append(f"{match[1]}: {match[2]}")
    return found
