"""The operators of quantize_() and its quantizers, against float64 and torch's own checks."""
import itertools
import unittest

from torch_case import TorchCase, nn, steelyard, torch
import quantize_reference as reference
from steelyard.torch import _mxfp4, _ops
from steelyard.torch._scheme import Scheme
from steelyard.torch.quantizers import ActivationQuantizer, WeightQuantizer

LAYOUTS = [("tensor", ()), ("channel", ()), ("token", ()), ("group", (8,)), ("group", (5,)), ("block", (2, 8)),
           ("block", (4, 24))]
CODES = [(-127, 127, 1), (-8, 7, 1), (-2, 1, 1), (-4, 3, 0), (0, 255, 0), (0, 15, 0)]


def values(seed=0, dtype=torch.float64, rows=7, columns=24):
    numbers = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, columns, generator=numbers, dtype=torch.float64) * (1 + torch.arange(rows)[:, None])
    return (x + 0.3).to(dtype)


class Operators(TorchCase):
    def test_dynamic_scales_are_those_of_the_formula(self):
        for (strategy, sizes), codes, dtype in itertools.product(LAYOUTS, CODES, (torch.float64, torch.float32)):
            with self.subTest(strategy=strategy, sizes=sizes, codes=codes, dtype=dtype):
                x = values(dtype=dtype).requires_grad_()
                y, mask, scale, zero_point = _ops.fake_quantize_dynamic(x, codes, strategy, sizes)
                sets = reference.sets_of(x.shape, strategy, sizes)
                s, z = reference.qparams(x.detach(), sets, codes)
                self.assertEqual((y.dtype, scale.dtype, zero_point.dtype), (dtype, dtype, torch.int32))
                self.assertEqual(zero_point.tolist(), z.tolist())
                self.assert_near(scale.double(), s, 1e-15 if dtype == torch.float64 else 1e-6)
                x64 = x.detach().double().requires_grad_()
                expected, inside = reference.fake_quantize(x64, scale.double(), z, sets, codes)
                sure = ~reference.near_tie(x.detach(), scale.double(), sets)
                self.assertGreater(float(sure.double().mean()), 0.9)
                self.assert_near(y.double()[sure], expected[sure], 1e-14 if dtype == torch.float64 else 1e-6)
                weights = values(1)
                (y * weights.to(dtype)).sum().backward()
                self.assertTrue(torch.equal(x.grad.double()[sure], (weights.to(dtype).double() * inside)[sure]))

    def test_given_scales_clip(self):
        for (strategy, sizes), codes, dtype in itertools.product(LAYOUTS, CODES, (torch.float64, torch.float32)):
            with self.subTest(strategy=strategy, sizes=sizes, codes=codes, dtype=dtype):
                x = values(dtype=dtype).requires_grad_()
                sets = reference.sets_of(x.shape, strategy, sizes)
                s, z = reference.qparams(x.detach(), sets, codes)
                s, z = (s * 0.4).to(dtype), z.to(torch.int32)
                y, mask = _ops.fake_quantize(x, s, z, codes, strategy, sizes)
                x64 = x.detach().double().requires_grad_()
                expected, inside = reference.fake_quantize(x64, s.double(), z.double(), sets, codes)
                self.assertGreater(int((~inside).sum()), 2)
                sure = ~reference.near_tie(x.detach(), s.double(), sets)
                self.assert_near(y.double()[sure], expected[sure], 1e-14 if dtype == torch.float64 else 1e-6)
                weights = values(1)
                (y * weights.to(dtype)).sum().backward()
                (expected * weights.to(dtype).double()).sum().backward()
                self.assertTrue(torch.equal(x.grad.double()[sure], x64.grad[sure]))
                numbers = _ops.codes_of(x, s, z, codes, strategy, sizes)
                self.assertTrue(torch.equal((numbers.double() - z.double()[sets]) * s.double()[sets], y.double())
                                if dtype == torch.float64 else
                                torch.allclose((numbers.double() - z.double()[sets]) * s.double()[sets], y.double()))

    def test_learned_scales_and_offsets_have_lsqs_gradients(self):
        for (strategy, sizes), codes in itertools.product(LAYOUTS, CODES):
            for dtype, bound in ((torch.float64, 1e-12), (torch.float32, 2e-4)):
                with self.subTest(strategy=strategy, sizes=sizes, codes=codes, dtype=dtype):
                    x = values(dtype=dtype)
                    sets = reference.sets_of(x.shape, strategy, sizes)
                    s, z = reference.qparams(x, sets, codes)
                    clear = ~reference.near_tie(x, s * 0.4, sets, 1e-3)
                    x = (x * clear).requires_grad_()
                    scale, zero = (s * 0.4).to(dtype).requires_grad_(), (z + 0.2).to(dtype).requires_grad_()
                    y = _ops.fake_quantize_learned(x, scale, zero, codes, strategy, sizes, False)
                    count = max(x.numel() // scale.numel(), 1)
                    largest = codes[1] if codes[2] else codes[1] - codes[0]
                    theirs = [t.detach().double().requires_grad_() for t in (x, scale, zero)]
                    expected, inside = reference.fake_quantize(*theirs, sets, codes, (count * largest) ** -0.5)
                    self.assertGreater(int((~inside).sum()), 2)
                    self.assert_near(y.double(), expected, 1e-14 if dtype == torch.float64 else 1e-6)
                    weights = values(1)
                    (y * weights.to(dtype)).sum().backward()
                    (expected * weights.to(dtype).double()).sum().backward()
                    for name, a, b in zip(("x", "scale", "zero_point"), (x, scale, zero), theirs):
                        self.assert_near(a.grad.double(), b.grad, bound, name)

    def test_the_batch_is_not_counted(self):
        x = values().requires_grad_()
        scale, zero = torch.tensor([0.1], dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
        gradients = [_ops.learned_gradients(torch.ones_like(x), x.detach(), scale, zero, (-8, 7, 1), "tensor", (), samples)
                     for samples in (False, True)]
        self.assert_near(gradients[1][1], gradients[0][1] * len(x) ** 0.5, 1e-12)

    def test_half_precision(self):
        for dtype in (torch.float16, torch.bfloat16):
            x = values(dtype=dtype).requires_grad_()
            y, _, scale, zero = _ops.fake_quantize_dynamic(x, (-8, 7, 1), "token", ())
            self.assertEqual((y.dtype, scale.dtype), (dtype, torch.float32))
            sets = reference.sets_of(x.shape, "token")
            expected, _ = reference.fake_quantize(x.detach().double(), scale.double(), zero.double(), sets, (-8, 7, 1))
            sure = ~reference.near_tie(x.detach(), scale.double(), sets)
            self.assert_near(y.double()[sure], expected.to(dtype).double()[sure], 1e-12)
            y.sum().backward()
            self.assertEqual(x.grad.dtype, dtype)

    def test_gradcheck(self):
        """Of the true derivative: clipped values have one, and the masked gradient is linear."""
        check = torch.autograd.gradcheck
        x = values()
        mask = _ops.fake_quantize(x, torch.tensor([0.05], dtype=torch.float64), torch.zeros(1, dtype=torch.int32),
                                  (-8, 7, 1), "tensor", ())[1]
        grad = values(2).requires_grad_()
        self.assertTrue(check(lambda g: _ops.pass_inside(g, mask), (grad,)))
        self.assertTrue(torch.autograd.gradgradcheck(lambda g: _ops.pass_inside(g, mask), (grad,)))
        far = torch.where(x > 0, x + 10, x - 10).requires_grad_()
        for strategy, sizes, sets in (("tensor", (), 1), ("token", (), 7), ("group", (8,), 21)):
            scale = torch.full((sets,), 0.25, dtype=torch.float64, requires_grad=True)
            zero = torch.ones(sets, dtype=torch.float64)
            largest = (far.numel() // sets * 15) ** 0.5

            def call(s):
                return _ops.fake_quantize_learned(far.detach(), s, zero, (0, 15, 0), strategy, sizes, False)

            numeric = (call(scale.detach() + 1e-6) - call(scale.detach() - 1e-6)).sum() / 2e-6
            call(scale).sum().backward()
            self.assert_near(scale.grad.sum() * largest, numeric, 1e-6)  # without LSQ's factor
            self.assertTrue(check(lambda v: _ops.fake_quantize_learned(v, scale.detach(), zero, (0, 15, 0), strategy, sizes,
                                                                       False), (far,)))  # all clipped: 0

    def test_opcheck(self):
        opcheck = getattr(getattr(torch, "library", None), "opcheck", None)
        if opcheck is None or not hasattr(torch.library, "custom_op"):
            self.skipTest(f"torch {torch.__version__} has no torch.library.opcheck")
        x = values(dtype=torch.float32).requires_grad_()
        for (strategy, sizes), codes in itertools.product(LAYOUTS[::2], CODES[::3]):
            with self.subTest(strategy=strategy, codes=codes):
                sets = int(reference.sets_of(x.shape, strategy, sizes).max()) + 1
                scale, zero = torch.full((sets,), 0.1), torch.ones(sets) * (not codes[2])
                opcheck(torch.ops.steelyard.fake_quantize_dynamic.default, (x, codes, strategy, sizes))
                y, mask = _ops.fake_quantize(x, scale, zero.int(), codes, strategy, sizes)
                opcheck(torch.ops.steelyard.fake_quantize.default, (x, scale, zero.int(), codes, strategy, sizes))
                opcheck(torch.ops.steelyard.pass_inside.default, (y.detach().requires_grad_(), mask))
                opcheck(torch.ops.steelyard.fake_quantize_learned.default,
                        (x, scale.requires_grad_(), zero.requires_grad_(), codes, strategy, sizes, False))
                opcheck(torch.ops.steelyard.learned_gradients.default,
                        (y.detach(), x.detach(), scale.detach(), zero.detach(), codes, strategy, sizes, False))

    def test_refusals(self):
        x, zero = values(dtype=torch.float32), torch.zeros(1, dtype=torch.int32)
        call = lambda x, s: _ops.fake_quantize(x, s, zero, (-8, 7, 1), "tensor", ())  # noqa: E731
        for bad in (0.0, -1.0, float("nan"), float("inf")):
            self.assert_refused("expected every scale finite and > 0", call, x, torch.tensor([bad]))
        self.assert_refused("expected values of float32, float64, float16 or bfloat16, got torch.int64", call, x.long(),
                            torch.ones(1))
        self.assert_refused("expected scale of 1 elements, got 2", call, x, torch.ones(2))


class MxFp4(TorchCase):
    GRID = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)

    def test_values_are_the_nearest_of_the_format(self):
        x = torch.cat([values(dtype=torch.float32, columns=70) * 2.0 ** k for k in (-20, -1, 0, 9)])
        y = _mxfp4.fake_quantize(x)
        self.assertEqual(y.shape, x.shape)
        for row, out in zip(x, y):
            for first in range(0, 70, 32):
                group, got = row[first:first + 32].double(), out[first:first + 32].double()
                most = float(group.abs().max())
                exponent = torch.tensor(most).log2().floor()
                scale = 2.0 ** (exponent - 2 + float(most / 2 ** exponent >= 1.75))
                distance = (group.abs()[:, None] / scale - self.GRID).abs()
                self.assertTrue(torch.equal((group - got).abs() / scale, distance.min(1).values))
                self.assertTrue(torch.isin(got.abs() / scale, self.GRID).all())

    def test_ties_go_to_even_and_the_gradient_passes(self):
        x = torch.tensor([[0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0, -0.75, -2.5] + [0.0] * 22], requires_grad=True)
        y = _mxfp4.fake_quantize(x)
        self.assertEqual(y[0, :10].tolist(), [0, 1, 1, 2, 2, 4, 4, 6, -1, -2])
        y.sum().backward()
        self.assertTrue(torch.equal(x.grad, torch.ones_like(x)))
        codes, exponents = _mxfp4.codes_of(x)
        self.assertEqual((codes[0, :10].tolist(), exponents.tolist()), ([0, 2, 2, 4, 4, 6, 6, 7, 10, 12], [[127]]))

    def test_zeros_and_nan(self):
        self.assertTrue(torch.equal(_mxfp4.fake_quantize(torch.zeros(2, 40)), torch.zeros(2, 40)))
        x = torch.ones(1, 64)
        x[0, 3] = float("nan")
        self.assertTrue(_mxfp4.fake_quantize(x)[0, 3].isnan())
        self.assertTrue(torch.equal(_mxfp4.fake_quantize(x)[0, 32:], torch.ones(32)))


class Ranges(TorchCase):
    def quantizer(self, **words):
        scheme = Scheme(**{"num_bits": 8, "symmetric": False, "strategy": "tensor", "signed": False, **words})
        return ActivationQuantizer(scheme, "fc.input_quantizer")

    def test_min_max_keeps_the_extremes(self):
        q = self.quantizer(observer="min_max")
        for x in ([1.0, float("inf"), 2.0], [-3.0, float("nan"), 0.5], [float("nan")]):
            q.observe(torch.tensor(x))
        self.assertEqual((q.range.tolist(), int(q.steps)), ([-3.0, 2.0], 2))

    def test_moving_average_begins_as_a_mean(self):
        q = self.quantizer(observer="moving_average", averaging_constant=0.25)
        highs = [1.0, 2.0, 6.0, 1.0, 9.0, 4.0]
        for high in highs:
            q.observe(torch.tensor([-high / 2, high]))
        mean = 0.0
        for t, high in enumerate(highs, 1):
            mean += max(0.25, 1 / t) * (high - mean)
        self.assert_near(q.range, torch.tensor([-mean / 2, mean]), 1e-6)

    def test_follows_in_training_alone(self):
        q = self.quantizer(observer="min_max")
        self.assert_refused("fc.input_quantizer: no range yet", q.eval(), torch.ones(3))
        x = torch.tensor([[-1.0, 3.0]])
        self.assert_near(q.train()(x), x, 1e-2)
        self.assertAlmostEqual(float(q.eval()(torch.tensor([[9.0]]))), 3.0, delta=1e-2)
        q.observing = False
        q.train()(10 * x)
        self.assertEqual(q.range.tolist(), [-1.0, 3.0])
        q.quantizing = False
        self.assertEqual(float(q(torch.tensor([[9.0]]))), 9.0)

    def test_a_range_that_is_none_is_not_loaded(self):
        q = self.quantizer(observer="min_max")
        q(torch.tensor([-1.0, 2.0]))
        for ends in ([2.0, -1.0], [float("nan"), 1.0], [0.0, float("inf")]):
            state = dict(q.state_dict(), range=torch.tensor(ends))
            with self.assertRaisesRegex(RuntimeError, "range: expected a lowest and a highest value"):
                q.load_state_dict(state)

    def test_fixed(self):
        q = self.quantizer(observer="fixed", limit=2.0).eval()
        self.assertEqual(q(torch.tensor([[-1.0, 5.0]])).tolist(), [[0.0, 2.0]])

    def test_learned_scales_stay_positive_and_smooth(self):
        weight = values(dtype=torch.float32)
        q = WeightQuantizer(Scheme(4, True, "channel", method="lsq"), "fc.weight_quantizer", weight)
        first = q.first_scale.clone()
        self.assert_near(first, weight.abs().amax(1) / 7, 1e-6)
        for latent in (-5.0, 0.0, 0.5, 1.0, 3.0):
            with torch.no_grad():
                q.learned_scale.copy_(latent * first)
            scale, _ = q._learned(torch.float32)
            expected = latent if latent >= 1 else torch.exp(torch.tensor(latent - 1.0))
            self.assert_near(scale, first * expected, 1e-6)
            gradient, = torch.autograd.grad(scale.sum(), q.learned_scale)
            self.assert_near(gradient, torch.ones_like(first) * min(1.0, float(expected)), 1e-6)

    def test_an_offset_moves_the_zero_point(self):
        q = self.quantizer(observer="min_max", num_bits=4, method="lsq_plus")
        q.observe(torch.tensor([-1.0, 2.0]))
        q.learn_from_range()
        self.assert_near(q.learned_scale, torch.tensor([0.2]), 1e-6)
        self.assert_near(q.learned_offset, torch.tensor([-1.0]), 1e-6)
        with torch.no_grad():
            q.learned_offset.fill_(-0.4)
        y = q(torch.tensor([[-2.0, 0.41, 9.0]]))
        self.assert_near(y, torch.tensor([[-0.4, 0.4, 2.6]]), 1e-5)
        y.sum().backward()
        # docs/numerics.md: d beta = g * the sum of dy over clipped values; of one sample with three values
        self.assert_near(q.learned_offset.grad, torch.tensor([2.0 * (3 * 15) ** -0.5]), 1e-5)
        # and d s = g * (q - qmin) of clipped ones, though the zero point, 2.15, is rounded
        q.zero_grad()
        with torch.no_grad():
            q.learned_offset.fill_(-0.43)
        q(torch.tensor([[-2.0, 0.41, 9.0]])).sum().backward()
        inside = 4 - 2 - 0.41 / 0.2
        self.assert_near(q.learned_scale.grad, torch.tensor([(0 + 15 + inside) * (3 * 15) ** -0.5]), 1e-5)


if __name__ == "__main__":
    unittest.main()
