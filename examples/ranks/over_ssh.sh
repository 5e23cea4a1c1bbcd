#!/usr/bin/env bash
# Trains by several machines that reach one another over ssh, with a process for each slot of a hostfile.
# usage: over_ssh.sh HOSTFILE RECIPE [OPTION OF TRAIN]...
#
# HOSTFILE, a line for each machine: "node1 slots=4". The program, the data and the folder of the run have the same
# paths everywhere (a shared file system), and the number of slots in all is 1, 2, 4, 8 ... and at most train.shards.
set -euo pipefail
if (($# < 2)); then
  sed -n '2,6s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
hostfile=$1
recipe=$2
shift 2
program=$(command -v "${STEELYARD:-steelyard}")
# Threads of each process: bits depend on their number, so it is fixed here and not left to the machine.
threads=${STEELYARD_THREADS:-1}
as_root=()
if ((EUID == 0)); then as_root=(--allow-run-as-root); fi

# Ranks are not bound to cores: their threads then share those of the machine. On machines with several networks add
# --mca btl_tcp_if_include 10.0.0.0/24 --mca oob_tcp_if_include 10.0.0.0/24
exec mpirun "${as_root[@]}" --hostfile "$hostfile" --bind-to none \
  "$program" train "$recipe" --threads "$threads" --resume "$@"
