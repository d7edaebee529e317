"""Print how many reads a second the DRAM simulator sends, and how long a heat map of them takes."""

import statistics
import time

from workbench.hardware import dram

GRANULES = [32, 64, 128, 256, 512, 1024, 2048, 4096]
DEPTHS = [1, 2, 4, 8, 16, 32, 64]
RUNS = 5


def seconds(requests: int, granules: list[int], depths: list[int]) -> float:
    """Return the median time of a simulation of every combination, compiled before."""
    took = []
    for run in range(RUNS + 1):
        start = time.perf_counter()
        dram.simulate(granule=granules, queue_depth=depths, requests=requests, seed=run)
        took.append(time.perf_counter() - start)
    return statistics.median(took[1:])


def main() -> None:
    for granules, requests in ((GRANULES, 1024), (GRANULES, 8192), (GRANULES * 8, 8192)):
        cells = len(granules) * len(DEPTHS)
        took = seconds(requests, granules, DEPTHS)
        rate = cells * requests / took
        print(
            f"{cells} channels x {requests} reads: {took:.3f} s, {rate / 1e6:.2f} million reads/s"
        )
    law = time.perf_counter()
    dram.efficiency(granule=GRANULES, queue_depth=DEPTHS)
    print(
        f"the closed form of a heat map: {(time.perf_counter() - law) * 1e3:.0f} ms, compiling included"
    )


if __name__ == "__main__":
    main()
