// Products of convolutions on tensor cores: those of codes equal the CPU's bits, requantized ones
// too; those of bfloat16 the CPU's sums of doubles of the rounded operands.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "steelyard/kernels/conv/conv.h"
#include "steelyard/kernels/fake_quantize/fake_quantize.h"
#include "steelyard/kernels/integer_product/integer_product.h"
#include "tests/kernels/twin.h"

namespace steelyard::kernels {
namespace {

using test::for_each_order;
using test::on_both;
using test::on_gpu;
using test::OnDevice;
using test::random_codes;
using test::Twin;

std::vector<float> normals(std::int64_t n, float spread, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float& value : values) value = normal(random);
  return values;
}

// Pixels of 16 and of 8 bytes and of neither, several tiles and parts of one, strides with and
// without windows for every remainder, dilations that share a factor with the stride, one pixel.
//                           N  H   W   C   O  kh kw sh sw ph pw dh dw g
const Conv2dShape kConvolutions[] = {
    {2, 9, 8, 16, 24, 3, 3, 1, 1, 1, 1, 1, 1, 1},   {1, 13, 11, 24, 8, 3, 3, 2, 2, 1, 1, 1, 1, 1},
    {2, 7, 10, 3, 16, 5, 3, 2, 1, 2, 0, 1, 1, 1},   {1, 6, 7, 8, 136, 1, 1, 2, 2, 0, 0, 1, 1, 1},
    {1, 16, 15, 72, 72, 3, 3, 1, 1, 1, 1, 1, 1, 1}, {3, 8, 8, 16, 16, 4, 4, 4, 4, 0, 0, 1, 1, 1},
    {1, 12, 9, 8, 8, 3, 2, 2, 3, 2, 1, 2, 3, 1},    {35, 1, 1, 40, 16, 1, 1, 1, 1, 0, 0, 1, 1, 1},
    {1, 9, 9, 144, 8, 3, 3, 2, 1, 1, 1, 1, 1, 1},   {1, 20, 21, 3, 72, 7, 7, 2, 2, 3, 3, 1, 1, 1},
    {35, 1, 1, 10, 16, 1, 1, 1, 1, 0, 0, 1, 1, 1},  {2, 11, 40, 1, 8, 2, 5, 1, 1, 0, 4, 3, 1, 1},
    {2, 9, 17, 3, 8, 3, 3, 1, 2, 1, 2, 1, 2, 1},    {1, 5, 26, 4, 24, 3, 5, 2, 3, 1, 1, 1, 1, 1},
    {1, 6, 19, 12, 16, 3, 3, 1, 4, 0, 1, 1, 1, 1}};

// What a product reads instead of weights [O, channels, taps].
struct Ordered {
  std::vector<std::int8_t> codes;
  std::vector<std::int32_t> sums;
};
Ordered ordered(const Conv2dShape& s, const std::vector<std::int8_t>& weights) {
  const auto channels = static_cast<std::size_t>(s.in_channels),
             taps = static_cast<std::size_t>(s.kernel_h * s.kernel_w), row = channels * taps;
  Ordered of{weights, std::vector<std::int32_t>(static_cast<std::size_t>(s.out_channels), 0)};
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const std::size_t output = i / row, tap = i % row % taps, channel = i % row / taps;
    of.codes[output * row + tap * channels + channel] = weights[i];
    of.sums[output] += weights[i];
  }
  return of;
}

