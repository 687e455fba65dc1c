rule train_run:
    input:
        settings=PARAMS,
    output:
        checkpoint="results/{scale}/checkpoints/{experiment}/{run}.safetensors",
        history="results/{scale}/history/{experiment}/{run}.csv",
    log:
        "results/{scale}/logs/train/{experiment}/{run}.log",
    benchmark:
        "results/{scale}/benchmarks/train/{experiment}/{run}.tsv"
    # Long runs start first, so that they do not end alone.
    priority: lambda wildcards: 1 + int(training_minutes(run_of(wildcards)))
    # Where a profile says how many short runs share a job, they do.
    group:
        lambda wildcards: (
            "short_training"
            if "short_training" in workflow.group_settings.group_components
            and training_minutes(run_of(wildcards)) < 5
            else None
        )
    conda:
        "../../envs/training.yaml"
    # Two cores train two runs; with more threads each run would hardly be faster.
    threads: 1
    resources:
        mem_mb=lambda wildcards: int(training_megabytes(run_of(wildcards))),
        runtime=lambda wildcards: 10 + int(3 * training_minutes(run_of(wildcards))),
        gpu=int(SETTINGS.device == "cuda"),
    params:
        identity=lambda wildcards: training_identity(run_of(wildcards)),
        device=SETTINGS.device,
    message:
        "Training {wildcards.experiment}/{wildcards.run} at scale {wildcards.scale}"
    shell:
        "python -m inverse_depth --params {input.settings:q} --scale {wildcards.scale}"
        " --device {params.device} train {wildcards.experiment:q}/{wildcards.run:q}"
        " --identity {params.identity} 2>&1 | tee -i {log:q}"
