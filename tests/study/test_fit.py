"""The fit recovers coefficients that were put in, whatever a few rows say; pools lend, outliers do not."""

import numpy as np
import pytest

from workbench.hardware.coefficients import KEYS
from workbench.study import effects, fit
from workbench.study.effects import Layout

NOISE = 0.03
BACKENDS = ("cuda", "metal", "vulkan")
DECODE_TERMS = len(effects.STAGES["decode"][1]) - 1


def rows_of(devices: list[str], backends: list[str], seed: int = 0):
    """Return a layout, costs (term, row) and the truth: true log seconds follow from known coefficients."""
    rng = np.random.default_rng(seed)
    count = len(devices)
    keys = {name: np.array(["x"] * count, dtype=object) for name in (*KEYS, "source")}
    keys |= {"device": np.array(devices, dtype=object), "backend": np.array(backends, dtype=object)}
    layout = Layout("decode", keys)
    costs = np.zeros((DECODE_TERMS, count))
    costs[0] = rng.uniform(2e-3, 60e-3, count)  # weights
    costs[2] = rng.uniform(0, 10e-3, count)  # KV
    costs[5] = rng.choice([16, 28, 32, 48, 64, 80], count) * 1e-6  # layers
    costs[7] = 1e-3
    return layout, costs, rng


def put(
    layout: Layout, theta: np.ndarray, term: str, effect: str, values: dict[str, float]
) -> None:
    for label, value in values.items():
        theta[layout.slots[term, effect][label]] = value


def coefficient(layout: Layout, theta: np.ndarray, term: str, backend: str) -> float:
    """Return the whole log coefficient of a term for a backend, its interactions included."""
    total = 0.0
    for (name, effect), places in layout.slots.items():
        if name == term and effect not in ("device", "source"):
            label = "|".join(backend if part == "backend" else "x" for part in effect.split("."))
            total += theta[places.get(label, places.get("", 0))]
    return total


