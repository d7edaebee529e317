"""Routing against the papers' numbers, experts against a loop over tokens, balance over time (M48, M49, M54)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.engine import moe_experts
from workbench.engine.matmul import pack
from workbench.engine.moe import Router, capacity, limit, load, route
from workbench.engine.moe_balance import balance
from workbench.engine.moe_experts import Experts, everyone, moe, run
from workbench.engine.moe_trace import distinct, record
from workbench.errors import WorkbenchError

HIDDEN, FF = 64, 128


def logits(tokens=32, experts=8, seed=0, spread=1.0):
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.normal(size=(tokens, experts)) * spread, jnp.float32)


def experts(count=8, seed=0, tensor_type="F32", **options):
    """Return Gaussian experts and their float64 matrices."""
    rng = np.random.default_rng(seed)
    shapes = (count, FF, HIDDEN), (count, FF, HIDDEN), (count, HIDDEN, FF)
    plain = [rng.normal(size=s).astype(np.float32) / np.sqrt(s[2]) for s in shapes]
    packed, values = zip(*(encoded(w, tensor_type) for w in plain), strict=True)
    return Experts(*packed, **options), values


def encoded(w, tensor_type):
    import gguf

    kind = gguf.GGMLQuantizationType[tensor_type]
    raw = gguf.quants.quantize(w, kind)
    return pack(tensor_type, raw.view(np.uint8), w.shape), gguf.quants.dequantize(raw, kind)


def naive(matrices, x, routing):
    """Return the weighted experts in float64, one token and expert at a time."""
    gate, up, down = (np.asarray(m, np.float64) for m in matrices)
    x, y = np.asarray(x, np.float64), np.zeros(x.shape)
    for t, (ids, weights) in enumerate(zip(routing.experts, routing.weights, strict=True)):
        for e, w in zip(np.asarray(ids), np.asarray(weights), strict=True):
            g, u = gate[e] @ x[t], up[e] @ x[t]
            y[t] += w * (down[e] @ (g / (1 + np.exp(-g)) * u))
    return y


def test_normalising_after_is_softmax_over_the_chosen():
    """Mixtral (arXiv 2401.04088) takes the softmax of the top-k logits; both orders give one answer."""
    z = logits()
    top, ids = jax.lax.top_k(z, 2)
    routing = route(z, Router(8, 2))
    np.testing.assert_array_equal(routing.experts, ids)
    np.testing.assert_allclose(routing.weights, jax.nn.softmax(top), rtol=1e-5)


def test_without_normalising_weights_are_the_probabilities():
    routing = route(logits(), Router(8, 8, normalise=False, scale=2.5))
    probabilities = np.sort(jax.nn.softmax(logits()))[:, ::-1]
    np.testing.assert_allclose(routing.weights, 2.5 * probabilities, rtol=1e-5)


def test_bias_chooses_but_does_not_weigh():
    """DeepSeek-V3 (arXiv 2412.19437, eq. 16): the gating value comes from the score without its bias."""
    z = logits()
    bias = jnp.zeros(8, jnp.float32).at[3].set(10.0)
    routing = route(z, Router(8, 2, score="sigmoid", normalise=False), bias)
    assert np.all(routing.experts[:, 0] == 3)
    np.testing.assert_allclose(routing.weights[:, 0], jax.nn.sigmoid(z[:, 3]), rtol=1e-6)


def test_uniform_gate_has_entropy_ln_e():
    routing = route(jnp.zeros((4, 64), jnp.float32), Router(64, 8, choose="entropy"))
    np.testing.assert_allclose(routing.entropy, np.log(64), rtol=1e-6)
    assert np.all(routing.used == 8)


def test_certain_gate_needs_one_expert():
    certain = jnp.zeros((1, 8), jnp.float32).at[0, 5].set(100.0)
    for choose, mass in (("entropy", 1.0), ("mass", 0.9)):
        routing = route(certain, Router(8, 4, choose=choose, mass=mass))
        assert routing.used.tolist() == [1]
        np.testing.assert_allclose(routing.weights, [[1, 0, 0, 0]])


def test_mass_towards_one_takes_all():
    assert np.all(route(logits(), Router(8, 4, choose="mass", mass=1.0)).used == 4)


def test_mass_is_the_fewest_that_reach_it():
    shares = np.array([[0.5, 0.2, 0.15, 0.1, 0.05]])
    z = jnp.asarray(np.log(shares), jnp.float32)
    for mass, used in ((0.45, 1), (0.6, 2), (0.75, 3), (0.9, 4)):
        assert route(z, Router(5, 4, choose="mass", mass=mass)).used.item() == used


@given(
    seed=st.integers(0, 999),
    spread=st.floats(0, 20),
    choose=st.sampled_from(["top-k", "mass", "entropy"]),
    score=st.sampled_from(["softmax", "sigmoid"]),
)
@settings(max_examples=40, deadline=None)
def test_weights_sum_to_one_and_k_stays_in_bounds(seed, spread, choose, score):
    router = Router(8, 4, score=score, choose=choose, mass=0.7, k_min=2)
    routing = route(logits(seed=seed, spread=spread), router)
    np.testing.assert_allclose(routing.weights.sum(-1), 1, rtol=1e-5)
    assert np.all((routing.used >= 2) & (routing.used <= 4))
    assert np.all((routing.weights >= 0) & (routing.weights <= 1))
    assert all(len(set(row)) == 4 for row in np.asarray(routing.experts).tolist())


@given(st.permutations(range(8)), st.permutations(range(6)))
@settings(max_examples=15, deadline=None)
def test_renaming_experts_or_reordering_tokens_renames_the_choice(names, order):
    z = logits(6)
    names, order = np.array(names), np.array(order)
    one, other = route(z, Router(8, 2)), route(z[order][:, names], Router(8, 2))
    np.testing.assert_array_equal(names[np.asarray(other.experts)], one.experts[order])
    np.testing.assert_allclose(other.weights, one.weights[order], rtol=1e-5)


@pytest.mark.parametrize("tokens", [1, 3, 40])
@pytest.mark.parametrize("tensor_type, error", [("F32", 1e-5), ("Q8_0", 0.02)])
def test_experts_equal_the_loop_over_tokens(tokens, tensor_type, error):
    layer, matrices = experts(tensor_type=tensor_type)
    x = logits(tokens, HIDDEN, seed=2)
    routing = route(logits(tokens), Router(8, 3))
    exact = naive(matrices, x, routing)
    ours = np.asarray(run(layer, x, routing))
    assert np.linalg.norm(ours - exact) <= error * np.linalg.norm(exact)


def test_experts_without_weight_are_not_run():
    layer, _ = experts()
    broken = jax.tree.map(lambda leaf: leaf.at[5].set(jnp.nan), layer)
    x, z = logits(12, HIDDEN, seed=2), logits(12).at[:, 5].set(-100.0)
    router = Router(8, 8, choose="mass", mass=0.999)
    assert np.isfinite(run(broken, x, route(z, router))).all()


def test_all_tokens_to_one_expert():
    layer, matrices = experts()
    x, z = logits(40, HIDDEN, seed=2), jnp.zeros((40, 8), jnp.float32).at[:, 6].set(50.0)
    routing = route(z, Router(8, 1))
    np.testing.assert_allclose(run(layer, x, routing), naive(matrices, x, routing), atol=1e-4)


@given(st.permutations(range(12)))
@settings(max_examples=10, deadline=None)
def test_tokens_do_not_see_each_other(order):
    layer, _ = experts()
    x, routing = logits(12, HIDDEN, seed=2), route(logits(12), Router(8, 2))
    order = jnp.asarray(order)
    shuffled = run(layer, x[order], jax.tree.map(lambda a: a[order], routing))
    np.testing.assert_allclose(shuffled, run(layer, x, routing)[order], atol=1e-5)


def test_layer_with_shared_expert():
    layer, matrices = experts()
    shared, always = experts(1, seed=9)
    x, gate = logits(5, HIDDEN, seed=2), logits(8, HIDDEN, seed=3)
    y, routing = moe(x, gate, Router(8, 2), layer, shared=shared)
    exact = naive(matrices, x, routing) + naive(always, x, everyone(5, 1))
    np.testing.assert_allclose(y, exact, atol=1e-4)
    np.testing.assert_array_equal(routing.experts, route(x @ gate.T, Router(8, 2)).experts)


def test_gpt_oss_activation_and_biases():
    """gate·sigmoid(1.702 gate)·(up + 1), gate at most 7, up within ±7 (openai/gpt-oss, model.py)."""
    zeros = {"gate_bias": (8, FF), "up_bias": (8, FF), "down_bias": (8, HIDDEN)}
    biases = {name: jnp.ones(shape, jnp.float32) for name, shape in zeros.items()}
    layer, (gate, up, down) = experts(activation="gpt-oss", **biases)
    x = 20 * logits(1, HIDDEN, seed=2)
    routing = route(logits(1), Router(8, 1))
    e, one = routing.experts.item(), np.asarray(x[0])
    g = np.minimum(gate[e] @ one + 1, 7)
    h = g / (1 + np.exp(-1.702 * g)) * (np.clip(up[e] @ one + 1, -7, 7) + 1)
    np.testing.assert_allclose(run(layer, x, routing)[0], down[e] @ h + 1, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("tokens", [1, 7, 64, 300])
def test_tiles_cover_every_pair_once(tokens):
    routing = route(logits(tokens), Router(8, 3))
    size = moe_experts.tile_size(tokens, 3, 8)
    plan = jax.tree.map(np.asarray, moe_experts._plan(routing, 8, size))
    ids, done = np.asarray(routing.experts).reshape(-1), set()
    for i in range(plan.tiles):
        pairs = plan.order[plan.first[i] : plan.first[i] + size]
        done |= {int(p) for p in pairs if ids[p] == plan.expert[i]}
    assert done == set(range(tokens * 3))
    assert len(set(plan.expert[: plan.tiles])) == len(set(ids))


def test_capacity_and_drops():
    """Switch Transformer's figure 3: tokens / experts · factor places; the overflow is dropped."""
    assert capacity(6, Router(3, 1), 1.0) == 2 and capacity(6, Router(3, 1), 1.5) == 3
    z = jnp.asarray(jax.nn.one_hot(jnp.array([0, 0, 0, 1, 1, 2]), 3), jnp.float32)
    routing, dropped = limit(route(z, Router(3, 1)), Router(3, 1), 1.0)
    assert float(dropped) == pytest.approx(1 / 6)
    assert routing.used.tolist() == [1, 1, 0, 1, 1, 1]
    assert load(routing, 3).tolist() == [2, 2, 1]


