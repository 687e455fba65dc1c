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
    if [[ -f $work/$service.pid ]]; then
      pid=$(< "$work/$service.pid")
      kill "$pid" || true
      timeout 60 tail --pid="$pid" --follow /dev/null  # it writes its state before it ends
    fi
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

# Scale tiny, with one run long enough to be cancelled after a snapshot.
.venv/bin/python - "$work/settings.yaml" << 'EOF'
import sys
import yaml

settings = yaml.safe_load(open("tests/tiny.yaml"))
experiment = settings["scales"]["tiny"]["experiments"]["nonlinear_easy"]
experiment["training"] = {"steps": 100000, "validations": 200}
yaml.safe_dump(settings, open(sys.argv[1], "w"), sort_keys=False)
EOF
for place in cluster local; do
  mkdir "$work/$place"
  git ls-files -z | tar --null --files-from - --create | tar --extract --directory "$work/$place"
done
export PYTHONPATH=src:$work/plugins

say "Scale tiny through SLURM"
cd "$work/cluster"
"$root/.venv/bin/snakemake" --profile profiles/slurm --cores "$(nproc)" \
  --slurm-status-command squeue --slurm-init-seconds-before-status-checks 10 \
  --config params="$work/settings.yaml" > "$work/snakemake.log" 2>&1 &
workflow=$!

say "Waiting for the first snapshot of nonlinear_easy"
snapshots=snapshots/tiny/nonlinear_easy
history=results/tiny/history/nonlinear_easy
until compgen -G "$snapshots/*.safetensors" > /dev/null; do
  kill -0 "$workflow" 2> /dev/null || { cat "$work/snakemake.log"; fail "the workflow ended"; }
  sleep 1
done
sleep 1
cp "$snapshots"/*.safetensors "$work/snapshot.safetensors"
cp "$history"/*.csv "$work/history.csv"
squeue --format "%i %T %k"
job=$(squeue --noheader --states RUNNING --format "%i %k" | awk '/short_training|nonlinear_easy/ {print $1; exit}')
say "Cancelling SLURM job $job"
scancel "$job"

wait "$workflow" || { cat "$work/snakemake.log"; fail "the workflow failed"; }
grep -E "SLURM-job .* failed|Trying to restart" "$work/snakemake.log" \
  || fail "snakemake did not restart the cancelled job"
tail -n 3 "$work/snakemake.log"

say "Did training go on from the snapshot?"
# What was recorded before the snapshot stands in the final history with its very seconds.
"$root/.venv/bin/python" - "$work" "$history"/*.csv << 'EOF'
import sys
from pathlib import Path

from inverse_depth.stored import header

work, final = Path(sys.argv[1]), Path(sys.argv[2])
metadata = header(work / "snapshot.safetensors")[0]
lines = len(metadata["rows"]) + 1
before, after = (path.read_text().splitlines() for path in (work / "history.csv", final))
if before[:lines] != after[:lines]:
    sys.exit("the history before the snapshot was written anew: training started from the beginning")
print(f"yes: {lines - 1} validations, up to step {metadata['step']}, were kept")
EOF

say "The same on this machine alone"
cd "$work/local"
PYTHONPATH=src "$root/.venv/bin/snakemake" --cores all --config params="$work/settings.yaml" \
  > "$work/local.log" 2>&1 || { cat "$work/local.log"; fail "the local workflow failed"; }
"$root/.venv/bin/python" "$root/scripts/compare_results.py" \
  "$work/local/results/tiny" "$work/cluster/results/tiny"
say "The cluster's results are the local ones"
