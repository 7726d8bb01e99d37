"""A Ray cluster of several nodes on the loopback address, whose processes can be killed one by one."""

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent

# Ray replaces 127.0.0.1 by the address of the machine unless it is told what that is.
LAUNCHER = """
import sys
from ray._private import services
services.get_node_ip_address = lambda address=None: "127.0.0.1"
from ray.scripts.scripts import main
sys.exit(main())
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def environment():
    """Variables for nodes and drivers: no statistics, a token of our own, loopback, the modules of the tests."""
    path = [str(HERE), str(HERE.parent / "src"), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
    }


class Cluster:
    """Nodes of one core each; the first one is the head."""

    def __init__(self, folder, num_nodes=2):
        self.folder = folder
        self.environment = environment()
        self.address = f"127.0.0.1:{free_port()}"
        self.nodes = []
        for _ in range(num_nodes):
            self.add()

    def add(self):
        """Start a node; wait until it is ready. The first is the head."""
        port = self.address.split(":")[1]
        role = (
            [f"--address={self.address}"] if self.nodes else ["--head", f"--port={port}", "--include-dashboard=false"]
        )
        log = self.folder / f"node-{secrets.token_hex(4)}.log"
        command = [sys.executable, "-c", LAUNCHER, "start", *role, "--node-ip-address=127.0.0.1", "--num-cpus=1"]
        with log.open("w") as out:
            node = subprocess.Popen(
                [*command, "--block", "--object-store-memory=100000000"],
                env=self.environment,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.nodes.append(node)
        deadline = time.monotonic() + 120
        while "This command will now block" not in log.read_text():
            assert node.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)

    def kill(self, which):
        """kill -9 a node with all its processes."""
        node = self.nodes.pop(which)
        for pid in [*descendants(node.pid), node.pid]:
            kill(pid)
        node.wait()

    def workers(self):
        """Process ids of the workers that can compute something."""
        found = [pid for node in self.nodes for pid in descendants(node.pid)]
        return [pid for pid in found if name(pid).startswith(("ray::compute", "ray::IDLE"))]

    def stop(self):
        while self.nodes:
            self.kill(-1)

    def driver(self, *arguments, **more):
        """A process that computes cells on this cluster."""
        variables = {**self.environment, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_ADDRESS": self.address}
        return subprocess.Popen([sys.executable, *arguments], env=variables, text=True, **more)


def kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def name(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def descendants(pid):
    """Process ids of the children of a process, and of their children."""
    children = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, ahead = [], [pid]
    while ahead:
        new = children.get(ahead.pop(), [])
        found += new
        ahead += new
    return found
