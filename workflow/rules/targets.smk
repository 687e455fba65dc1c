"""Short names: every product, every experiment, and all of a kind, at the current scale."""


rule train:
    input:
        [CURRENT.paths.checkpoint(run) for run in CURRENT.served],
    message:
        f"All runs of scale {SCALE} are trained"


rule evaluate:
    input:
        [CURRENT.paths.evaluation(run) for run in CURRENT.runs],
    message:
        f"All runs of scale {SCALE} are evaluated"


rule tables:
    input:
        product_files("table"),
    message:
        f"All tables of scale {SCALE} are there"


rule figures:
    input:
        product_files("figure"),
    message:
        f"All figures of scale {SCALE} are there"


for experiment in dict.fromkeys(run.experiment for run in CURRENT.runs):

    rule:
        name:
            f"train_{experiment}"
        input:
            [
                CURRENT.paths.checkpoint(run)
                for run in CURRENT.served
                if run.experiment == experiment
            ],
        message:
            f"All runs of {experiment} are trained"

    rule:
        name:
            f"evaluate_{experiment}"
        input:
            [
                CURRENT.paths.evaluation(run)
                for run in CURRENT.runs
                if run.experiment == experiment
            ],
        message:
            f"All runs of {experiment} are evaluated"


for product in PRODUCTS.values():
    # figure6 and figure06 are the same.
    for short in dict.fromkeys(
        [product.name, re.sub(r"^figure0(\d)", r"figure\1", product.name)]
    ):

        rule:
            name:
                short
            input:
                outputs(product, CURRENT.paths),
            message:
                f"{product.name} of scale {SCALE} is there"
