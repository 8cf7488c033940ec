"""States of Flax and optax, and containers that JAX knows: saved as they are, loaded into templates."""

import functools

import flax
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx, serialization
from flax.core import freeze
from flax.training.train_state import TrainState

import tensorbytes as tb
from tensorbytes.errors import TemplateError
from tests.support.tiers import deep_but

SIZES = (4, 3)
BATCHES = np.random.default_rng(9).normal(size=(6, 5, 2)).astype(np.float32)
LABELS = {"Dense_0": "fast", "Dense_1": "slow"}
OPTIMIZERS = {
    "adam": lambda: optax.adam(1e-2),
    "chained": lambda: optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(optax.cosine_decay_schedule(1e-2, 10)), optax.ema(0.9)
    ),
    "bfloat16 moments": lambda: optax.adam(1e-2, mu_dtype=jnp.bfloat16),
    "injected": lambda: optax.inject_hyperparams(optax.sgd)(learning_rate=0.1, momentum=0.9),
    "several": lambda: optax.multi_transform({"fast": optax.adam(1e-2), "slow": optax.sgd(0.1)}, LABELS),
}


@functools.cache
def optimizer_of(name):  # the same object each time: what JAX compiled for it is used again
    return OPTIMIZERS[name]()


class Net(linen.Module):
    @linen.compact
    def __call__(self, x):
        for size in SIZES:
            x = linen.Dense(size)(linen.relu(x))
        return x


NET = Net()
APPLY = NET.apply


def create(seed, optimizer):
    params = NET.init(jax.random.key(seed), BATCHES[0])["params"]
    return TrainState.create(apply_fn=APPLY, params=params, tx=optimizer)


@jax.jit
def train(state, batch):
    grads = jax.grad(lambda params: (state.apply_fn({"params": params}, batch) ** 2).mean())(state.params)
    return state.apply_gradients(grads=grads)


def trained(state, batches):
    for batch in batches:
        state = train(state, batch)
    return state


