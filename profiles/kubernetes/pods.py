#!/usr/bin/env python3
"""Submit, watch and cancel the workflow's jobs on Kubernetes, for config.yaml beside this file.

Each of Snakemake's jobs becomes a Kubernetes Job of one pod. The pod runs the project's image and
mounts the volume that holds the project at the path where the submitting machine has it, so it
sees the same files, snapshots of interrupted trainings among them.
"""

import argparse
import json
import subprocess
from pathlib import Path


def manifest(options: argparse.Namespace, project: Path) -> dict:
    """The Kubernetes Job that runs one of Snakemake's job scripts."""
    amounts = {"cpu": str(options.cpus), "memory": f"{options.memory}M"}
    if options.gpus:
        amounts["nvidia.com/gpu"] = str(options.gpus)
    container = {
        "name": "job",
        "image": options.image,
        "command": ["/bin/sh", options.script],
        "workingDir": str(project),
        "resources": {"requests": amounts, "limits": amounts},
        "volumeMounts": [{"name": "project", "mountPath": options.mount}],
    }
    pod = {
        "restartPolicy": "Never",
        "securityContext": {"runAsNonRoot": True, "fsGroup": 1000},
        "containers": [container],
        "volumes": [{"name": "project", "persistentVolumeClaim": {"claimName": options.claim}}],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"generateName": "inverse-depth-", "labels": {"app": "inverse-depth"}},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": 60 * options.minutes,
            "ttlSecondsAfterFinished": 24 * 3600,
            "template": {"spec": pod},
        },
    }


def kubectl(*arguments: str, text: str | None = None) -> str:
    """What kubectl prints; its errors go to the terminal and end the command."""
    run = subprocess.run(
        ["kubectl", *arguments], input=text, stdout=subprocess.PIPE, text=True, check=True
    )
    return run.stdout.strip()


def submit(options: argparse.Namespace) -> str:
    """The name of the new Job."""
    text = json.dumps(manifest(options, Path.cwd()))
    return kubectl("create", "--filename", "-", "--output", "name", text=text)


def status(options: argparse.Namespace) -> str:
    """`success`, `failed` or `running`; a Job that is gone has failed."""
    text = kubectl("get", options.job, "--output", "json", "--ignore-not-found")
    if not text:
        return "failed"
    found = {
        condition["type"]
        for condition in json.loads(text)["status"].get("conditions", [])
        if condition["status"] == "True"
    }
    return "success" if "Complete" in found else "failed" if "Failed" in found else "running"


def cancel(options: argparse.Namespace) -> str:
    return kubectl("delete", *options.jobs, "--ignore-not-found")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("submit")
    command.set_defaults(action=submit)
    for name in ("--image", "--claim", "--mount"):
        command.add_argument(name, required=True)
    for name in ("--cpus", "--memory", "--minutes", "--gpus"):
        command.add_argument(name, required=True, type=int)
    command.add_argument("script")
    command = commands.add_parser("status")
    command.set_defaults(action=status)
    command.add_argument("job")
    command = commands.add_parser("cancel")
    command.set_defaults(action=cancel)
    command.add_argument("jobs", nargs="+")
    options = parser.parse_args()
    print(options.action(options))


if __name__ == "__main__":
    main()
