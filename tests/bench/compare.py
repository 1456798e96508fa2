"""The library on its CPU kernel against what one would use instead: `make bench-peers`.

Peers: torch's scaled_dot_product_attention, onnxruntime's Attention and MultiHeadAttention, ggml's flash attention (ggml-python),
and the loop over the same kernel that one would write by hand (loop.c). pip puts them into a virtual environment of their own,
in the build folder; one that cannot be had is reported as missing. All run in one process, in turns, on the same operands; every
result is compared with torch's, or the library's own where there is no torch. With one thread times are the process's own, since
others may have the core for a while; with two they are times on the wall. Ratios are of one turn; the table has their median, the
least and the most.

usage: compare.py BUILD [--venv DIR] [--no-install] [--quick] [--runs N] [--json FILE]"""

import argparse
import ctypes
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = (["numpy"], ["torch"], ["onnxruntime", "onnx"], ["ggml-python"])
M, WINDOW = 512, 512


def arguments():
    parser = argparse.ArgumentParser(description="compare with peers")
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--venv", type=pathlib.Path)
    parser.add_argument("--no-install", action="store_true", help="measure with this Python and what it has")
    parser.add_argument("--quick", action="store_true", help="short sequences, one run")
    parser.add_argument("--runs", type=int)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    options.venv = options.venv or options.build / "peers"
    options.json = options.json or options.build / "bench-peers.json"
    options.runs = options.runs or (1 if options.quick else 7)
    return options


def install(options):
    """Run again inside the virtual environment, with as many of the peers as pip can get."""
    python = options.venv / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(options.venv)], check=True)
    for names in PACKAGES:
        if subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *names]).returncode != 0:
            print(f"pip cannot install {' '.join(names)}", file=sys.stderr)
    os.execv(python, [str(python), __file__, *sys.argv[1:], "--no-install"])


# ---- the library and the loop, through ctypes ------------------------------------------------------------------------------


class Ours:
    """The plan is made, run and destroyed in each call; memory for it is kept."""

    name = "twoheads"

    def __init__(self, build):
        sys.path.insert(0, str(ROOT / "docs/plots"))
        import library
        self.struct, self.constants = library.struct, library.CONSTANTS
        self.core = ctypes.CDLL(str(build / "libtwoheads.so"), ctypes.RTLD_GLOBAL)
        self.cpu = ctypes.CDLL(str(build / "libtwoheads-cpu.so"))
        self.contexts, self.oracles, self.keep = {}, {}, []
        self.workspace = None

    def check(self, status):
        if status != 0:
            raise RuntimeError(self.error.message.decode())

    def context(self, threads):
        if threads not in self.contexts:
            desc, made = self.struct("twh_context_desc", parallelism=threads), ctypes.c_void_p()
            self.check(self.core.twh_context_create(ctypes.byref(desc), ctypes.byref(made), ctypes.byref(self.error)))
            self.contexts[threads] = made
        return self.contexts[threads]

    def oracle(self, dim):
        if dim not in self.oracles:
            flags = sum(self.constants["TWH_ORACLE_" + name]
                        for name in ("LSE", "CONTINUES", "STRIDED", "BACKWARDS", "FEWER_ROWS", "FEWER_KEYS", "FEWER_SLOTS"))
            desc = self.struct("twh_oracle_desc", flags=flags, slots=1, q_len=M, k_len=M, qk_dim=dim, v_dim=dim,
                               dtype=self.constants["TWH_F32"], scale=1 / math.sqrt(dim),
                               mask_modes=self.constants["TWH_MASK_NONE"] | self.constants["TWH_MASK_CAUSAL"])
            made = ctypes.c_void_p()
            self.check(self.cpu.twh_cpu_oracle_create(None, ctypes.byref(desc), None, ctypes.byref(made),
                                                      ctypes.byref(self.error)))
            self.oracles[dim] = made
        return self.oracles[dim]

    def tensor(self, array):
        return self.struct("twh_tensor", dtype=self.constants["TWH_F32"], data=array.ctypes.data, row_stride=array.shape[2],
                           head_stride=array.shape[1] * array.shape[2], batch_stride=array.size)

    def prepare(self, case, q, k, v):
        import numpy
        by, struct, core = ctypes.byref, self.struct, self.core
        self.error = struct("twh_error")
        flags = self.constants["TWH_CAUSAL"] if case["pattern"] != "full" else 0
        left = WINDOW - 1 if case["pattern"] == "window" else 0
        flags |= self.constants["TWH_LEFT"] if left else 0
        pattern = struct("twh_pattern", flags=flags, left=left)
        heads, rows, dim = q.shape
        problem = struct("twh_problem", batch=1, q_heads=heads, kv_heads=heads, q_len=rows, k_len=rows, qk_dim=dim, v_dim=dim,
                         pattern=ctypes.addressof(pattern))
        out = numpy.zeros_like(q)
        views = {name: self.tensor(array) for name, array in (("q", q), ("k", k), ("v", v), ("out", out))}
        tensors = struct("twh_tensors", **{name: ctypes.addressof(view) for name, view in views.items()})
        oracle, context = self.oracle(dim), self.context(case["threads"])
        options, plan, info = struct("twh_run_options"), ctypes.c_void_p(), struct("twh_plan_info")

        def run():
            self.check(core.twh_plan_create(context, by(problem), by(oracle), ctypes.c_int64(1), None, by(plan), by(self.error)))
            if not options.workspace:
                self.check(core.twh_plan_get_info(plan, by(info), by(self.error)))
                memory = numpy.zeros(info.workspace_bytes + 4096, numpy.uint8)
                options.workspace = memory.ctypes.data + -memory.ctypes.data % 4096
                options.workspace_bytes = info.workspace_bytes
                run.kept = (memory, views, pattern)
            self.check(core.twh_plan_execute(plan, by(tensors), by(options), by(self.error)))
            core.twh_plan_destroy(plan)
            return out

        return run