template <typename Code, typename Out>
void check_requantized(const Conv2dShape& s, std::int32_t z, Activation activation) {
  Twin<Code> x(random_codes<Code>(s.input_size(), std::numeric_limits<Code>::min(),
                                  std::numeric_limits<Code>::max(), 1));
  Twin<std::int8_t> w(random_codes<std::int8_t>(s.weight_size(), -127, 127, 2));
  const Ordered of_weights = ordered(s, w.values());
  Twin<std::int8_t> ordered_codes(of_weights.codes);
  Twin<std::int32_t> sums(of_weights.sums);
  Twin<std::int32_t> zero(std::vector<std::int32_t>{z});
  Twin<std::int32_t> acc(s.output_size());
  Twin<std::int32_t> bias(random_codes<std::int32_t>(s.out_channels, -9000, 9000, 3));
  Twin<float> product_scale(normals(s.out_channels, 1e-4F, 4));
  Twin<float> scale(std::vector<float>{0.02F});
  Twin<std::int32_t> out_zero(std::vector<std::int32_t>{std::is_signed_v<Out> ? -3 : 11});
  const CodeRange range = whole_range(std::is_signed_v<Out> ? CodeType::kS8 : CodeType::kU8);
  for (const bool in_order : {false, true}) {
    SCOPED_TRACE(in_order ? "weights in the order of reading" : "weights as they are");
    Twin<Out> codes(s.output_size());
    Twin<std::uint8_t> mask(mask_bytes(s.output_size()));
    on_both([&](auto at, auto&... queue) {
      IntegerConv2d<Code> product{s, at(x), at(zero), at(w), at(acc)};
      if (in_order) product.ordered = {at(ordered_codes), at(sums)};
      run(queue..., RequantizedProduct<IntegerConv2d<Code>, Out>{
                        product,
                        {{s.output_size() / s.out_channels, s.out_channels, activation},
                         at(acc),
                         at(bias),
                         at(product_scale),
                         at(scale),
                         at(out_zero),
                         range,
                         at(codes),
                         at(mask)}});
    });
    EXPECT_EQ(codes.differences(), 0);
    EXPECT_EQ(mask.differences(), 0);
  }
}

TEST(TensorCoreProducts, OfCodesAreRequantizedAsOnTheCpu) {
  for (const Conv2dShape& s : kConvolutions) {
    SCOPED_TRACE(::testing::Message() << s.in_channels << " to " << s.out_channels << " channels");
    check_requantized<std::uint8_t, std::int8_t>(s, 101, Activation::kNone);
    check_requantized<std::int8_t, std::uint8_t>(s, -128, Activation::kRelu);
  }
}

TEST(TensorCoreProducts, DoNotDependOnTheOrderOfThreads) {
  for_each_order([] {
    check_requantized<std::uint8_t, std::uint8_t>(kConvolutions[1], 255, Activation::kRelu6);
  });
}

std::vector<double> rounded(const std::vector<float>& values) {
  std::vector<double> all(values.size());
  std::transform(values.begin(), values.end(), all.begin(),
                 [](float value) { return double{widen(narrow<BFloat16>(value))}; });
  return all;
}

// |got - want| / |want|, of vectors.
double distance(const std::vector<float>& got, const std::vector<double>& want) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    difference += (double{got[i]} - want[i]) * (double{got[i]} - want[i]);
    norm += want[i] * want[i];
  }
  return std::sqrt(difference / std::max(norm, 1e-30));
}
constexpr double kOfFloatSums = 2e-6;

class Bf16Convolution {
 public:
  explicit Bf16Convolution(const Conv2dShape& s)
      : s_(s),
        x_(normals(s.input_size(), 1, 1)),
        w_(normals(s.weight_size(), 1, 2)),
        grad_y_(normals(s.output_size(), 1, 3)) {}

