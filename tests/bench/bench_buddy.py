"""Print how many allocations a second the buddy simulator does on a zone of 64 GiB."""

import time

import numpy as np

from workbench.hardware.buddy import Buddy
from workbench.hardware.buddy_churn import Churn, Zone

PAGES = 2**24  # 64 GiB of 4 KiB pages
PLAN = Churn(1.0, 0.5, 1e-3, 10, 0.05, {0: 0.9, 3: 0.1})


def speeds(grouping: bool) -> list[float]:
    """Return allocations per second of each burst while the zone is in use; frees are not counted."""
    zone, found = Zone(Buddy(PAGES, grouping=grouping), PLAN, 0), []
    start = time.perf_counter()
    for burst in zone.run():
        seconds = time.perf_counter() - start
        if burst.phase == "in use":
            found.append(sum(burst.got.values()) / seconds)
        start = time.perf_counter()
    return found


if __name__ == "__main__":
    for grouping in (False, True):
        million = np.array(speeds(grouping)) / 1e6
        print(
            f"64 GiB, pages of 4 KiB, grouping {'on' if grouping else 'off'}: median "
            f"{np.median(million):.2f}, worst {million.min():.2f} million allocations/s, each freed "
            "too (wanted: 1)"
        )
