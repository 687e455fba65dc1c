rule theory:
    input:
        settings=PARAMS,
    output:
        "results/{scale}/theory/{name}.csv",
        stamp="results/{scale}/stamps/{name}.json",
    log:
        "results/{scale}/logs/theory/{name}.log",
    benchmark:
        "results/{scale}/benchmarks/theory/{name}.tsv"
    wildcard_constraints:
        name=names_of("theory"),
    conda:
        "../../envs/analysis.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=120,
    message:
        "Computing {wildcards.name} of the theory at scale {wildcards.scale}"
    shell:
        "python -m inverse_depth --params {input.settings:q} --scale {wildcards.scale}"
        " theory {wildcards.name} 2>&1 | tee -i {log:q}"