@pytest.fixture(scope="module")
def known():
    """240 rows of 24 devices on three backends, 3 % noise, 5 % of the rows off by a factor of three."""
    devices = [f"{BACKENDS[i % 3]}-{i % 24}" for i in range(240)]
    layout, costs, rng = rows_of(devices, [BACKENDS[i % 3] for i in range(240)])
    theta = layout.start.copy()
    put(layout, theta, "weights", "", {"": np.log(1.3)})
    put(layout, theta, "weights", "backend", {"cuda": -0.1, "metal": 0.2, "vulkan": 0.05})
    put(layout, theta, "dispatch", "backend", {"cuda": -0.8, "metal": 0.6, "vulkan": 0.2})
    odd = {f"{BACKENDS[i % 3]}-{i}": 0.05 * (-1) ** (i // 3) for i in range(24)}
    put(layout, theta, "machine", "device", odd)
    truth = fit.log_time(layout, theta, costs)[0]
    observed = truth + rng.normal(0, NOISE, len(truth))
    observed[rng.choice(len(truth), 12, replace=False)] += rng.choice([-1, 1], 12) * np.log(3)
    rows = fit.Rows(costs, observed, np.ones(len(truth)))
    return layout, rows, theta, truth, fit.learn(layout, rows)


def test_recovers_what_was_put_in(known):
    layout, rows, theta, truth, found = known
    logs = fit.log_time(layout, found.theta, rows.costs)[0]
    assert np.median(np.abs(logs - truth)) < 0.02
    assert np.quantile(np.abs(logs - truth), 0.95) < 0.06
    for backend in BACKENDS:
        wanted = coefficient(layout, theta, "weights", backend)
        assert coefficient(layout, found.theta, "weights", backend) == pytest.approx(
            wanted, abs=0.07
        )
    metal, cuda = (coefficient(layout, found.theta, "dispatch", b) for b in ("metal", "cuda"))
    assert metal - cuda == pytest.approx(1.4, abs=0.7)


def test_noise_is_that_of_the_good_rows(known):
    assert known[-1].noise == pytest.approx(NOISE, rel=0.5)


def test_shares_add_up_to_one(known):
    layout, rows, *_, found = known
    share = fit.log_time(layout, found.theta, rows.costs)[1]
    np.testing.assert_allclose(share.sum(axis=0), 1)
    assert (share >= 0).all()


def test_the_gradient_leads_to_the_optimum(known):
    """No small step along any parameter that has data makes the posterior better."""
    layout, rows, *_, found = known
    again = fit.solve(layout, rows, found)
    logs = [fit.log_time(layout, f.theta, rows.costs)[0] for f in (found, again)]
    np.testing.assert_allclose(*logs, atol=2e-3)


def one_pool(offsets: dict[str, tuple[int, float]], seed: int = 1):
    """Return layout and rows of one backend; each device has a number of rows and an offset in log."""
    devices = [name for name, (count, _) in offsets.items() for _ in range(count)]
    layout, costs, rng = rows_of(devices, ["cuda"] * len(devices), seed)
    truth = fit.log_time(layout, layout.start, costs)[0]
    moved = np.array([offsets[device][1] for device in devices])
    observed = truth + moved + rng.normal(0, NOISE, len(devices))
    return layout, fit.Rows(costs, observed, np.ones(len(devices)))


def test_a_device_with_few_rows_borrows_from_its_pool():
    """Two devices are 15 % slow alike; the one with a single row is believed less."""
    offsets = {f"d{i}": (8, 0.0) for i in range(10)} | {"often": (12, 0.15), "once": (1, 0.15)}
    layout, rows = one_pool(offsets)
    found = fit.learn(layout, rows)
    places = layout.slots["machine", "device"]
    often, once = (found.theta[places[name]] for name in ("often", "once"))
    assert 0 < once < often
    assert often == pytest.approx(0.15, abs=0.06)


@pytest.mark.parametrize("factor", [0.1, 10.0])
def test_an_outlier_does_not_move_its_pool(factor):
    layout, rows = one_pool({f"d{i}": (8, 0.0) for i in range(10)})
    wrong = rows.observed.copy()
    wrong[3] += np.log(factor)
    logs = [fit.log_time(layout, fit.learn(layout, r).theta, rows.costs)[0]
            for r in (rows, rows._replace(observed=wrong))]  # fmt: skip
    same = np.arange(len(wrong)) != 3
    assert np.abs(logs[1] - logs[0])[same].max() < 0.03


def spread_of_devices(sigma: float) -> float:
    rng = np.random.default_rng(5)
    layout, rows = one_pool({f"d{i}": (8, sigma * rng.normal()) for i in range(16)})
    found = fit.learn(layout, rows)
    return layout.spreads(found.spread)["machine:device"]


def test_spreads_are_learned_from_how_much_pools_differ():
    alike, apart = spread_of_devices(0.02), spread_of_devices(0.3)
    assert alike < 0.15 < apart  # 0.15 is the first guess
    assert apart == pytest.approx(0.3, rel=0.5)


@pytest.fixture(scope="module")
def devices():
    """Five devices of ten rows, and the fit to them."""
    layout, rows = one_pool({f"d{i}": (10, 0.05 * i) for i in range(5)})
    names = np.array([f"d{i}" for i in range(5) for _ in range(10)], dtype=object)
    return layout, rows, names, fit.learn(layout, rows)


def test_a_held_out_device_is_predicted_without_its_rows(devices):
    layout, rows, names, found = devices
    own = names == "d2"
    before = fit.held_out(layout, rows, found, names, 5)
    wrong = rows._replace(observed=rows.observed + own * np.log(10))
    after = fit.held_out(layout, wrong, found, names, 5)
    np.testing.assert_allclose(after[own], before[own], atol=1e-6)
    assert np.abs(after - before)[~own].max() > 1e-4  # the others did see it


def test_held_out_predicts_every_row_and_is_wrong_by_what_a_device_is_odd(devices):
    layout, rows, names, found = devices
    error = fit.held_out(layout, rows, found, names, 5) - rows.observed
    assert np.isfinite(error).all()
    assert np.median(np.abs(error)) < 0.15
    seen = fit.log_time(layout, found.theta, rows.costs)[0] - rows.observed
    assert np.median(np.abs(seen)) < np.median(np.abs(error))


def test_more_folds_than_groups_is_one_group_each(devices):
    layout, rows, names, found = devices
    called: list[int] = []
    fit.held_out(layout, rows, found, names, 99, lambda done: not called.append(done))
    assert called == [1, 2, 3, 4, 5]


def test_stopping_keeps_what_there_is(devices):
    layout, rows, names, found = devices
    partly = fit.held_out(layout, rows, found, names, 5, lambda done: done < 2)
    left = {str(name) for name in names[np.isfinite(partly)]}
    assert len(left) == 2
    rounds: list[int] = []
    stopped = fit.learn(layout, rows, lambda done: bool(rounds.append(done)))
    assert rounds == [1]
    assert np.isfinite(stopped.theta).all()


def test_many_rows_of_one_device_count_less():
    names = np.array(["often"] * 200 + ["seldom"] * 5)
    weight = fit.crowd_weight(names)
    assert (weight[names == "seldom"] == 1).all()
    total = weight[names == "often"].sum()
    assert total == pytest.approx(np.sqrt(fit.CROWD * 200))
