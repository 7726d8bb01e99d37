"""A Ray cluster of several nodes on the loopback address, whose processes can be killed one by one."""

import contextlib
import functools
import ipaddress
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent


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
        "RAY_START_HOOK": "vits.lab.experiments.ray_loopback.start_hook",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
    }


class Cluster:
    """Nodes with some cores each; the first one is the head."""

    def __init__(self, folder, num_nodes=2, cores=1, variables=None):
        self.folder, self.cores = folder, cores
        self.environment = environment()
        self.variables = variables or {}
        """Environment variables of the nodes alone; None removes one."""
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
        command = [Path(sys.executable).parent / "ray", "start", *role, f"--num-cpus={self.cores}"]
        both = {**self.environment, **self.variables}
        with log.open("w") as out:
            node = subprocess.Popen(
                [*command, "--block", "--object-store-memory=100000000"],
                env={name: value for name, value in both.items() if value is not None},
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
        self.check_sockets()

    def check_sockets(self):
        """Nothing that the nodes have started listens on another address than loopback."""
        found = listening([pid for node in self.nodes for pid in [node.pid, *descendants(node.pid)]])
        assert found
        assert not exposed(found), exposed(found)

    def kill(self, which):
        """kill -9 a node with all its processes."""
        node = self.nodes.pop(which)
        for pid in [*descendants(node.pid), node.pid]:
            kill(pid)
        node.wait()

    def workers(self):
        """Process ids of the workers that are computing a cell: Ray names them by their task."""
        found = [pid for node in self.nodes for pid in descendants(node.pid)]
        return [pid for pid in found if name(pid).startswith("ray::compute")]

    def stop(self):
        while self.nodes:
            self.kill(-1)

    def driver(self, *arguments, variables=None, **more):
        """A Python process that computes cells on this cluster. Ctrl-C works even where these tests ignore it."""
        environment = {**self.environment, "RAY_ADDRESS": self.address, **(variables or {})}
        listen = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        return subprocess.Popen([sys.executable, *arguments], env=environment, text=True, preexec_fn=listen, **more)


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


def listening(pids):
    """The addresses and ports that processes listen on, each with the name of its process."""
    owners = {}
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            with contextlib.suppress(OSError):
                owners[os.readlink(link)] = Path(f"/proc/{pid}/comm").read_text().strip()
    found = {}
    for line in [row for kind in ("tcp", "tcp6") for row in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]]:
        fields = line.split()
        owner = owners.get(f"socket:[{fields[9]}]")
        if fields[3] == "0A" and owner is not None:  # it listens
            digits, port = fields[1].split(":")
            words = [bytes.fromhex(digits[i : i + 8])[::-1] for i in range(0, len(digits), 8)]
            address = ipaddress.ip_address(b"".join(words))
            found[str(getattr(address, "ipv4_mapped", None) or address), int(port, 16)] = owner
    return found


def exposed(found):
    """Those that other machines could connect to."""
    return {where: owner for where, owner in found.items() if not ipaddress.ip_address(where[0]).is_loopback}


def watch(process, timeout):
    """Wait for a process; what it and its descendants listened on meanwhile, looked at four times a second."""
    found, deadline = {}, time.monotonic() + timeout
    while process.poll() is None:
        assert time.monotonic() < deadline
        found |= listening([process.pid, *descendants(process.pid)])
        time.sleep(0.25)
    return found
