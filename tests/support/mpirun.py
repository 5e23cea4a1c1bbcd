"""Starting ranks with mpirun, and finding their processes."""
import glob
import os
import re
import shutil
import subprocess
import time

MPIRUN = shutil.which("mpirun")
_LAUNCHERS = re.compile("OMPI_|PMIX?_|SLURM_|RANK$|WORLD_SIZE$")


def environment(**more):
    """Without the variables of a launcher that started the tests, and without hwloc's search for displays: it asks the
    network for "localhost" where /etc/hosts has no such line, up to 5 s each time that MPI starts."""
    own = {k: v for k, v in os.environ.items() if not _LAUNCHERS.match(k)}
    return {**own, "HWLOC_COMPONENTS": "-gl", **more}


def command(ranks, *program):
    """`mpirun` of a program with so many processes on this machine."""
    as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return [MPIRUN, *as_root, "--oversubscribe", "--bind-to", "none", "-n", str(ranks), *program]


def why_not_open_mpi_4():
    """Options of other versions have other names; empty where it is that."""
    version = subprocess.run([MPIRUN, "--version"], capture_output=True, text=True).stdout
    return "" if "(Open MPI) 4." in version else "other options than those of Open MPI 4"


def _bytes_of(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:  # the process is gone
        return b""


def is_running(process):
    """Also a stopped one, but not one that only waits to be reaped."""
    stat = _bytes_of(f"/proc/{process}/stat")
    return bool(stat) and stat.rsplit(b") ", 1)[1][:1] not in b"ZX"


LOOPBACK = ("0100007F", "00000000000000000000000001000000")  # as /proc/net/tcp and tcp6 write them


def listening_addresses(process):
    """The addresses, as in /proc/net/tcp, at which a process listens."""
    sockets = set()
    for link in glob.glob(f"/proc/{process}/fd/*"):
        try:
            sockets.update(re.findall(r"^socket:\[(\d+)\]$", os.readlink(link)))
        except OSError:  # closed meanwhile
            pass
    found = []
    for table in ("tcp", "tcp6"):
        for line in _bytes_of(f"/proc/{process}/net/{table}").decode().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in sockets:
                found.append(fields[1].split(":")[0])
    return found


def rank_processes(argument):
    """{rank: process id} of the ranks that were started with this argument."""
    found = {}
    for folder in glob.glob("/proc/[0-9]*"):
        if argument.encode() not in _bytes_of(folder + "/cmdline").split(b"\0"):
            continue
        rank = re.search(rb"(?:^|\0)OMPI_COMM_WORLD_RANK=(\d+)\0", _bytes_of(folder + "/environ"))
        if rank:
            found[int(rank[1])] = int(os.path.basename(folder))
    return found


def seconds_until_gone(processes, limit):
    """How long they took to end; None where one is left after `limit` seconds."""
    begin = time.monotonic()
    while time.monotonic() - begin < limit:
        if not any(map(is_running, processes)):
            return time.monotonic() - begin
        time.sleep(0.002)
    return None