class Loop:
    name = "hand-written loop"

    def __init__(self, build, ours):
        self.ours = ours
        self.loop = ctypes.CDLL(str(build / "bench_loop.so")).loop_attention

    def prepare(self, case, q, k, v):
        import numpy
        if case["pattern"] == "window":
            return None
        heads, rows, dim = q.shape
        out, oracle = numpy.zeros_like(q), self.ours.oracle(dim)
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (q, k, v, out)]
        sizes = [ctypes.c_int64(size) for size in (heads, rows, dim, M)]

        def run():
            if self.loop(oracle, *pointers, *sizes, ctypes.c_int(case["pattern"] == "causal"), ctypes.c_int(case["threads"])):
                raise RuntimeError("the loop failed")
            return out

        return run


# ---- peers -----------------------------------------------------------------------------------------------------------------


def visible(rows, pattern):
    """(rows, rows), true where a row sees a key."""
    import numpy
    i = numpy.arange(rows)
    seen = i[None, :] <= i[:, None]
    return seen & (i[None, :] > i[:, None] - WINDOW) if pattern == "window" else seen


class Torch:
    name = "torch"

    def __init__(self):
        import torch
        self.torch, self.version, self.masks = torch, torch.__version__, {}

    def prepare(self, case, q, k, v):
        torch = self.torch
        tensors = [torch.from_numpy(array)[None] for array in (q, k, v)]
        mask = None
        if case["pattern"] == "window":  # of floats: the fastest that it takes
            if q.shape[1] not in self.masks:
                mask = torch.zeros(q.shape[1], q.shape[1])
                self.masks[q.shape[1]] = mask.masked_fill_(~torch.from_numpy(visible(q.shape[1], "window")), -math.inf)
            mask = self.masks[q.shape[1]]

        def run():
            torch.set_num_threads(case["threads"])
            with torch.inference_mode():
                made = torch.nn.functional.scaled_dot_product_attention(*tensors, attn_mask=mask,
                                                                        is_causal=case["pattern"] == "causal")
            return made[0].numpy()

        return run


