rule figure:
    input:
        settings=PARAMS,
        sources=product_sources,
    output:
        png=report(
            "results/{scale}/figures/{name}.png",
            caption="../report/caption.rst",
            category=section,
            labels=labels,
        ),
        pdf="results/{scale}/figures/{name}.pdf",
        stamp="results/{scale}/stamps/{name}.json",
    log:
        "results/{scale}/logs/figure/{name}.log",
    benchmark:
        "results/{scale}/benchmarks/figure/{name}.tsv"
    wildcard_constraints:
        name=names_of("figure"),
    conda:
        "../../envs/analysis.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=30,
    message:
        "Drawing {wildcards.name} of scale {wildcards.scale}"
    shell:
        "python -m inverse_depth --params {input.settings:q} --scale {wildcards.scale}"
        " figure {wildcards.name} 2>&1 | tee -i {log:q}"
