"""Compile the kernels of all ops for sm_80 and sm_90, which takes no GPU; run in a process of its own.

In: a directory with the modules of the ops. Out: a line of JSON for each kernel: what it reads and writes of rows by the compiler's own
representation, and the registers that it spills. Then one of a float in a launch.
"""

import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch

from scaffold.spec import TensorInput
from tests.kernels.ops import OPS

triton: Any = importlib.import_module("triton")  # which has no types
tl: Any = importlib.import_module("triton.language")
ATTRIBUTES = {"eps": 1e-6, "temperature": 0.7, "smoothing": 0.1, "bits": 8}
ATTRIBUTES |= {
    "why": 2.0,
    "dtype": 2.0,
    "gamma": 1.5,
    "power": 3,
    "cap": 3.0,
    "delta": 0.8,
}
TYPES = {"int": "*i64", "bool": "*i1"}
FLAG = "NEEDS_"  # of a gradient
SHORT = (90, 128)  # a GPU, and columns of which several rows share a block
SIZES = ((80, 4096), (90, 8192), SHORT)


def main() -> None:
    """Compile each kernel."""
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # as Triton did so far
    sys.path.insert(0, sys.argv[1])
    for name, op in OPS.items():
        module = importlib.import_module(f"{name}_triton")
        kinds = {
            item.name: TYPES.get(item.dtype, "*bf16")
            for item in op.spec(name).inputs
            if isinstance(item, TensorInput)
        }
        for direction in ("forward", "backward"):
            kernel = vars(module).get(f"{direction}_kernel")
            flags = (
                [x for x in kernel.arg_names if x.startswith(FLAG)] if kernel else []
            )
            wanted = [(flags, size) for size in SIZES]
            wanted += [([flag], SHORT) for flag in flags]
            for needed, size in wanted if kernel is not None else ():
                given = {flag: flag in needed for flag in flags}
                told = compiled(module, kernel, kinds, size, given)
                alone = needed[0] if len(needed) < len(flags) else ""
                words = {"name": name, "direction": direction, "alone": alone}
                print(json.dumps(words | told))

    importlib.import_module("triton.runtime").driver.set_active(NoDriver())
    print(json.dumps({"name": "floats"} | dict(launched_with_floats())))
    print(json.dumps({"name": "rows", "kernels": launched_with_rows()}))


class NoDriver:
    """A GPU that is not here."""

    def get_current_target(self) -> Any:
        return triton.backends.compiler.GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return device


def launched_with_floats() -> Iterator[tuple[str, Any]]:
    """The kernels of two temperatures, as the JIT makes them, and where the number stands."""
    kernel = importlib.import_module("softmax_triton").forward_kernel
    mocked = importlib.import_module("triton.runtime.jit").MockTensor
    for dtype, word in ((torch.float32, tl.float32), (torch.float64, tl.float64)):
        x, exact = mocked(dtype), dtype == torch.float64
        made = [
            kernel.warmup(
                *(x, 64, x, 100, 64, tl.constexpr(number) if exact else number),
                DTYPE=word,
                ROWS=1,
                BLOCK=64,
                grid=(1,),
            )
            for number in (0.7, 0.9)
        ]
        yield str(dtype), len({found.hash for found in made})
        yield f"argument of {dtype}", "%temperature: f32" in made[0].asm["ttir"]
        yield f"constant of {dtype}", "dense<0.69999999999999996>" in made[0].asm[
            "ttir"
        ]


def launched_with_rows() -> int:
    """The number of kernels of softmax for several numbers of rows."""
    kernel = importlib.import_module("softmax_triton").forward_kernel
    x = importlib.import_module("triton.runtime.jit").MockTensor(torch.float32)
    rest = {"DTYPE": tl.float32, "ROWS": 1, "BLOCK": 64, "grid": (1,)}
    made = [kernel.warmup(x, 64, x, rows, 64, 0.7, **rest) for rows in (1, 16, 17)]
    return len({found.hash for found in made})


def compiled(
    module: ModuleType,
    kernel: Any,
    kinds: dict[str, str],
    size: tuple[int, int],
    given_flags: dict[str, bool],
) -> dict[str, Any]:
    """What comes out for rows of bfloat16."""
    capability, columns = size[0], getattr(module, "ELEMENTS", size[1])
    flat = {"BLOCK": columns, "num_warps": 4}
    launched = module.blocks(columns) if hasattr(module, "blocks") else flat
    warps = launched.pop("num_warps")
    constants: dict[str, Any] = {**launched, "DTYPE": tl.float32}
    constants |= given_flags
    fixed = {x.name for x in kernel.params if x.is_constexpr} - constants.keys()
    constants |= {
        key: ATTRIBUTES[x] for key in fixed if (x := key.lower()) in ATTRIBUTES
    }
    signature = {
        name: (
            "constexpr"
            if name in constants
            else (
                kinds.get(name.removesuffix("_ptr"), "*bf16")
                if name.endswith("_ptr")
                else ("fp32" if plain_name(name) in ATTRIBUTES else "i32")
            )
        )
        for name in kernel.arg_names
    }
    # As a launch does for memory that is aligned, and such a number of columns.
    aligned = [["tt.divisibility", 16]]
    given = [at for at, kind in enumerate(signature.values()) if kind != "constexpr"]
    source = triton.compiler.ASTSource(
        fn=kernel,
        signature=signature,
        constexprs=constants,
        attrs={(at,): aligned for at in given},
    )
    found = triton.compile(
        source,
        target=triton.backends.compiler.GPUTarget("cuda", capability, 32),
        options={"num_warps": warps},
    )
    ttir = found.asm["ttir"]
    return {
        "capability": capability,
        "loads": len(re.findall(r"= tt\.load", ttir)),
        "stores": len(re.findall(r"tt\.store ", ttir)),
        "spilled": spilled(found.asm["cubin"]),
        "cubin": len(found.asm["cubin"]),
    }


def plain_name(name: str) -> str:
    """The attribute that a parameter is computed of: `smoothing` of `one_minus_smoothing` and `smoothing_over_V`."""
    return name.removeprefix("one_minus_").partition("_over_")[0]


def spilled(cubin: bytes) -> int:
    """The bytes of a thread's own that do not fit in registers, as NVIDIA's tool reads them."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        tool = triton.knobs.nvidia.cuobjdump.path
        said = subprocess.check_output([tool, "-res-usage", file.name], text=True)
    return sum(map(int, re.findall(r"(?:STACK|LOCAL):(\d+)", said)))


if __name__ == "__main__":
    main()