class Onnxruntime:
    """op: Attention of ONNX itself, or MultiHeadAttention of onnxruntime, which has a flash attention but no causal one."""

    def __init__(self, op):
        import onnx
        import onnxruntime
        self.onnx, self.runtime, self.op, self.version = onnx, onnxruntime, op, onnxruntime.__version__
        self.name = "onnxruntime " + op

    def model(self, q, causal):
        from onnx import TensorProto, helper
        heads, rows, dim = q.shape
        # Attention takes (batch, heads, rows, dim); the other one (batch, rows, heads * dim).
        shape = [1, heads, rows, dim] if self.op == "Attention" else [1, rows, heads * dim]
        value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("q", "k", "v", "out")]
        if self.op == "Attention":
            node = helper.make_node("Attention", ["q", "k", "v"], ["out"], is_causal=int(causal))
        else:
            node = helper.make_node("MultiHeadAttention", ["q", "k", "v"], ["out"], domain="com.microsoft", num_heads=heads)
        graph = helper.make_graph([node], "attention", value[:3], value[3:])
        model = helper.make_model(graph, ir_version=11,
                                  opset_imports=[helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)])
        return model.SerializeToString()

    def prepare(self, case, q, k, v):
        import numpy
        if case["pattern"] == "window" or (case["pattern"] == "causal" and self.op != "Attention"):
            return None
        options = self.runtime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = case["threads"], 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        session = self.runtime.InferenceSession(self.model(q, case["pattern"] == "causal"), options,
                                                providers=["CPUExecutionProvider"])
        flat = self.op != "Attention"
        shape = [array.transpose(1, 0, 2).reshape(1, array.shape[1], -1) if flat else array[None] for array in (q, k, v)]
        feeds = {name: self.runtime.OrtValue.ortvalue_from_numpy(numpy.ascontiguousarray(array))
                 for name, array in zip("qkv", shape)}

        def run():
            made = session.run_with_ort_values(None, feeds)[0].numpy()[0]
            return made.reshape(q.shape[1], q.shape[0], -1).transpose(1, 0, 2) if flat else made

        return run


class Ggml:
    name = "ggml"

    def __init__(self):
        import ggml
        self.ggml, self.version = ggml, getattr(ggml, "__version__", "")

    def fill(self, tensor, array):
        ctypes.memmove(self.ggml.ggml_get_data(tensor), array.ctypes.data, array.nbytes)

    def prepare(self, case, q, k, v):
        import numpy
        ggml = self.ggml
        heads, rows, dim = q.shape
        masked = case["pattern"] != "full"
        size = 5 * q.nbytes + (2 * rows * rows if masked else 0) + (512 << 20)
        context = ggml.ggml_init(ggml.ggml_init_params(size, None, False))
        tensors = []
        for array in (q, k, v):
            tensors.append(ggml.ggml_new_tensor_4d(context, ggml.GGML_TYPE_F32, dim, rows, heads, 1))
            self.fill(tensors[-1], array)
        mask = None
        if masked:
            mask = ggml.ggml_new_tensor_4d(context, ggml.GGML_TYPE_F16, rows, rows, 1, 1)
            self.fill(mask, numpy.where(visible(rows, case["pattern"]), 0, -math.inf).astype(numpy.float16))
        out = ggml.ggml_flash_attn_ext(context, *tensors, mask, 1 / math.sqrt(dim), 0.0, 0.0)
        graph = ggml.ggml_new_graph(context)
        ggml.ggml_build_forward_expand(graph, out)
        # Memory to work in, threads that stay: as a program that calls it often would have them.
        backend = ggml.ggml_backend_cpu_init()
        ggml.ggml_backend_cpu_set_n_threads(backend, case["threads"])

        def run():
            if ggml.ggml_backend_graph_compute(backend, graph) != 0:
                raise RuntimeError("ggml failed")
            flat = (ctypes.c_float * q.size).from_address(ggml.ggml_get_data(out))
            return numpy.frombuffer(flat, numpy.float32).reshape(rows, heads, dim).transpose(1, 0, 2)

        def close():
            ggml.ggml_backend_free(backend)
            ggml.ggml_free(context)

        run.close = close
        return run


