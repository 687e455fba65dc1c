# Inverse-depth scaling from nonlinear attention, reproduced.
#
# The journey of the data: params.yaml → runs → checkpoints → evaluations → tables and figures.
# What is stale is decided by content (docs/freshness.md); `snakemake -n` says what would run.


from snakemake.utils import min_version

min_version("9.0")


include: "workflow/rules/common.smk"
include: "workflow/rules/lock.smk"


report: "workflow/report/workflow.rst"


rule all:
    input:
        product_files("data", "table", "figure", "comparison"),
    message:
        f"Everything of scale {SCALE} is there"


include: "workflow/rules/report.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/theory.smk"
include: "workflow/rules/collect.smk"
include: "workflow/rules/tables.smk"
include: "workflow/rules/figures.smk"
include: "workflow/rules/compare.smk"
include: "workflow/rules/targets.smk"
