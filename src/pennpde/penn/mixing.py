"""Channel mixing: a linear layer on many points with few channels, and on a GPU its gradients in one pass.

A mesh has tens of thousands of points and a network sixteen channels. The gradient of the weights is then a product of
a wide flat matrix with a tall thin one, for which BLAS libraries on a GPU need two kernels and read everything once
more for the gradient of the values. The kernel here reads values and gradients once and gives both.
"""

# ruff: noqa: ARG001  (a fake takes what the real one takes)

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor, nn

_FEWEST, _MOST = 8, 128
"""Channels on either side, and on both together, between which the kernel is used: more are what BLAS is good at."""
_PROGRAMS = 264
"""Partial sums of a weight's gradient: two for each multiprocessor of a large GPU."""
_MOST_ROWS, _HELD = 128, 8192
"""Points that a program takes at a time, and numbers that it then holds: small GPUs have little shared memory."""


def mix(
    values: Float[Tensor, "points *axes channels"],
    weight: Float[Tensor, "out channels"],
    bias: Float[Tensor, " out"] | None = None,
) -> Float[Tensor, "points *axes out"]:
    """`torch.nn.functional.linear`, with faster gradients on a GPU."""
    few = min(weight.shape) >= _FEWEST and sum(weight.shape) <= _MOST
    if few and values.is_cuda and values.dtype == torch.float32 and not torch.is_autocast_enabled("cuda"):
        flat = values.reshape(-1, values.shape[-1])
        return _mix(flat, weight, bias).reshape(*values.shape[:-1], weight.shape[0])
    return nn.functional.linear(values, weight, bias)


class Linear(nn.Linear):
    """PyTorch's linear layer by `mix`."""

    def forward(self, input: Float[Tensor, "points *axes channels"]) -> Float[Tensor, "points *axes out"]:  # noqa: A002
        return mix(input, self.weight, self.bias)


@torch.library.custom_op("pennpde::mix", mutates_args=())
def _mix(values: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return nn.functional.linear(values, weight, bias)


@_mix.register_fake
def _(values, weight, bias):
    return values.new_empty(values.shape[0], weight.shape[0])


@torch.library.custom_op("pennpde::mixing_gradients", mutates_args=())
def _mixing_gradients(gradient: Tensor, values: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of the values, and partial sums of that of weight and bias: `[programs, out, channels + 1]`."""
    on_gpu = _triton_gradients() if gradient.is_cuda else None
    if on_gpu is not None:
        return on_gpu(gradient.contiguous(), values.contiguous(), weight)
    of_weight = torch.cat([gradient.T @ values, gradient.sum(dim=0)[:, None]], dim=1)
    partial = gradient.new_zeros(_PROGRAMS, weight.shape[0], weight.shape[1] + 1)
    partial[0] = of_weight
    return gradient @ weight, partial


@_mixing_gradients.register_fake
def _(gradient, values, weight):
    return torch.empty_like(values), values.new_empty(_PROGRAMS, weight.shape[0], weight.shape[1] + 1)


def _save_for_backward(ctx, inputs, output):
    values, weight, bias = inputs
    ctx.save_for_backward(values, weight)
    ctx.has_bias = bias is not None


def _backward(ctx, gradient):
    values, weight = ctx.saved_tensors
    if torch.is_grad_enabled():  # the gradient itself is to be differentiated: by what PyTorch knows to differentiate
        of_values, of_weight, of_bias = gradient @ weight, gradient.T @ values, gradient.sum(dim=0)
    else:
        of_values, partial = _mixing_gradients(gradient, values, weight)
        whole = partial.sum(dim=0)
        of_weight, of_bias = whole[:, :-1], whole[:, -1]
    return of_values, of_weight, of_bias if ctx.has_bias else None


_mix.register_autograd(_backward, setup_context=_save_for_backward)


@cache
def _triton_gradients() -> Callable[..., tuple[Tensor, Tensor]] | None:
    """The GPU kernel, or None where Triton is absent."""
    try:
        import triton  # pyright: ignore[reportMissingImports]
        import triton.language as tl  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None

    @triton.jit
    def kernel(
        gradient,
        values,
        weight,
        of_values,
        partial,
        rows,
        weight_stride,
        weight_step,
        CHANNELS: tl.constexpr,
        OUT: tl.constexpr,
        BLOCKS: tl.constexpr,
        ROWS: tl.constexpr,
        CHANNELS_FILLED: tl.constexpr,
        OUT_FILLED: tl.constexpr,
    ):
        channel = tl.arange(0, CHANNELS_FILLED)
        out = tl.arange(0, OUT_FILLED)
        is_channel, is_out = channel < CHANNELS, out < OUT
        both = is_out[:, None] & is_channel[None, :]
        mixing = tl.load(weight + out[:, None] * weight_stride + channel[None, :] * weight_step, mask=both, other=0.0)
        of_weight = tl.zeros((OUT_FILLED, CHANNELS_FILLED), dtype=tl.float32)
        of_bias = tl.zeros((OUT_FILLED,), dtype=tl.float32)
        program = tl.program_id(0)
        for block in range(BLOCKS):
            row = (program * BLOCKS + block) * ROWS + tl.arange(0, ROWS)
            live = (row < rows)[:, None]
            given = tl.load(gradient + row[:, None] * OUT + out[None, :], mask=live & is_out[None, :], other=0.0)
            value_places = row[:, None] * CHANNELS + channel[None, :]
            here = live & is_channel[None, :]
            value = tl.load(values + value_places, mask=here, other=0.0)
            # Three passes of the tensor cores: as exact as single precision.
            of_value = tl.dot(given, mixing, input_precision="tf32x3")
            tl.store(of_values + value_places, of_value, mask=here)
            of_weight += tl.dot(tl.trans(given), value, input_precision="tf32x3")
            of_bias += tl.sum(given, axis=0)
        places = program * OUT * (CHANNELS + 1) + out * (CHANNELS + 1)
        tl.store(partial + places[:, None] + channel[None, :], of_weight, mask=both)
        tl.store(partial + places + CHANNELS, of_bias, mask=is_out)

    def gradients(gradient, values, weight):
        rows, channels = values.shape
        out = weight.shape[0]
        of_values = torch.empty_like(values)
        partial = values.new_empty(_PROGRAMS, out, channels + 1)
        channels_filled, out_filled = (max(16, triton.next_power_of_2(each)) for each in (channels, out))
        at_once = _MOST_ROWS
        while at_once > 16 and at_once * (channels_filled + out_filled) > _HELD:
            at_once //= 2
        kernel[(_PROGRAMS,)](  # pyright: ignore[reportIndexIssue]
            gradient,
            values,
            weight,
            of_values,
            partial,
            rows,
            weight.stride(0),
            weight.stride(1),
            CHANNELS=channels,
            OUT=out,
            BLOCKS=triton.cdiv(rows, at_once * _PROGRAMS),
            ROWS=at_once,
            CHANNELS_FILLED=channels_filled,
            OUT_FILLED=out_filled,
        )
        return of_values, partial

    return gradients