def same(a, b):
    """The same containers, and the same bits in them."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for one, two in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert jnp.asarray(one).dtype == jnp.asarray(two).dtype
        assert jnp.asarray(one).tobytes() == jnp.asarray(two).tobytes()
    return True


@pytest.mark.parametrize(
    ("name", "suffix"),
    deep_but(
        [("chained", one) for one in ("tb", "npz", "safetensors", "pt")],
        [*((name, "tb") for name in OPTIMIZERS), *(("chained", one) for one in ("npz", "safetensors", "pt"))],
    ),
)
def test_training_goes_on_as_if_it_had_never_stopped(name, suffix, tmp_path):
    optimizer = optimizer_of(name)
    before = trained(create(0, optimizer), BATCHES[:3])
    tb.save(before, tmp_path / f"x.{suffix}")
    template = create(1, optimizer)
    back = tb.load(tmp_path / f"x.{suffix}", like=template)
    assert type(back) is TrainState
    assert back.tx is template.tx  # what is not data stays the template's
    assert same(back, before)
    assert same(back.opt_state, serialization.from_bytes(template, serialization.to_bytes(before)).opt_state)
    assert same(trained(back, BATCHES[3:]), trained(before, BATCHES[3:]))


def test_shapes_are_enough_of_a_template(tmp_path):
    optimizer = optimizer_of("chained")
    before = trained(create(0, optimizer), BATCHES[:2])
    tb.save(before, tmp_path / "x.tb")
    shapes = jax.eval_shape(lambda: create(0, optimizer))  # nothing is computed
    back = tb.load(tmp_path / "x.tb", like=shapes)
    assert same(back, before)
    assert all(isinstance(one, jax.Array) for one in jax.tree.leaves(back.params))


def test_without_a_template_fields_are_keys():
    state = create(0, optax.adam(1e-2))
    found = tb.loads(tb.dumps(state))
    assert list(found) == ["step", "params", "opt_state"]  # neither functions nor the optimizer
    assert list(found["opt_state"][0]) == ["count", "mu", "nu"]
    assert found["opt_state"][1] == {}
    flat = {"/".join(keys) for keys in flax.traverse_util.flatten_dict(serialization.to_state_dict(state.params))}
    assert {name.removeprefix("params/") for name in tb.loads(tb.dumps(state), names="params/*")["params"]} == set(
        LABELS
    )
    assert flat == {f"{layer}/{part}" for layer in LABELS for part in ("kernel", "bias")}


def test_the_parameters_alone(tmp_path):
    state = create(0, optax.adam(1e-2))
    tb.save(state, tmp_path / "x.safetensors")
    template = {"params": jax.tree.map(jnp.zeros_like, state.params)}
    assert same(tb.load(tmp_path / "x.safetensors", names=["params/*"], like=template)["params"], state.params)


def test_another_optimizer_does_not_fit(tmp_path):
    tb.save(create(0, optax.adam(1e-2)), tmp_path / "x.tb")
    with pytest.raises(TemplateError) as caught:
        tb.load(tmp_path / "x.tb", like=create(0, optax.sgd(1e-2, momentum=0.9)))
    assert len(caught.value.missing) == 4
    assert "opt_state/0/trace/Dense_0/kernel (float32[2, 4])" in str(caught.value)
    assert "opt_state/0/count" in caught.value.left_over
    template = create(0, optax.adam(1e-2))
    params = {**template.params, "Dense_0": {**template.params["Dense_0"], "bias": jnp.zeros(7)}}
    with pytest.raises(TemplateError, match=r"params/Dense_0/bias: expected float32\[7\], got float32\[4\]"):
        tb.load(tmp_path / "x.tb", like=template.replace(params=params))


def test_frozen_dicts():
    frozen = freeze({"a": {"b": jnp.ones(2)}, "c": jnp.ones(3)})
    back = tb.loads(tb.dumps(frozen), like=jax.tree.map(jnp.zeros_like, frozen))
    assert type(back) is type(frozen)
    assert same(back, frozen)


class NnxNet(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(2, 3, rngs=rngs, param_dtype=jnp.bfloat16)
        self.norm = nnx.BatchNorm(3, rngs=rngs)
        self.rest = nnx.List([nnx.Linear(3, 3, rngs=rngs)])


@pytest.mark.parametrize("suffix", ["tb", "safetensors"])
def test_states_of_nnx(suffix, tmp_path):
    model, other = NnxNet(nnx.Rngs(0)), NnxNet(nnx.Rngs(1))
    tb.save(nnx.state(model), tmp_path / f"x.{suffix}")
    assert tb.equal(tb.load(tmp_path / f"x.{suffix}"), nnx.to_pure_dict(nnx.state(model)))
    back = tb.load(tmp_path / f"x.{suffix}", like=nnx.state(other))
    assert same(back, nnx.state(model))
    nnx.update(other, back)
    assert same(nnx.state(other), nnx.state(model))
    shapes = jax.eval_shape(lambda: nnx.state(NnxNet(nnx.Rngs(1))))
    assert same(tb.load(tmp_path / f"x.{suffix}", like=shapes), nnx.state(model))


@jax.tree_util.register_pytree_with_keys_class
class Keyed:
    def __init__(self, a, b, note):
        self.a, self.b, self.note = a, b, note

    def tree_flatten_with_keys(self):
        key = jax.tree_util.GetAttrKey
        return ((key("a"), self.a), (key("b"), self.b)), self.note

    @classmethod
    def tree_unflatten(cls, note, items):
        return cls(*items, note)


@jax.tree_util.register_pytree_node_class
class Numbered(Keyed):
    def tree_flatten(self):
        return (self.a, self.b), self.note

    tree_flatten_with_keys = None


@pytest.mark.parametrize("kind", [Keyed, Numbered])
def test_containers_that_jax_knows(kind):
    data = tb.dumps({"x": kind(jnp.ones(2), [jnp.zeros(1)], "saved")})
    names = ["a", "b"] if kind is Keyed else [0, 1]
    assert list(tb.loads(data)["x"]) == names
    back = tb.loads(data, like={"x": kind(jnp.zeros(2), [jnp.ones(1)], "template")})["x"]
    assert type(back) is kind
    assert back.note == "template"
    assert back.a.tolist() == [1, 1]
    assert back.b[0].tolist() == [0]


def test_arrays_go_where_the_template_has_them():
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    sharding = NamedSharding(Mesh(np.array(jax.devices()[:1]), ("x",)), PartitionSpec("x"))
    data = tb.dumps({"w": np.ones((2, 2), np.float32)})
    for template in (
        jax.device_put(jnp.zeros((2, 2)), sharding),
        jax.ShapeDtypeStruct((2, 2), jnp.float32, sharding=sharding),
    ):
        assert tb.loads(data, like={"w": template})["w"].sharding == sharding


def test_weak_types_are_kept():
    state = {"lr": jnp.asarray(0.1), "n": jnp.asarray(3), "w": jnp.ones((), jnp.float32)}
    assert [one.weak_type for one in state.values()] == [True, True, False]
    back = tb.loads(tb.dumps(state), like=state)
    assert [one.weak_type for one in back.values()] == [True, True, False]
    assert same(back, state)


def test_parameters_of_another_precision():
    state = create(0, optax.adam(1e-2))
    half = jax.tree.map(lambda one: one.astype(jnp.bfloat16), state.params)
    back = tb.loads(tb.dumps(state.params), like=half, dtype="like")
    assert same(back, half)  # rounded as JAX rounds
