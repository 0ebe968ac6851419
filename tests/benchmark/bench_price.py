"""Whether prices predict: of each product its best few plans, priced and replayed.

    python tests/benchmark/bench_price.py [--products 12] [--few 4] [--seed 0]

The products are those of bench_time.py. Printed are how many plans replay within 15 % of their price; in what order
price and replay put the plans of a product (Spearman's correlation, of products with three plans or more); and what the
choice costs: the replayed time of the plan that is priced least, over the least replayed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator, Sequence

from bench_time import PRODUCTS, Case, cases

import shardc
from shardc.compiled.compilers import slice_mesh
from shardc.compiled.tune.made import made
from shardc.compiled.tune.plans import plans
from shardc.machines.stderr import caught_stderr
from shardc.machines.tpu import lower_schedule

Pair = tuple[float, float]  # priced and replayed seconds


def pairs(case: Case, few: int) -> Iterator[Pair]:
    """Of each plan of a product."""
    plan = shardc.plan(case.text, mesh=case.mesh, dims=case.dims, dtype="bf16", topology=case.topology)
    asked = plan._asked
    for candidate in plans(plan._found, asked, few):
        schedule = candidate.found.schedule
        model = asked.model if schedule.by is None else asked.model.refined(schedule.by)
        try:
            mesh = slice_mesh(schedule.mesh, model)
            side = made(lower_schedule(schedule, mesh), mesh).side(candidate.label, model)
        except shardc.ShardcError as error:  # what the compiler has no memory for
            print(f"{candidate.label}: {error.code}", file=sys.stderr)
            continue
        yield candidate.found.cost.time_s, side.timeline.step_s


def correlation(found: Sequence[Pair]) -> float:
    """Of the two orders: 1 where they are the same, -1 where each is the other backwards."""
    priced, replayed = ([sorted(each).index(one) for one in each] for each in zip(*found, strict=True))
    apart = sum((a - b) ** 2 for a, b in zip(priced, replayed, strict=True))
    return 1 - 6 * apart / (len(found) * (len(found) ** 2 - 1))


def regret(found: Sequence[Pair]) -> float:
    """The replayed time of the plan that is priced least, over the least."""
    return min(found)[1] / min(replayed for _, replayed in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--products", type=int, default=12)
    parser.add_argument("--few", type=int, default=4)
    options = parser.parse_args()
    every = list[list[Pair]]()
    for case in cases(options.seed, options.products, 0):
        assert case.section == PRODUCTS
        with caught_stderr():
            every.append(list(pairs(case, options.few)))
        print(f"{len(every)}: {[f'{a * 1e6:,.0f} {b * 1e6:,.0f}' for a, b in every[-1]]}", file=sys.stderr)
    flat = [pair for found in every for pair in found]
    within = sum(abs(replayed / priced - 1) <= 0.15 for priced, replayed in flat)
    print(f"seed {options.seed}: {len(flat)} plans of {len(every)} products")
    print(f"replayed within 15 % of the price: {within} of {len(flat)}")
    ranks = [correlation(found) for found in every if len(found) > 2]
    print(
        f"correlation of the orders, of {len(ranks)} products: {statistics.fmean(ranks):.2f}" if ranks else "no order"
    )
    regrets = [regret(found) for found in every if found]
    print(f"regret: {statistics.fmean(regrets):.3f} on the mean, {max(regrets):.3f} at worst")


if __name__ == "__main__":
    main()