  void check() const {
    std::vector<double> y(s_.output_size()), grad_x(s_.input_size()), grad_w(s_.weight_size());
    const auto x = rounded(x_), w = rounded(w_), grad_y = rounded(grad_y_);
    run(Conv2d<double>{s_, x.data(), w.data(), nullptr, y.data()});
    run(Conv2dBackwardInput<double>{s_, grad_y.data(), w.data(), grad_x.data()});
    run(Conv2dBackwardWeight<double>{s_, x.data(), grad_y.data(), grad_w.data()});
    const OnDevice on_x = OnDevice::of(x_), on_w = OnDevice::of(w_),
                   on_grad_y = OnDevice::of(grad_y_);
    const OnDevice of_y = floats(s_.output_size()), of_x = floats(s_.input_size()),
                   of_w = floats(s_.weight_size());
    on_gpu([&](const CudaQueue& given) {
      CudaQueue queue = given;
      queue.precision = MatmulPrecision::kBf16;
      run(queue,
          Conv2d<float>{s_, on_x.get<float>(), on_w.get<float>(), nullptr, of_y.get<float>()});
      run(queue, Conv2dBackwardInput<float>{s_, on_grad_y.get<float>(), on_w.get<float>(),
                                            of_x.get<float>()});
      run(queue, Conv2dBackwardWeight<float>{s_, on_x.get<float>(), on_grad_y.get<float>(),
                                             of_w.get<float>()});
    });
    // Where shapes have no kernel of tensor cores, the emulated cuBLAS does not round.
    const bool is_pointwise = s_.is_matrix_product();
    const bool all_round = s_.in_channels % 8 == 0 && !is_pointwise;
    EXPECT_LT(distance(of_y.host<float>(), y), all_round ? kOfFloatSums : 1e-2);
    EXPECT_LT(distance(of_x.host<float>(), grad_x), is_pointwise ? 1e-2 : kOfFloatSums);
    EXPECT_LT(distance(of_w.host<float>(), grad_w), all_round ? kOfFloatSums : 1e-2);
  }

  static OnDevice floats(std::int64_t n) {
    return OnDevice::of(std::vector<float>(static_cast<std::size_t>(n), 99.0F));
  }

 private:
  const Conv2dShape& s_;
  std::vector<float> x_, w_, grad_y_;
};

TEST(TensorCoreProducts, OfRoundedFloatsAndTheirGradients) {
  for (const Conv2dShape& s : kConvolutions) {
    SCOPED_TRACE(::testing::Message() << s.in_channels << " to " << s.out_channels << " channels");
    Bf16Convolution(s).check();
  }
}

// Checks gradients of products of codes, given gradients in bf16 or float.
template <typename Code>
void check_code_gradients(const Conv2dShape& s, bool with_mask) {
  const std::vector<Code> x = random_codes<Code>(s.input_size(), 0, 100, 1);
  const auto w = random_codes<std::int8_t>(s.weight_size(), -127, 127, 2);
  const auto w_scales = normals(s.out_channels, 0.01F, 3);
  const auto grads = normals(s.output_size(), 1, 4);
  const auto passes = random_codes<std::uint8_t>(mask_bytes(s.weight_size()), 0, 255, 5);
  constexpr float kScale = 0.03125F;
  constexpr std::int32_t kZero = 17;

  const std::vector<double> grad_y = rounded(grads);
  std::vector<BFloat16> narrow_grads(grads.size());
  std::transform(grads.begin(), grads.end(), narrow_grads.begin(),
                 [](float value) { return narrow<BFloat16>(value); });
  std::vector<double> real_x(x.size()), grad_x(x.size()), grad_w(w.size());
  for (std::size_t i = 0; i < x.size(); ++i) real_x[i] = double{kScale} * (x[i] - kZero);
  std::vector<float> real_w(w.size());
  const std::size_t of_output = w.size() / w_scales.size();
  for (std::size_t i = 0; i < w.size(); ++i) real_w[i] = w_scales[i / of_output] * float(w[i]);
  run(Conv2dBackwardInput<double>{s, grad_y.data(), rounded(real_w).data(), grad_x.data()});
  run(Conv2dBackwardWeight<double>{s, real_x.data(), grad_y.data(), grad_w.data()});
  for (std::size_t i = 0; with_mask && i < grad_w.size(); ++i) {
    if ((passes[i / 8] >> i % 8 & 1) == 0) grad_w[i] = 0;
  }

  const OnDevice on_x = OnDevice::of(x), on_w = OnDevice::of(w), on_scales = OnDevice::of(w_scales);
  const OnDevice on_grads = OnDevice::of(grads), on_narrow = OnDevice::of(narrow_grads);
  const OnDevice on_mask = OnDevice::of(passes), scale = OnDevice::of(std::vector<float>{kScale});
  const OnDevice zero = OnDevice::of(std::vector<std::int32_t>{kZero});
  const auto check = [&](const auto* gradient) {
    using Gradient = std::remove_cvref_t<decltype(*gradient)>;
    const OnDevice of_x = Bf16Convolution::floats(s.input_size()),
                   of_w = Bf16Convolution::floats(s.weight_size());
    on_gpu([&](const CudaQueue& given) {
      CudaQueue queue = given;
      queue.precision = MatmulPrecision::kBf16;
      run(queue, CodesBackwardInput<Gradient>{.shape = s,
                                              .grad_y = gradient,
                                              .w = on_w.get<std::int8_t>(),
                                              .scales = s.out_channels,
                                              .scale = on_scales.get<float>(),
                                              .grad_x = of_x.get<float>()});
      run(queue, CodesBackwardWeight<Code, Gradient>{
                     .shape = s,
                     .x = on_x.get<Code>(),
                     .scale = scale.get<float>(),
                     .zero_point = zero.get<std::int32_t>(),
                     .grad_y = gradient,
                     .mask = with_mask ? on_mask.get<std::uint8_t>() : nullptr,
                     .grad_w = of_w.get<float>()});
    });
    EXPECT_LT(distance(of_x.host<float>(), grad_x), kOfFloatSums);
    EXPECT_LT(distance(of_w.host<float>(), grad_w), kOfFloatSums);
  };
  check(static_cast<const float*>(on_grads.get<float>()));
  check(static_cast<const BFloat16*>(on_narrow.get<BFloat16>()));
}

