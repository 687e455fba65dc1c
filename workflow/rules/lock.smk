"""One Snakemake at a time in a folder, by a lock that no kill leaves behind."""

import fcntl


def take_lock():
    """Hold the lock until this process ends, however it ends; stop if another one has it."""
    global running
    running = open(Path(".snakemake", "running"), "a+")
    try:
        fcntl.flock(running, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        running.seek(0)
        sys.exit(
            f"error: another snakemake (process {running.read().strip()}) is at work in this "
            "folder; wait until it is done, or stop it and start again: what is half trained goes "
            "on from its last snapshot"
        )
    running.truncate(0)
    running.write(f"{os.getpid()}\n")
    running.flush()


onstart:
    if workflow.is_main_process:
        take_lock()
