#!/usr/bin/env bash
# Start a real one-node SLURM on the loopback interface, run scale tiny through it with
# profiles/slurm, cancel a training job after its first snapshot, and check that the workflow goes
# on from the snapshot and ends with the results of a local run. Needs root on a Debian machine
# that is in no cluster.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"

work=$(mktemp -d)
conf=/etc/slurm/slurm.conf
say() { printf '\n== %s\n' "$*"; }
fail() {
  echo "$*" >&2
  exit 1
}
clean_up() {
  for service in slurmctld slurmd munged; do
    if [[ -f $work/$service.pid ]]; then kill "$(< "$work/$service.pid")" || true; fi
  done
  rm -f "$conf"
  rm -rf "$work"
}

if ! command -v slurmctld > /dev/null || ! command -v munged > /dev/null; then
  say "Installing SLURM and munge"
  apt-get update -qq
  apt-get install -qq -y --no-install-recommends slurm-wlm munge < /dev/null
fi
if [[ -e $conf ]]; then fail "$conf exists: this machine is in a cluster already"; fi
trap clean_up EXIT

say "Installing snakemake's executors beside .venv"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
  --target "$work/plugins" --requirement requirements-cluster.lock

say "Starting SLURM"
node=$(hostname -s)
mkdir "$work/state" "$work/spool"
(umask 077 && head --bytes 1024 /dev/urandom > "$work/munge.key")
munged --force --key-file "$work/munge.key" --socket "$work/munge.socket" \
  --pid-file "$work/munged.pid" --log-file "$work/munged.log" --seed-file "$work/munge.seed"
cat > "$conf" << EOF
ClusterName=test
SlurmctldHost=$node(127.0.0.1)
SlurmctldPort=16817
SlurmdPort=16818
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser=root
AuthInfo=socket=$work/munge.socket
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
MinJobAge=3600
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.log
NodeName=$node NodeAddr=127.0.0.1 CPUs=$(nproc) RealMemory=$(free -m | awk '/^Mem:/ {print $2}')
PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP
EOF
slurmctld
slurmd
for _ in $(seq 60); do
  if [[ $(sinfo --noheader --format %T) == idle ]]; then break; fi
  sleep 1
done
sinfo