TEST(TensorCoreProducts, GradientsFromCodes) {
  for (const Conv2dShape& s : kConvolutions) {
    SCOPED_TRACE(::testing::Message() << s.in_channels << " to " << s.out_channels << " channels");
    check_code_gradients<std::uint8_t>(s, true);
    check_code_gradients<std::int8_t>(s, false);
  }
}

// Whatever stride, padding and dilation have in common.
TEST(TensorCoreProducts, OfRandomShapes) {
  std::mt19937 random(7);
  const auto any = [&](int low, int high) {
    return std::int64_t{std::uniform_int_distribution<int>(low, high)(random)};
  };
  for (int i = 0; i < 40; ++i) {
    Conv2dShape s{.batch = any(1, 3), .in_h = any(1, 12), .in_w = any(1, 12)};
    s.in_channels = any(0, 1) == 0 ? any(1, 20) : 8 * any(1, 4);
    s.out_channels = 8 * any(1, 9);
    s.kernel_h = any(1, 5);
    s.kernel_w = any(1, 5);
    s.stride_h = any(1, 4);
    s.stride_w = any(1, 4);
    s.pad_h = any(0, 4);
    s.pad_w = any(0, 4);
    s.dilation_h = any(1, 3);
    s.dilation_w = any(1, 3);
    if (s.in_h + 2 * s.pad_h <= s.dilation_h * (s.kernel_h - 1)) continue;  // no output
    if (s.in_w + 2 * s.pad_w <= s.dilation_w * (s.kernel_w - 1)) continue;
    SCOPED_TRACE(::testing::Message()
                 << s.batch << " x " << s.in_h << " x " << s.in_w << " x " << s.in_channels
                 << " to " << s.out_channels << ", kernel " << s.kernel_h << " x " << s.kernel_w
                 << ", stride " << s.stride_h << ' ' << s.stride_w << ", pad " << s.pad_h << ' '
                 << s.pad_w << ", dilation " << s.dilation_h << ' ' << s.dilation_w);
    check_requantized<std::uint8_t, std::int8_t>(s, static_cast<std::int32_t>(any(0, 255)),
                                                 Activation::kRelu);
    check_code_gradients<std::int8_t>(s, i % 2 == 0);
  }
}

