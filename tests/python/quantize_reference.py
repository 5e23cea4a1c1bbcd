"""Fake quantization by its formulas in float64 and torch's own autograd, which shares nothing with the library."""
import torch


def sets_of(shape, strategy, sizes=()):
    """The number of its set for each element of values [R, C]."""
    rows, columns = torch.arange(shape[0])[:, None], torch.arange(shape[1])[None]
    if strategy == "tensor":
        return torch.zeros(shape, dtype=torch.int64)
    if strategy in ("channel", "token"):
        return rows.expand(shape)
    if strategy == "group":
        return rows * -(-shape[1] // sizes[0]) + columns // sizes[0]
    return rows // sizes[0] * -(-shape[1] // sizes[1]) + columns // sizes[1]


def qparams(x, sets, codes):
    """Scale and zero point of each set, f64, from its extremes."""
    qmin, qmax, symmetric = codes
    scales, zeros = [], []
    for k in range(int(sets.max()) + 1):
        values = x.double()[sets == k]
        lo, hi = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
        if symmetric:
            scales.append(max(-lo, hi) / qmax)
            zeros.append(0.0)
        else:
            scales.append((hi - lo) / (qmax - qmin))
            zeros.append(min(max(round(qmin - lo / scales[-1]), qmin), qmax))
    return torch.tensor(scales, dtype=torch.float64), torch.tensor(zeros, dtype=torch.float64)


def fake_quantize(x, scale, zero_point, sets, codes, factor=1.0):
    """Values with the gradients of the straight-through estimator, of LSQ (times the factor) and of LSQ+."""
    qmin, qmax, _ = codes

    def counted(p):  # the same value, `factor` times the gradient
        return (p * factor + (p - p * factor).detach())[sets]

    s, z = counted(scale), counted(zero_point)
    z = z + (z.round() - z).detach()
    steps = (x / s).detach().round() + z.detach()
    inside = (steps >= qmin) & (steps <= qmax)
    rounded = x + s * ((x / s).round() - x / s).detach()
    clipped = (steps.clamp(qmin, qmax) - z) * s
    return torch.where(inside, rounded, clipped), inside


def near_tie(x, scale, sets, width=1e-4):
    """Where float32 may round to the other code."""
    ratio = x.double() / scale[sets]
    return ((ratio - ratio.floor()) - 0.5).abs() < width