def test_ample_capacity_drops_nothing():
    routing = route(logits(), Router(8, 2))
    same, dropped = limit(routing, Router(8, 2), 8.0)
    assert dropped == 0
    np.testing.assert_array_equal(same.weights, routing.weights)


def test_correction_balances_and_decay_collapses():
    ds = balance(Router(16, 2, score="sigmoid"), steps=400, tokens=32, skew=0.5)
    late = ds.isel(step=slice(-50, None)).mean("step")
    cv, idle = late.load_cv, late.idle_experts
    assert cv.sel(policy="correct") < 0.6 * cv.sel(policy="none")
    assert idle.sel(policy="correct") < 1
    assert idle.sel(policy="decay") > idle.sel(policy="none") + 1
    alive = ds.idle_experts.sel(policy="decay")
    assert alive[-50:].mean() >= alive[:50].mean() + 1  # it only gets worse
    np.testing.assert_allclose(ds.load_share.sum("expert_id"), 1)


# M54: E (1 - (1 - K/E)^B)
@pytest.mark.parametrize(
    "count, k, expected",
    [(8, 2, {1: 2, 2: 3.5, 4: 5.47, 8: 7.2}), (128, 8, {1: 8, 4: 29, 16: 82, 64: 126})],
)
def test_distinct_experts_of_m54(count, k, expected):
    routings = [route(logits(4096, count, seed=layer), Router(count, k)) for layer in range(2)]
    trace = record(routings, count, model="random")
    ds = distinct(trace, list(expected))
    np.testing.assert_allclose(
        ds.distinct_experts.mean("layer"), list(expected.values()), rtol=0.01
    )
    assert trace.expert.dims == ("token", "layer", "rank") and trace.attrs["experts"] == count