// What has no kernel of tensor cores takes gradients in bf16, too: groups, and outputs that are no
// multiple of 8.
TEST(TensorCoreProducts, RoundedGradientsOfOtherShapes) {
  const Conv2dShape others[] = {{2, 6, 5, 12, 20, 3, 3, 1, 1, 1, 1, 1, 1, 4},
                                {2, 6, 5, 8, 5, 3, 3, 1, 1, 1, 1, 1, 1, 1}};
  for (const Conv2dShape& s : others) {
    const auto x = random_codes<std::uint8_t>(s.input_size(), 0, 100, 1);
    const std::vector<BFloat16> grads(static_cast<std::size_t>(s.output_size()),
                                      narrow<BFloat16>(0.5F));
    const OnDevice on_x = OnDevice::of(x), on_grads = OnDevice::of(grads);
    const OnDevice scale = OnDevice::of(std::vector<float>{1});
    const OnDevice zero = OnDevice::of(std::vector<std::int32_t>{0});
    const OnDevice of_w = Bf16Convolution::floats(s.weight_size());
    on_gpu([&](const CudaQueue& given) {
      CudaQueue queue = given;
      queue.precision = MatmulPrecision::kBf16;
      run(queue, CodesBackwardWeight<std::uint8_t, BFloat16>{.shape = s,
                                                             .x = on_x.get<std::uint8_t>(),
                                                             .scale = scale.get<float>(),
                                                             .zero_point = zero.get<std::int32_t>(),
                                                             .grad_y = on_grads.get<BFloat16>(),
                                                             .mask = nullptr,
                                                             .grad_w = of_w.get<float>()});
    });
    const std::vector<double> real_x(x.begin(), x.end()),
        grad_y(static_cast<std::size_t>(s.output_size()), 0.5);
    std::vector<double> want(static_cast<std::size_t>(s.weight_size()));
    run(Conv2dBackwardWeight<double>{s, real_x.data(), grad_y.data(), want.data()});
    EXPECT_LT(distance(of_w.host<float>(), want), 1e-2);
  }
}

TEST(TensorCoreProducts, MaskedGradientsAreRoundedAndTheirSumsAreNot) {
  for (const auto& [rows, channels] : {std::pair<int, int>{301, 33}, {700, 8}, {45, 264}}) {
    SCOPED_TRACE(::testing::Message() << rows << " x " << channels);
    const std::int64_t n = std::int64_t{rows} * channels;
    const OnDevice mask = OnDevice::of(random_codes<std::uint8_t>(mask_bytes(n), 0, 255, 1));
    const OnDevice grad = OnDevice::of(normals(n, 1, 2));
    const OnDevice masked = Bf16Convolution::floats(n), sums = Bf16Convolution::floats(channels),
                   want_sums = Bf16Convolution::floats(channels);
    const OnDevice narrowed =
        OnDevice::of(std::vector<BFloat16>(static_cast<std::size_t>(n), BFloat16{0x4242}));
    on_gpu([&](const CudaQueue& queue) {
      run(queue, ApplyMaskAndSum<float>{rows, channels, mask.get<std::uint8_t>(), grad.get<float>(),
                                        masked.get<float>(), want_sums.get<float>()});
      run(queue, ApplyMaskAndSum<float, BFloat16>{rows, channels, mask.get<std::uint8_t>(),
                                                  grad.get<float>(), narrowed.get<BFloat16>(),
                                                  sums.get<float>()});
    });
    EXPECT_EQ(sums.host<float>(), want_sums.host<float>());
    const auto want = masked.host<float>();
    const auto got = narrowed.host<BFloat16>();
    for (std::size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(got[i].bits, narrow<BFloat16>(want[i]).bits) << i;
    }
  }
}

}  // namespace
}  // namespace steelyard::kernels
