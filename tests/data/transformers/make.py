#!/usr/bin/env python3
"""Five tiny transformers with random weights, and what the published implementations compute with them.

    python3 make.py              writes the five files beside this one
    python3 make.py --compare    makes them again and compares: the same weights, outputs to 1e-12 of the largest

Needs numpy, torch, transformers and safetensors; README.md says which versions made the files. Weights come from numpy's generator
and are rounded to the type that is stored; everything after that is float64. Models compute some steps in float32 whatever their type is
(norms, softmax, rotary angles), so that word is given another meaning while they are made and run, and Float64Only looks at every
operation: one that gives any other floating type ends the program.
"""

import contextlib
import pathlib
import sys

import numpy
import safetensors.torch
import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

HERE = pathlib.Path(__file__).resolve().parent
ROPE = {"rope_type": "default"}

# name, model, configuration, stored type, tokens
MODELS = [
    ("bert", transformers.BertModel,
     transformers.BertConfig(vocab_size=61, hidden_size=40, num_hidden_layers=2, num_attention_heads=4, intermediate_size=84,
                             max_position_embeddings=80, type_vocab_size=2, hidden_act="gelu", layer_norm_eps=1e-12),
     torch.float32, 67),
    ("llama", transformers.LlamaModel,
     transformers.LlamaConfig(vocab_size=64, hidden_size=48, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
                              intermediate_size=76, max_position_embeddings=128, hidden_act="silu", rms_norm_eps=1e-5,
                              rope_parameters=dict(ROPE, rope_theta=5000.0)),
     torch.float16, 83),
    ("gemma2", transformers.Gemma2Model,
     transformers.Gemma2Config(vocab_size=59, hidden_size=32, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
                               head_dim=16, intermediate_size=56, max_position_embeddings=128, rms_norm_eps=1e-6,
                               hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=24, sliding_window=11,
                               layer_types=["sliding_attention", "full_attention"] * 2, attn_logit_softcapping=None,
                               rope_parameters=dict(ROPE, rope_theta=10000.0)),
     torch.bfloat16, 77),
    ("gptj", transformers.GPTJModel,
     transformers.GPTJConfig(vocab_size=64, n_positions=64, n_embd=36, n_layer=2, n_head=2, rotary_dim=8, n_inner=100,
                             activation_function="gelu_new", layer_norm_epsilon=1e-5),
     torch.float16, 53),
    ("gpt2", transformers.GPT2Model,
     transformers.GPT2Config(vocab_size=62, n_positions=72, n_embd=36, n_layer=2, n_head=3, n_inner=92,
                             activation_function="gelu_new", layer_norm_epsilon=1e-5),
     torch.float32, 71),
]


class Float64Only(TorchDispatchMode):
    """Fail at the first operation whose result is floating, but not float64."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.element_size() != 8:
                raise TypeError(f"{func} computed in {leaf.dtype}")
        return result


@contextlib.contextmanager
def float32_means_float64():
    keep = torch.float32, torch.float, torch.Tensor.float
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    try:
        with Float64Only():
            yield
    finally:
        torch.float32, torch.float, torch.Tensor.float = keep
        torch.set_default_dtype(keep[0])


def weight(random, name, shape, model):
    """Large enough that attention is sharp and every bias and norm matters."""
    normal = random.standard_normal(tuple(shape))
    parts = name.lower().split(".")
    if parts[-1] == "bias":
        return 0.3 * normal
    if len(shape) == 1:
        return (0.0 if model == "gemma2" else 1.0) + 0.3 * normal  # Gemma's norms multiply by 1 + weight
    if any("emb" in part or part in ("wte", "wpe") for part in parts):
        return (0.25 if model == "gemma2" else 1.0) * normal  # Gemma multiplies these by sqrt(hidden_size)
    fan_in = shape[0] if "c_" in parts[-2] else shape[1]  # GPT-2 stores (in, out)
    sharp = any(part in ("query", "key", "q_proj", "k_proj", "c_attn") for part in parts)
    return (1.6 if sharp else 1.0) / fan_in**0.5 * normal


def make(name, model_class, config, dtype, length, seed):
    config._attn_implementation = "eager"
    arguments = {"add_pooling_layer": False} if name == "bert" else {}
    random = numpy.random.default_rng(seed)
    with float32_means_float64():
        model = model_class(config, **arguments).eval()
    state = model.state_dict()
    tensors = {key: torch.from_numpy(weight(random, key, state[key].shape, name)).to(dtype) for key in sorted(state)}
    model.load_state_dict({key: value.double() for key, value in tensors.items()}, strict=True)
    ids = torch.from_numpy(random.integers(0, config.vocab_size, (1, length)))
    with float32_means_float64(), torch.no_grad():
        output = model(input_ids=ids, use_cache=False).last_hidden_state[0]
    assert output.dtype == torch.float64 and torch.isfinite(output).all()
    return dict(tensors, input_ids=ids[0].to(torch.int32), last_hidden_state=output.contiguous())


def main():
    compare = sys.argv[1:] == ["--compare"]
    if sys.argv[1:] and not compare:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    for seed, (name, model_class, config, dtype, length) in enumerate(MODELS):
        path = HERE / f"{name}.safetensors"
        tensors = make(name, model_class, config, dtype, length, seed)
        output = tensors["last_hidden_state"]
        if not compare:
            safetensors.torch.save_file(tensors, path, metadata={"model": model_class.__name__})
            print(f"{path.name}: {path.stat().st_size} bytes, outputs up to {output.abs().max():.3f}")
            continue
        stored = safetensors.torch.load_file(path)
        assert stored.keys() == tensors.keys(), f"{path.name}: other tensors"
        for key, value in tensors.items():
            same = torch.equal(stored[key], value) and stored[key].dtype == value.dtype
            assert same or key == "last_hidden_state", f"{path.name}: {key} differs"
        error = ((stored["last_hidden_state"] - output).abs().max() / output.abs().max()).item()
        print(f"{path.name}: the same weights; outputs differ by {error:.1e} of the largest")
        assert error <= 1e-12


if __name__ == "__main__":
    main()