def test_trace_marks_what_was_not_run():
    routing = route(logits(spread=4.0), Router(8, 4, choose="mass", mass=0.6))
    trace = record([routing], 8)
    np.testing.assert_array_equal((trace.expert >= 0).sum("rank")[:, 0], routing.used)


def test_one_compilation_whatever_the_routing():
    layer, _ = experts()
    x = logits(4, HIDDEN)
    run(layer, x, route(logits(4), Router(8, 2)))
    before = moe_experts._compiled._cache_size()
    for seed in range(1, 5):
        run(layer, x, route(logits(4, seed=seed), Router(8, 2)))
    assert moe_experts._compiled._cache_size() == before


@pytest.mark.parametrize(
    "call, match",
    [
        (lambda: Router(8, 0), "top_k 0"),
        (lambda: Router(8, 9), "top_k 9"),
        (lambda: Router(8, 1.5), "top_k 1.5"),
        (lambda: Router(8, 2, k_min=3), "k_min 3"),
        (lambda: Router(8, 2, score="relu"), "relu"),
        (lambda: Router(8, 2, mass=0.0), "mass 0"),
        (lambda: Router(8, 2, scale=0.0), "scale 0"),
        (lambda: route(logits(experts=7), Router(8, 2)), "logits"),
        (lambda: route(logits(), Router(8, 2), jnp.zeros(7)), "bias"),
        (lambda: capacity(8, Router(8, 2), 0.0), "capacity factor"),
        (lambda: capacity(8, Router(8, 2), float("inf")), "capacity factor inf"),
        (lambda: capacity(0, Router(8, 2), 1.0), "0 tokens"),
        (lambda: limit(route(logits(), Router(8, 2)), Router(8, 3), 1.0), "2 experts a token"),
        (lambda: balance(Router(8, 2), steps=0), "steps 0"),
        (lambda: balance(Router(8, 2), seed=-1), "seed -1"),
        (lambda: balance(Router(8, 2), rate=float("inf")), "rate inf"),
        (lambda: record([route(logits(), Router(8, 2))], 4), "4 experts has none"),
        (lambda: record([], 8), "0 routings"),
        (lambda: distinct(record([route(logits(), Router(8, 2))], 8), [33]), "batch"),
        (lambda: run(experts()[0], logits(3, 9), route(logits(3), Router(8, 2))), "must be"),
        (lambda: moe(logits(3, 64), logits(8, 9), Router(8, 2), experts()[0]), "gate"),
    ],
)
def test_bad_input(call, match):
    with pytest.raises(WorkbenchError, match=match):
        call()
