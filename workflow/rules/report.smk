"""The report: `snakemake pages`, then `snakemake --report FILE pages` (both by `make report`)."""


rule page:
    input:
        settings=report(
            PARAMS,
            caption="../report/settings.rst",
            category="8 Provenance",
            labels={"result": "Settings", "title": os.path.basename(PARAMS)},
        ),
        table=lambda wildcards: outputs(
            PRODUCTS[wildcards.name], Paths(wildcards.scale)
        )[0],
    output:
        report(
            "results/{scale}/pages/{name}.html",
            caption="../report/caption.rst",
            category=section,
            labels=labels,
        ),
    log:
        "results/{scale}/logs/page/{name}.log",
    wildcard_constraints:
        name=f"{names_of('table')}|comparison",
    conda:
        "../../envs/analysis.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    message:
        "Writing the page of {wildcards.name} for the report"
    shell:
        "python -m inverse_depth --params {input.settings:q} --scale {wildcards.scale}"
        " page {wildcards.name} 2>&1 | tee -i {log:q}"


rule pages:
    input:
        product_files("data", "table", "figure", "comparison"),
        [
            CURRENT.paths.page(product.name)
            for product in CURRENT.available()
            if product.kind in ("table", "comparison")
        ],
    message:
        f"Everything that the report of scale {SCALE} shows is there"