# ---- measure ---------------------------------------------------------------------------------------------------------------


def cases(quick):
    for dim in (64, 128):
        for rows in (512, 1024) if quick else (2048, 8192):
            for pattern in ("full", "causal"):
                for threads in (1, 2):
                    yield {"dim": dim, "rows": rows, "heads": 4 if rows == 2048 else 1, "pattern": pattern, "threads": threads}
    for threads in (1, 2):
        yield {"dim": 64, "rows": 2048 if quick else 16384, "heads": 1, "pattern": "window", "threads": threads}


def wanted(peer, case):
    if peer == "torch":
        return 3 if case["pattern"] == "window" else 1.3
    if case["pattern"] == "window":
        return None
    return {"ggml": 1.7, "hand-written loop": 1}.get(peer)


def compare(case, peers, runs):
    """For each peer its times over ours, one for each turn."""
    import numpy
    generator = numpy.random.default_rng(1)
    shape = (case["heads"], case["rows"], case["dim"])
    q, k, v = (generator.standard_normal(shape, numpy.float32) for _ in range(3))
    ready = {peer.name: peer.prepare(case, q, k, v) for peer in peers}
    ready = {name: run for name, run in ready.items() if run}
    clock = time.process_time if case["threads"] == 1 else time.perf_counter
    results = {name: numpy.array(run()) for name, run in ready.items()}  # also the warm-up
    reference = results.get("torch", results["twoheads"])
    for name, result in results.items():
        worst = float(numpy.abs(result - reference).max())
        if not worst < 2e-3:
            raise RuntimeError(f"{name} is off by {worst}: {case}")
    ratios = {name: [] for name in ready}
    for _ in range(runs):
        seconds = {}
        for name, run in ready.items():
            time.sleep(0.01)  # threads of the one before go to sleep
            begin = clock()
            run()
            seconds[name] = clock() - begin
        for name in ready:
            ratios[name].append(seconds[name] / seconds["twoheads"])
    for run in ready.values():
        getattr(run, "close", lambda: None)()
    return {name: values for name, values in ratios.items() if name != "twoheads"}


def gather(build):
    ours = Ours(build)
    peers, missing = [ours, Loop(build, ours)], {}
    for name, make in (("torch", Torch), ("onnxruntime Attention", lambda: Onnxruntime("Attention")),
                       ("onnxruntime MultiHeadAttention", lambda: Onnxruntime("MultiHeadAttention")), ("ggml", Ggml)):
        try:
            peers.append(make())
        except Exception as error:  # whatever an import may raise
            missing[name] = str(error).splitlines()[0]
    return peers, missing


def main():
    options = arguments()
    if not options.no_install:
        install(options)
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    peers, missing = gather(options.build)
    rows = []
    print("times of others over ours, f32: how many times faster we are; median of", options.runs, "turns")
    for peer in peers:
        if hasattr(peer, "version"):
            print(f"  {peer.name} {peer.version}")
    for name, why in missing.items():
        print(f"  {name}: MISSING ({why})")
    print(f"{'peer':<31} {'case':<44} {'median':>7} {'least':>7} {'most':>7} {'wanted':>7} met", flush=True)
    for case in cases(options.quick):
        name = f"N {case['rows']}, d {case['dim']}, {case['heads']} heads, {case['pattern']}, threads {case['threads']}"
        for peer, values in compare(case, peers, options.runs).items():
            want, median = wanted(peer, case), statistics.median(values)
            met = "" if want is None else "yes" if median >= want else "NO"
            print(f"{peer:<31} {name:<44} {median:7.2f} {min(values):7.2f} {max(values):7.2f} "
                  f"{'' if want is None else f'>= {want}':>7} {met}", flush=True)
            rows.append({"peer": peer, **case, "median": median, "least": min(values), "most": max(values), "at_least": want})
    versions = {peer.name: peer.version for peer in peers if hasattr(peer, "version")}
    options.json.write_text(json.dumps({"runs": options.runs, "versions": versions, "missing": missing, "rows": rows}, indent=1))
    print(options.json)


if __name__ == "__main__":
    main()
