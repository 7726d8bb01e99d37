"""Ray on the loopback address: nodes and drivers that other machines cannot reach."""

from typing import Any

LOOPBACK = "127.0.0.1"


def keep_loopback() -> None:
    """Stop Ray, in this process, from replacing 127.0.0.1 by the address of the machine.

    A node whose address is 127.0.0.1 listens there only. Any other node listens on all addresses of the machine.
    """
    from ray._private import services

    services.resolve_ip_for_localhost = lambda host: host


def start_hook(parameters: Any, head: bool) -> None:
    """Start nodes on 127.0.0.1: `RAY_START_HOOK=vits.lab.experiments.ray_loopback.start_hook ray start ...`.

    Args:
        parameters: the arguments of `ray start`.
        head: whether the node is the head.
    """
    keep_loopback()
    parameters.node_ip_address = LOOPBACK
