rule table:
    input:
        settings=PARAMS,
        sources=product_sources,
    output:
        csv="results/{scale}/tables/{name}.csv",
        markdown="results/{scale}/tables/{name}.md",
        stamp="results/{scale}/stamps/{name}.json",
    log:
        "results/{scale}/logs/table/{name}.log",
    benchmark:
        "results/{scale}/benchmarks/table/{name}.tsv"
    wildcard_constraints:
        name=names_of("table"),
    conda:
        "../../envs/analysis.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=30,
    message:
        "Building {wildcards.name} of scale {wildcards.scale}"
    shell:
        "python -m inverse_depth --params {input.settings:q} --scale {wildcards.scale}"
        " table {wildcards.name} 2>&1 | tee -i {log:q}"
