rule collect:
    input:
        settings=PARAMS,
        sources=product_sources,
    output:
        "results/{scale}/{name}.csv",
        stamp="results/{scale}/stamps/{name}.json",
    log:
        "results/{scale}/logs/data/{name}.log",
    benchmark:
        "results/{scale}/benchmarks/data/{name}.tsv"
    wildcard_constraints:
        name=names_of("data"),
    conda:
        "../../envs/analysis.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=30,
    message:
        "Collecting {wildcards.name} of scale {wildcards.scale}"
    shell:
        "python -m inverse_depth --params {input.settings:q} --scale {wildcards.scale}"
        " collect {wildcards.name} 2>&1 | tee -i {log:q}"
