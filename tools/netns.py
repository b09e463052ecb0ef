# SPDX-License-Identifier: Apache-2.0
"""A Cluster whose servers live in network namespaces of their own, so that links between them can be cut and spoilt.

This process moves into a fresh network namespace and makes the bridge there: no address, link or rule appears in the
machine's own. Clients reach every server from the bridge, whatever is cut between servers. Needs root; why_not() says what
is missing."""
import atexit
import ctypes
import os
import pathlib
import subprocess

from cluster import Cluster, Server

CLONE_NEWNET = 0x40000000
NET = "10.77.0"
CLIENT, SECOND = f"{NET}.254", f"{NET}.253"
CHAIN = "FAULTS"
_state = {"inside": False}


def run(*command, check=True):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout


def why_not():
    """None, or why there can be no namespaces here."""
    if os.geteuid() != 0:
        return "needs root for network namespaces"
    name = f"cad{os.getpid()}-probe"
    try:
        run("ip", "netns", "add", name)
        run("ip", "netns", "exec", name, "iptables", "-w", "-L", "-n")
    except (OSError, RuntimeError) as why:
        return f"no network namespaces here: {why}"
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return None


def second_address():
    """Another address of the bridge, for a client that is cut off apart from the others."""
    _enter()
    run("ip", "addr", "replace", f"{SECOND}/24", "dev", "br0")
    return SECOND


def _remove_stale():
    """Those of runs that were killed: a name holds its process's id."""
    for path in pathlib.Path("/run/netns").glob("cad[0-9]*-*"):
        owner = path.name[3:].split("-")[0]
        if owner.isdigit() and not pathlib.Path(f"/proc/{owner}").exists():
            run("ip", "netns", "del", path.name, check=False)


def _enter():
    """Into a network namespace of our own, that of the bridge and of the clients. Threads made later are in it too."""
    if _state["inside"]:
        return
    _remove_stale()
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    _state["inside"] = True
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "br0", "type", "bridge")
    run("ip", "addr", "add", f"{CLIENT}/24", "dev", "br0")
    run("ip", "link", "set", "br0", "up")


class Space:
    """A process's network namespace, with an address on the bridge, and faults on what arrives there."""

    def open_space(self, number):
        self.number, self.host = number, f"{NET}.{number}"
        self.space = f"cad{os.getpid()}-{number}"
        # It must not outlive the test, not even one that is killed.
        self.prefix = ("ip", "netns", "exec", self.space, "setpriv", "--pdeathsig", "KILL")
        _enter()
        run("ip", "netns", "add", self.space)
        atexit.register(self.remove)
        run("ip", "link", "add", f"v{number}", "type", "veth", "peer", "name", "eth0", "netns", self.space)
        run("ip", "link", "set", f"v{number}", "master", "br0", "up")
        self.inside("ip", "link", "set", "lo", "up")
        self.inside("ip", "addr", "add", f"{self.host}/24", "dev", "eth0")
        self.inside("ip", "link", "set", "eth0", "up")
        self.inside("iptables", "-w", "-N", CHAIN)
        self.inside("iptables", "-w", "-A", "INPUT", "-j", CHAIN)

    def inside(self, *command):
        return run("ip", "netns", "exec", self.space, *command)

    def remove(self):
        if self.space is not None:
            run("ip", "link", "del", f"v{self.number}", check=False)
            run("ip", "netns", "del", self.space, check=False)
            self.space = None

    # --- faults on what arrives here from a peer ---

    def deaf_to(self, peer):
        """Nothing of what `peer` sends arrives here: half of a cut."""
        self.inside("iptables", "-w", "-A", CHAIN, "-s", peer.host, "-j", "DROP")

    def lose_from(self, peer, probability):
        self.inside("iptables", "-w", "-A", CHAIN, "-s", peer.host, "-m", "statistic", "--mode", "random",
                    "--probability", probability, "-j", "DROP")

    def reset_from(self, peer):
        """What `peer` sends is answered by a reset: a cut that ends the connections, so that nothing is left in them."""
        self.inside("iptables", "-w", "-A", CHAIN, "-p", "tcp", "-s", peer.host, "-j", "REJECT", "--reject-with", "tcp-reset")

    def slow_link(self, rate):
        """What it sends, to clients too, passes at `rate` (as tc writes it)."""
        self.inside("tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "16kb", "latency", "300ms")

    def fast_link(self):
        self.inside("tc", "qdisc", "del", "dev", "eth0", "root")

    def dropped(self):
        """Packets that a fault has taken here since heal()."""
        rows = self.inside("iptables", "-w", "-nvxL", CHAIN).splitlines()[2:]
        return sum(int(row.split()[0]) for row in rows)

    def heal(self):
        self.inside("iptables", "-w", "-F", CHAIN)


class NetServer(Space, Server):
    def __init__(self, number, directory, flags):
        super().__init__(number, directory, flags)
        self.open_space(number)
        self.api_port, self.raft_port = 7400, 7401
        self.url = f"http://{self.host}:{self.api_port}"


class NetCluster(Cluster):
    """`with NetCluster(3) as c:`; servers 10.77.0.<id> on a bridge, clients outside their cuts."""

    def make(self, number, flags):
        return NetServer(number, self.base / f"data-{number}", flags)

    def close(self):
        super().close()
        for s in self.servers:
            s.remove()

    def drop_server(self, s):
        """Forgets a member that has ended."""
        self.servers.remove(s)
        s.remove()

    @staticmethod
    def cut(a, b):
        a.deaf_to(b)
        b.deaf_to(a)

    def isolate(self, s, by_reset=False):
        for other in self.servers:
            if other is not s and by_reset:
                s.reset_from(other)
                other.reset_from(s)
            elif other is not s:
                self.cut(s, other)

    def heal(self):
        for s in self.servers:
            s.heal()
