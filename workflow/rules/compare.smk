rule compare:
    input:
        settings=PARAMS,
        sources=lambda wildcards: SCALES[wildcards.scale].product_inputs(
            PRODUCTS["comparison"]
        ),
    output:
        csv="results/{scale}/comparison.csv",
        markdown="results/{scale}/comparison.md",
        metrics="results/{scale}/comparison.json",
        stamp="results/{scale}/stamps/comparison.json",
    log:
        "results/{scale}/logs/comparison/comparison.log",
    benchmark:
        "results/{scale}/benchmarks/comparison/comparison.tsv"
    conda:
        "../../envs/analysis.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=30,
    message:
        "Comparing scale {wildcards.scale} with the published numbers"
    shell:
        "python -m inverse_depth --params {input.settings:q} --scale {wildcards.scale}"
        " compare 2>&1 | tee -i {log:q}"
