"""A simulated node, and programs that see it as their machine."""

import json
import os
import pathlib
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent

# NVML's constants of the GPU instance profiles that the records speak of, and how many compute slices each has.
SLICES = {0: 1, 1: 2, 2: 3, 3: 4, 4: 7, 7: 1, 9: 1}
# NVML's constants of compute instance profiles, by slices; also the numbers by which nvidia-smi takes them.
COMPUTE = {0: 1, 1: 2, 2: 3, 3: 4, 4: 7}


class Node:
    """A node that `gpu-sim new` makes, in a folder that goes with it."""

    def __init__(self, gpu_sim, profile, gpus=None, driver=None):
        self.gpu_sim = gpu_sim
        self.temporary = tempfile.TemporaryDirectory(prefix="gpu-vendor-")
        self.folder = pathlib.Path(self.temporary.name) / "node"
        chosen = ["--gpus", str(gpus)] if gpus else []
        chosen += ["--driver", driver] if driver else []
        self.sim("new", "--profile", profile, *chosen, "--dir", str(self.folder))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.temporary.cleanup()

    @property
    def scratch(self):
        """A folder for what programs read and write beside the node."""
        folder = pathlib.Path(self.temporary.name) / "scratch"
        folder.mkdir(exist_ok=True)
        return folder

    def sim(self, *arguments):
        environment = dict(os.environ, GPU_SIM_DIR=str(self.folder))
        return output([self.gpu_sim, *arguments], environment)

    def smi(self, *arguments):
        """The simulated nvidia-smi, which stands beside gpu-sim."""
        program = pathlib.Path(self.gpu_sim).with_name("nvidia-smi")
        environment = dict(os.environ, GPU_SIM_DIR=str(self.folder), LD_LIBRARY_PATH=str(self.folder / "lib"))
        return output([str(program), *arguments], environment)

    def gpu_uuids(self):
        lines = (self.folder / "node.yaml").read_text().splitlines()
        return [line.split()[1] for line in lines if line.startswith("  uuid: ")]

    def profile_names(self):
        """The names of the board's GPU instance profiles by NVML's constant."""
        names = {}
        for line in self.smi("mig", "-lgip", "-i", "0").splitlines():
            words = line.split()
            if len(words) > 4 and words[2] == "MIG":
                name, number = words[3], int(words[4])
                names[{19: 0, 14: 1, 9: 2, 5: 3, 0: 4, 20: 7, 15: 9}[number]] = name
        return names

    def divide(self, layout):
        """Makes instances: `layout` has for each GPU None (mode off) or a list of
        (profile's constant, first slice or None, [constants of compute instance profiles])."""
        modes = [gpu for gpu, instances in enumerate(layout) if instances is not None]
        names = None
        for gpu in modes:
            self.sim("mig", "on", "--gpu", str(gpu))
            names = names or self.profile_names()
            for constant, start, compute in layout[gpu]:
                place = names[constant] + (f"@{start}" if start is not None else "")
                made = self.sim("mig", "create", place, "--gpu", str(gpu))
                if [COMPUTE[profile] for profile in compute] == [SLICES[constant]]:
                    continue
                instance = made.split()[1]  # `gi 1 3g.20gb 4:4`
                self.smi("mig", "-dci", "-i", str(gpu), "-gi", instance, "-ci", "0")
                if compute:
                    profiles = ",".join(str(profile) for profile in compute)
                    self.smi("mig", "-cci", profiles, "-i", str(gpu), "-gi", instance)

    def layout(self):
        """How each GPU is divided: None where the mode is off, else [profile's name, first slice, [compute instances]] by slice."""
        gpus = []
        for gpu in range(len(self.gpu_uuids())):
            try:
                lines = self.sim("mig", "list", "--gpu", str(gpu)).splitlines()
            except ProgramFailed:  # a board without MIG
                lines = ["mode off"]
            if lines[0] != "mode on":
                gpus.append(None)
                continue
            instances = []
            for line in lines[1:]:
                words = line.split()
                if words[0] == "gi":
                    instances.append([words[2], int(words[3].split(":")[0]), []])
                else:
                    instances[-1][2].append(words[2])
            gpus.append(sorted([name, start, sorted(compute)] for name, start, compute in instances))
        return gpus

    def run(self, command, environment=None, given=""):
        """A program's result; it sees the node as its machine, and reads `given`."""
        return subprocess.run(
            ["unshare", "--mount", str(HERE / "enter"), str(self.folder), *command],
            env=dict(os.environ, **(environment or {})),
            input=given,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


class ProgramFailed(Exception):
    """A program of ours that the run depends on."""


def output(command, environment):
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    if result.returncode:
        raise ProgramFailed(f"{' '.join(command)}: exit code {result.returncode}: {result.stderr.strip()}")
    return result.stdout


def difference(found, expected, path=""):
    """Lines that say where two values of JSON differ."""
    if isinstance(found, dict) and isinstance(expected, dict):
        for key in sorted({*found, *expected}):
            where = f"{path}.{key}" if path else key
            if key not in found:
                yield f"{where}: absent, recorded {short(expected[key])}"
            elif key not in expected:
                yield f"{where}: {short(found[key])}, recorded absent"
            else:
                yield from difference(found[key], expected[key], where)
    elif isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        for number, (one, other) in enumerate(zip(found, expected)):
            yield from difference(one, other, f"{path}[{number}]")
    elif found != expected:
        yield f"{path}: {short(found)}, recorded {short(expected)}"


def short(value):
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= 400 else text[:400] + "…"
