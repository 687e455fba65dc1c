"""What profiles/kubernetes asks of kubectl, without a cluster: `stand_in_kubectl.py FOLDER ...`.

A Job's container is a process on this machine; the folder keeps each Job's manifest, what it
printed and its exit code.
"""

import json
import subprocess
import sys
from pathlib import Path

RUN = '"$@" > "$0.log" 2>&1; echo $? > "$0.part"; mv "$0.part" "$0.code"'


def main(folder: Path, *arguments: str) -> None:
    match arguments:
        case ["create", "--filename", "-", "--output", "name"]:
            manifest = json.load(sys.stdin)
            job = f"{manifest['metadata']['generateName']}{len(list(folder.glob('*.json')))}"
            (folder / f"{job}.json").write_text(json.dumps(manifest))
            [container] = manifest["spec"]["template"]["spec"]["containers"]
            subprocess.Popen(
                ["sh", "-c", RUN, str(folder / job), *container["command"]],
                cwd=container["workingDir"],
                stdout=subprocess.DEVNULL,
            )
            print(f"job.batch/{job}")
        case ["get", job, "--output", "json", "--ignore-not-found"]:
            code = folder / f"{Path(job).name}.code"
            conditions = []
            if code.exists():
                outcome = "Complete" if code.read_text().strip() == "0" else "Failed"
                conditions = [{"type": outcome, "status": "True"}]
            print(json.dumps({"status": {"conditions": conditions}}))
        case _:
            sys.exit(f"the stand-in for kubectl knows no {' '.join(arguments)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
