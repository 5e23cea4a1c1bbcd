"""Hosts that are network namespaces of this machine, joined by a switch; for root, with iproute2."""
import os
import shutil
import subprocess
import tempfile


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def why_not():
    """Why this machine cannot have them; empty where it can."""
    for program in ("ip", "unshare", "hostname"):
        if not shutil.which(program):
            return program + " is not installed"
    probe = "steelyard-probe-%d" % os.getpid()
    try:
        ip("netns", "add", probe)
        # In a chroot that is no mount point, a namespace can be made, and not entered.
        ip("-n", probe, "link", "add", "bridge", "type", "bridge")
    except subprocess.CalledProcessError as error:
        return "no network namespaces: " + error.stderr.strip()
    finally:
        subprocess.run(["ip", "netns", "del", probe], capture_output=True)
    return ""


class Hosts:
    """`count` hosts, host1, host2 ..., 10.97.0.1, 10.97.0.2 ..., whose links send `rate` ("1gbit") where it is given."""

    def __init__(self, count, rate=None):
        self.prefix = "sy%d-" % os.getpid()
        self.names = [self.prefix + str(i + 1) for i in range(count)]
        self.folder = tempfile.mkdtemp()
        try:
            self._join(rate)
        except subprocess.CalledProcessError:
            self.close()
            raise

    def _join(self, rate):
        switch = self.prefix + "switch"
        ip("netns", "add", switch)
        ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", switch, "link", "set", "bridge", "up")
        for i, name in enumerate(self.names):
            port = "port%d" % (i + 1)
            ip("netns", "add", name)
            ip("-n", switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("-n", switch, "link", "set", port, "master", "bridge", "up")
            ip("-n", name, "addr", "add", self.address(i) + "/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
            if rate:
                subprocess.run(["ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf",
                                "rate", rate, "burst", "64kb", "latency", "1s"], check=True)

    def address(self, host):
        return "10.97.0.%d" % (host + 1)

    def set_link(self, host, state):
        """state: "up" or "down"."""
        ip("-n", self.prefix + "switch", "link", "set", "port%d" % (host + 1), state)

    def mpirun(self, ranks_per_host, *program, on=None):
        """The command of `mpirun`, Open MPI 4's, with so many ranks on each host, of which the first one runs it; `on`: only
        on these hosts, from 0."""
        on = list(range(len(self.names))) if on is None else on
        agent = os.path.join(self.folder, "agent")  # in place of ssh: HOST COMMAND...
        with open(agent, "w") as file:
            file.write('#!/bin/sh\nhost=${1##*.}\nshift\n'
                       'exec ip netns exec %s$host unshare -u sh -c "hostname host$host; $*"\n' % self.prefix)
        os.chmod(agent, 0o755)
        hosts = ",".join("%s:%d" % (self.address(i), ranks_per_host) for i in on)
        network = ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "10.97.0.0/24",
                   "--mca", "oob_tcp_if_include", "10.97.0.0/24", "--mca", "plm_rsh_agent", agent]
        return ["ip", "netns", "exec", self.names[on[0]], "unshare", "-u", "sh", "-c", 'hostname host%d; exec "$@"' % (on[0] + 1), "sh",
                "mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", *network, "-H", hosts,
                "-n", str(ranks_per_host * len(on)), *program]

    def close(self):
        for name in [*self.names, self.prefix + "switch"]:
            for process in subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split():
                subprocess.run(["kill", "-9", process], capture_output=True)
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)
