"""The library through ctypes, as far as the plots need it: an attention of numpy arrays on a BLIS kernel.

Structs are read from include/twoheads.h, so that no copy of them can go stale."""

import ctypes
import os
import pathlib
import re

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADER = re.sub(r"/\*.*?\*/", "", (ROOT / "include/twoheads.h").read_text("utf-8"), flags=re.S)
TYPES = {"uint32_t": ctypes.c_uint32, "int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64,
         "double": ctypes.c_double, "float": ctypes.c_float, "char": ctypes.c_char, "size_t": ctypes.c_size_t,
         "twh_status": ctypes.c_int32}


def _fields(body):
    for declaration in filter(None, (part.strip() for part in body.split(";"))):
        hook = re.search(r"\(\*(\w+)\)\(", declaration)
        if hook:
            yield hook.group(1), ctypes.c_void_p
            continue
        kind, names = re.fullmatch(r"(?:const )?(\w+)\s*(.*)", declaration, re.S).groups()
        for name in names.split(","):
            pointer, word, length = re.fullmatch(r"\s*((?:\*|const|\s)*)(\w+)(?:\[(\d+)\])?\s*", name).groups()
            if "*" in pointer:
                yield word, ctypes.c_void_p
            else:
                yield word, TYPES[kind] * int(length) if length else TYPES[kind]


for _name, _body in re.findall(r"typedef struct (\w+) \{(.*?)\} \1;", HEADER, re.S):
    TYPES[_name] = type(_name, (ctypes.Structure,), {"_fields_": list(_fields(_body))})

CONSTANTS = {name: int(value) << int(shift or 0)
             for name, value, shift in re.findall(r"\b(TWH_\w+)\s*=\s*(-?\d+)(?:\s*<<\s*(\d+))?", HEADER)}


def struct(kind, **fields):
    for name in fields:
        if not hasattr(TYPES[kind], name):
            raise SystemExit(f"{kind} has no field {name}")
    made = TYPES[kind](**fields)
    made.struct_size = ctypes.sizeof(made)
    return made


class Library:
    def __init__(self, build):
        self.core = ctypes.CDLL(str(build / "libtwoheads.so"), ctypes.RTLD_GLOBAL)
        self.blis = ctypes.CDLL(str(build / "libtwoheads-blis.so"))
        self.blis.twh_blis_recommended_arch.restype = ctypes.c_char_p
        arch = self.blis.twh_blis_recommended_arch()
        if arch:
            os.environ.setdefault("BLIS_ARCH_TYPE", arch.decode())

    @staticmethod
    def check(status, error):
        if status != 0:
            raise SystemExit(f"twoheads: {error.message.decode()}")

    def attention(self, q, k, v, length, scale, causal=False, spare=1, **options):
        """Arrays (heads, rows, dim) in float32; options are those of twh_plan_options. The kernel is one of `length` tokens
        with the log-sum-exp. Returns the output, the bounds of errors or None, the plan's info and the execute's stats."""
        core, error = self.core, struct("twh_error")
        heads, rows, dim = q.shape
        kernel = struct("twh_oracle_desc", flags=CONSTANTS["TWH_ORACLE_LSE"], slots=1, q_len=length, k_len=length, qk_dim=dim,
                        v_dim=v.shape[2] + spare, dtype=CONSTANTS["TWH_F32"], scale=scale,
                        mask_modes=CONSTANTS["TWH_MASK_NONE"] | CONSTANTS["TWH_MASK_CAUSAL"])
        pattern = struct("twh_pattern", flags=CONSTANTS["TWH_CAUSAL"] if causal else 0)
        problem = struct("twh_problem", flags=CONSTANTS["TWH_PROBLEM_SCALE"], batch=1, q_heads=heads, kv_heads=k.shape[0],
                         q_len=rows, k_len=k.shape[1], qk_dim=dim, v_dim=v.shape[2], scale=scale,
                         pattern=ctypes.addressof(pattern))
        plan_options = struct("twh_plan_options", **options)
        oracle, plan = ctypes.c_void_p(), ctypes.c_void_p()
        by = ctypes.byref
        self.check(self.blis.twh_blis_oracle_create(None, by(kernel), None, by(oracle), by(error)), error)
        self.check(core.twh_plan_create(None, by(problem), by(oracle), ctypes.c_int64(1), by(plan_options), by(plan),
                                        by(error)), error)
        info, stats = struct("twh_plan_info"), struct("twh_run_stats")
        self.check(core.twh_plan_get_info(plan, by(info), by(error)), error)

        arrays = {"q": q, "k": k, "v": v, "out": np.empty((heads, rows, v.shape[2]), np.float32)}
        if options.get("estimate"):
            arrays["error"] = np.empty((heads, rows, 1), np.float32)
        kept = {}
        for name, array in arrays.items():
            if array.dtype != np.float32 or not array.flags.c_contiguous:
                raise SystemExit(f"{name} is not dense float32")
            kept[name] = struct("twh_tensor", dtype=CONSTANTS["TWH_F32"], data=array.ctypes.data, row_stride=array.shape[2],
                                head_stride=array.shape[1] * array.shape[2], batch_stride=array.size)
        tensors = struct("twh_tensors", **{name: ctypes.addressof(tensor) for name, tensor in kept.items()})
        run_options = struct("twh_run_options", stats=ctypes.addressof(stats))
        self.check(core.twh_plan_execute(plan, by(tensors), by(run_options), by(error)), error)
        core.twh_plan_destroy(plan)
        core.twh_oracle_destroy(oracle)
        bounds = arrays["error"][..., 0].astype(np.float64) if "error" in arrays else None
        return arrays["out"], bounds, info, stats


def truth(q, k, v, scale, step=1, causal=False):
    """The attention of every step-th row, in float64."""
    result = []
    for head in range(q.shape[0]):
        rows = []
        for begin in range(0, q.shape[1], 512 * step):
            at = np.arange(begin, min(begin + 512 * step, q.shape[1]), step)
            logits = scale * (q[head, at].astype(np.float64) @ k[head].astype(np.float64).T)
            if causal:
                logits[np.arange(k.shape[1]) > at[:, None]] = -np.inf
            weights = np.exp(logits - logits.max(1, keepdims=True))
            rows.append(weights @ v[head].astype(np.float64) / weights.sum(1, keepdims=True))
        result.append(np.concatenate(rows))
    return np.stack(result)
