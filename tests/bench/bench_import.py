"""Print how much longer `import workbench` takes than the two libraries it stands on."""

import subprocess
import sys
import time

RUNS = 7


def seconds(statement: str) -> float:
    """Return the shortest of RUNS fresh processes: the others were disturbed."""
    return min(_once(statement) for _ in range(RUNS))


def _once(statement: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True)
    return time.perf_counter() - start


if __name__ == "__main__":
    base, ours = seconds("import jax, xarray"), seconds("import workbench")
    print(f"import jax, xarray  {base:.2f} s")
    print(f"import workbench    {ours:.2f} s, {ours / base:.2f} times (limit 1.5)")
