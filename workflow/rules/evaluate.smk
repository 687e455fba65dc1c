rule evaluate_run:
    input:
        settings=PARAMS,
        checkpoint=lambda wildcards: SCALES[wildcards.scale].paths.checkpoint(
            trained_as(run_of(wildcards))
        ),
    output:
        "results/{scale}/evaluations/{experiment}/{run}.json",
    log:
        "results/{scale}/logs/evaluate/{experiment}/{run}.log",
    benchmark:
        "results/{scale}/benchmarks/evaluate/{experiment}/{run}.tsv"
    conda:
        "../../envs/training.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=30,
        gpu=int(SETTINGS.device == "cuda"),
    params:
        identity=lambda wildcards: evaluation_identity(run_of(wildcards)),
        device=SETTINGS.device,
    message:
        "Evaluating {wildcards.experiment}/{wildcards.run} at scale {wildcards.scale}"
    shell:
        "python -m inverse_depth --params {input.settings:q} --scale {wildcards.scale}"
        " --device {params.device} evaluate {wildcards.experiment:q}/{wildcards.run:q}"
        " --identity {params.identity} 2>&1 | tee -i {log:q}"
