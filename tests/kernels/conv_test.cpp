#include "steelyard/kernels/conv/conv.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <thread>
#include <tuple>
#include <type_traits>

#include "tests/kernels/float_support.h"

namespace steelyard::kernels {
namespace {

using test::random_values;
using test::ReferenceSum;

struct Case {
  const char* name;
  Conv2dShape shape;
};

Conv2dShape image(std::int64_t batch, std::int64_t h, std::int64_t w, std::int64_t in,
                  std::int64_t out) {
  Conv2dShape s;
  s.batch = batch;
  s.in_h = h;
  s.in_w = w;
  s.in_channels = in;
  s.out_channels = out;
  return s;
}

Conv2dShape with(Conv2dShape s, std::int64_t kernel, std::int64_t stride, std::int64_t pad,
                 std::int64_t dilation = 1, std::int64_t groups = 1) {
  s.kernel_h = s.kernel_w = kernel;
  s.stride_h = s.stride_w = stride;
  s.pad_h = s.pad_w = pad;
  s.dilation_h = s.dilation_w = dilation;
  s.groups = groups;
  return s;
}

Conv2dShape asymmetric() {
  Conv2dShape s = image(2, 9, 12, 5, 6);
  s.kernel_h = 3;
  s.kernel_w = 5;
  s.stride_h = 2;
  s.pad_w = 2;
  s.dilation_h = 2;
  return s;
}

std::vector<Case> cases() {
  return {{"k3_pad1", with(image(3, 8, 8, 16, 16), 3, 1, 1)},
          {"first_layer_gray", with(image(4, 14, 14, 1, 32), 3, 1, 1)},
          {"first_layer_rgb", with(image(4, 12, 12, 3, 16), 3, 1, 1)},
          {"first_layer_of_many_outputs", with(image(2, 9, 8, 3, 64), 3, 1, 1)},
          {"one_pixel_output", with(image(2, 3, 3, 4, 8), 3, 1, 0)},
          {"k1", with(image(2, 5, 7, 8, 12), 1, 1, 0)},
          {"k1_stride2", with(image(3, 8, 8, 16, 32), 1, 2, 0)},
          {"k1_stride2_few_channels", with(image(7, 10, 12, 4, 8), 1, 2, 0)},
          {"k3_stride2", with(image(2, 9, 9, 8, 16), 3, 2, 1)},
          {"unread_border", with(image(2, 8, 8, 4, 4), 3, 3, 0)},
          {"k5_pad2", with(image(1, 10, 6, 6, 7), 5, 1, 2)},
          {"odd_channels", with(image(3, 7, 6, 5, 13), 3, 1, 1)},
          {"dilation2", with(image(2, 11, 11, 4, 6), 3, 1, 2, 2)},
          {"groups2", with(image(2, 8, 8, 6, 8), 3, 1, 1, 1, 2)},
          {"groups4_stride2", with(image(3, 8, 8, 32, 64), 3, 2, 1, 1, 4)},
          {"depthwise", with(image(3, 9, 8, 24, 24), 3, 1, 1, 1, 24)},
          {"depthwise_stride2", with(image(2, 9, 9, 7, 7), 3, 2, 1, 1, 7)},
          {"depthwise_multiplier", with(image(2, 6, 6, 4, 8), 3, 1, 1, 1, 4)},
          {"asymmetric", asymmetric()},
          {"several_bands", with(image(1, 40, 40, 48, 5), 3, 1, 1)}};
}

// The definition: calls visit(x index, weight index, y index) for every product.
template <class Visit>
void for_each_product(const Conv2dShape& s, Visit&& visit) {
  const std::int64_t cg = s.in_channels / s.groups, og = s.out_channels / s.groups;
  for (std::int64_t n = 0; n < s.batch; ++n)
    for (std::int64_t oh = 0; oh < s.out_h(); ++oh)
      for (std::int64_t ow = 0; ow < s.out_w(); ++ow)
        for (std::int64_t o = 0; o < s.out_channels; ++o)
          for (std::int64_t c = 0; c < cg; ++c)
            for (std::int64_t kh = 0; kh < s.kernel_h; ++kh)
              for (std::int64_t kw = 0; kw < s.kernel_w; ++kw) {
                const std::int64_t ih = oh * s.stride_h + kh * s.dilation_h - s.pad_h;
                const std::int64_t iw = ow * s.stride_w + kw * s.dilation_w - s.pad_w;
                if (ih < 0 || ih >= s.in_h || iw < 0 || iw >= s.in_w) continue;
                visit(((n * s.in_h + ih) * s.in_w + iw) * s.in_channels + o / og * cg + c,
                      ((o * cg + c) * s.kernel_h + kh) * s.kernel_w + kw,
                      ((n * s.out_h() + oh) * s.out_w() + ow) * s.out_channels + o);
              }
}

class Conv : public ::testing::TestWithParam<std::tuple<CpuProducts, Case>> {
 protected:
  CpuProducts products() const { return std::get<0>(GetParam()); }
  // An operand as the convolution takes it: depthwise ones do not round.
  template <typename T>
  double operand(T value) const {
    return shape().is_depthwise() ? double(value) : test::operand(products(), value);
  }
  Conv2dShape shape() const { return std::get<1>(GetParam()).shape; }

  static std::vector<BFloat16> rounded(const std::vector<float>& values) {
    std::vector<BFloat16> all(values.size());
    std::transform(values.begin(), values.end(), all.begin(),
                   [](float value) { return narrow<BFloat16>(value); });
    return all;
  }

  template <typename T>
  void check_forward(bool has_bias) const {
    const Conv2dShape s = shape();
    const auto x = random_values<T>(s.input_size(), 1), w = random_values<T>(s.weight_size(), 2);
    const auto bias = random_values<T>(s.out_channels, 3);
    std::vector<T> y(s.output_size(), T(99));
    run(Conv2d<T>{s, x.data(), w.data(), has_bias ? bias.data() : nullptr, y.data(), products()});
    std::vector<ReferenceSum> expected(y.size());
    for (std::size_t i = 0; has_bias && i < y.size(); ++i) {
      expected[i].add(double(bias[i % s.out_channels]));
    }
    for_each_product(
        s, [&](auto xi, auto wi, auto yi) { expected[yi].add(operand(x[xi]) * operand(w[wi])); });
    test::expect_sums(y, expected);
  }

  template <typename T>
  void check_backward_input() const {
    const Conv2dShape s = shape();
    const auto g = random_values<T>(s.output_size(), 4), w = random_values<T>(s.weight_size(), 5);
    std::vector<T> grad_x(s.input_size(), T(99));
    run(Conv2dBackwardInput<T>{s, g.data(), w.data(), grad_x.data(), products()});
    std::vector<ReferenceSum> expected(grad_x.size());
    for_each_product(
        s, [&](auto xi, auto wi, auto yi) { expected[xi].add(operand(g[yi]) * operand(w[wi])); });
    test::expect_sums(grad_x, expected);
    if constexpr (std::is_same_v<T, float>) {
      if (!reads_bf16_gradients(s, products())) return;
      std::vector<float> from_bf16(grad_x.size(), 99);
      run(Conv2dBackwardInput<float, BFloat16>{s, rounded(g).data(), w.data(), from_bf16.data(),
                                               products()});
      EXPECT_EQ(from_bf16, grad_x);
    }
  }

  template <typename T>
  void check_backward_weight() const {
    const Conv2dShape s = shape();
    const auto x = random_values<T>(s.input_size(), 6), g = random_values<T>(s.output_size(), 7);
    std::vector<T> grad_w(s.weight_size(), T(99));
    run(Conv2dBackwardWeight<T>{s, x.data(), g.data(), grad_w.data(), products()});
    std::vector<ReferenceSum> expected(grad_w.size());
    for_each_product(
        s, [&](auto xi, auto wi, auto yi) { expected[wi].add(operand(x[xi]) * operand(g[yi])); });
    test::expect_sums(grad_w, expected);
  }

  // Checks the weight gradient of codes, whose values need no rounding; the mask lets two of three
  // weights pass.
  template <typename Code>
  void check_backward_weight_of_codes() const {
    const Conv2dShape s = shape();
    constexpr float kScale = 0.03F;
    constexpr std::int32_t kZeroPoint = 17;
    const auto values = random_values<float>(s.input_size(), 6);
    std::vector<Code> x(values.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = static_cast<Code>(std::floor(128 * values[i]) + (std::is_signed_v<Code> ? 0 : 128));
    }
    const auto g = random_values<float>(s.output_size(), 7);
    std::vector<std::uint8_t> mask(s.weight_size() / 8 + 1, 0);
    for (std::int64_t i = 0; i < s.weight_size(); ++i) {
      if (i % 3 != 0) mask[i / 8] = static_cast<std::uint8_t>(mask[i / 8] | 1 << i % 8);
    }
    for (const std::uint8_t* const passing : {static_cast<const std::uint8_t*>(nullptr),
                                              static_cast<const std::uint8_t*>(mask.data())}) {
      std::vector<float> grad_w(s.weight_size(), 99);
      run(CodesBackwardWeight<Code>{s, x.data(), &kScale, &kZeroPoint, g.data(), passing,
                                    grad_w.data(), products()});
      std::vector<ReferenceSum> expected(grad_w.size());
      for_each_product(s, [&](auto xi, auto wi, auto yi) {
        if (passing != nullptr && wi % 3 == 0) return;
        expected[wi].add(double(kScale) * (x[xi] - kZeroPoint) * operand(g[yi]));
      });
      test::expect_sums(grad_w, expected);
      if (products().precision != MatmulPrecision::kBf16 || s.is_depthwise()) continue;
      std::vector<float> from_bf16(grad_w.size(), 99);
      run(CodesBackwardWeight<Code, BFloat16>{s, x.data(), &kScale, &kZeroPoint, rounded(g).data(),
                                              passing, from_bf16.data(), products()});
      EXPECT_EQ(from_bf16, grad_w);
    }
  }
};

TEST_P(Conv, ForwardFloat) {
  check_forward<float>(false);
  check_forward<float>(true);
}
TEST_P(Conv, ForwardDouble) {
  check_forward<double>(false);
  check_forward<double>(true);
}
TEST_P(Conv, BackwardInputFloat) { check_backward_input<float>(); }
TEST_P(Conv, BackwardInputDouble) { check_backward_input<double>(); }
TEST_P(Conv, BackwardWeightFloat) { check_backward_weight<float>(); }
TEST_P(Conv, BackwardWeightDouble) { check_backward_weight<double>(); }
TEST_P(Conv, BackwardWeightOfUnsignedCodes) { check_backward_weight_of_codes<std::uint8_t>(); }
TEST_P(Conv, BackwardWeightOfSignedCodes) { check_backward_weight_of_codes<std::int8_t>(); }

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// <conv(x, w), g> = <x, backward_input(g, w)> = <w, backward_weight(x, g)>.
TEST_P(Conv, BackwardIsAdjoint) {
  const Conv2dShape s = shape();
  const auto x = random_values<double>(s.input_size(), 8);
  const auto w = random_values<double>(s.weight_size(), 9);
  const auto g = random_values<double>(s.output_size(), 10);
  std::vector<double> y(s.output_size()), grad_x(s.input_size()), grad_w(s.weight_size());
  run(Conv2d<double>{s, x.data(), w.data(), nullptr, y.data(), products()});
  run(Conv2dBackwardInput<double>{s, g.data(), w.data(), grad_x.data(), products()});
  run(Conv2dBackwardWeight<double>{s, x.data(), g.data(), grad_w.data(), products()});
  EXPECT_NEAR(dot(x, grad_x), dot(y, g), 1e-10);
  EXPECT_NEAR(dot(w, grad_w), dot(y, g), 1e-10);
}

TEST_P(Conv, AgreesForAnyThreadCount) {
  for (const int threads : {1, 3, 2}) {
    const test::ThreadCount guard(threads);
    check_forward<float>(true);
    check_backward_input<float>();
    check_backward_weight<float>();
    check_backward_weight_of_codes<std::uint8_t>();
  }
}

TEST_P(Conv, RepeatsToTheSameBits) {
  const Conv2dShape s = shape();
  const auto x = random_values<float>(s.input_size(), 1),
             g = random_values<float>(s.output_size(), 2);
  std::vector<float> first(s.weight_size()), second(s.weight_size());
  for (std::vector<float>* grad_w : {&first, &second}) {
    run(Conv2dBackwardWeight<float>{s, x.data(), g.data(), grad_w->data(), products()});
  }
  EXPECT_EQ(first, second);
}

INSTANTIATE_TEST_SUITE_P(All, Conv,
                         ::testing::Combine(::testing::ValuesIn(test::all_products()),
                                            ::testing::ValuesIn(cases())),
                         [](const auto& param_info) {
                           return test::products_name(std::get<0>(param_info.param)) + "_" +
                                  std::get<1>(param_info.param).name;
                         });

class ConvBackend : public ::testing::TestWithParam<CpuProducts> {};

TEST_P(ConvBackend, EmptyBatchGivesZeroWeightGradients) {
  const Conv2dShape s = with(image(0, 8, 8, 3, 4), 3, 1, 1);
  std::vector<float> w(s.weight_size(), 1), grad_w(s.weight_size(), 99);
  run(Conv2d<float>{s, nullptr, w.data(), nullptr, nullptr, GetParam()});
  run(Conv2dBackwardInput<float>{s, nullptr, w.data(), nullptr, GetParam()});
  run(Conv2dBackwardWeight<float>{s, nullptr, nullptr, grad_w.data(), GetParam()});
  EXPECT_EQ(grad_w, std::vector<float>(s.weight_size(), 0.0F));
}

// So large that threads share the weights instead of the pixels.
TEST_P(ConvBackend, SumsOfLargeWeightsAreOfEveryPixel) {
  const test::ThreadCount three(3);
  const Conv2dShape s = image(1, 1, 3, 1500, 1600);
  const auto x = random_values<float>(s.input_size(), 1),
             g = random_values<float>(s.output_size(), 2);
  std::vector<float> grad_w(s.weight_size(), 99);
  run(Conv2dBackwardWeight<float>{s, x.data(), g.data(), grad_w.data(), GetParam()});
  std::vector<ReferenceSum> expected(grad_w.size());
  for_each_product(s, [&](auto xi, auto wi, auto yi) {
    expected[wi].add(test::operand(GetParam(), x[xi]) * test::operand(GetParam(), g[yi]));
  });
  test::expect_sums(grad_w, expected);
}

// Kernels, gaps between their elements, groups and numbers of channels as they may come together.
Conv2dShape random_shape(std::mt19937& random) {
  const auto between = [&](int low, int high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  Conv2dShape s;
  s.groups = between(0, 3) == 0 ? 2 : 1;
  s.in_channels = s.groups * between(1, 6);
  s.out_channels = s.groups * between(1, 40);
  s.kernel_h = between(1, 3);
  s.kernel_w = between(1, 5);
  s.dilation_h = between(1, 2);
  s.dilation_w = between(1, 4);
  s.stride_h = between(1, 2);
  s.stride_w = between(1, 3);
  s.pad_h = between(0, 1);
  s.pad_w = between(0, 2);
  s.batch = between(1, 2);
  s.in_h = (s.kernel_h - 1) * s.dilation_h + between(1, 3);
  s.in_w = (s.kernel_w - 1) * s.dilation_w + between(1, 6);
  return s;
}

TEST_P(ConvBackend, WeightGradientsOfManyShapes) {
  std::mt19937 random(3);
  for (int round = 0; round < 400; ++round) {
    const Conv2dShape s = random_shape(random);
    SCOPED_TRACE(::testing::Message()
                 << "channels " << s.in_channels << " to " << s.out_channels << ", groups "
                 << s.groups << ", kernel " << s.kernel_h << " x " << s.kernel_w << ", dilation "
                 << s.dilation_h << " x " << s.dilation_w << ", stride " << s.stride_h << " x "
                 << s.stride_w << ", image " << s.in_h << " x " << s.in_w);
    const auto x = random_values<float>(s.input_size(), 6),
               g = random_values<float>(s.output_size(), 7);
    std::vector<std::uint8_t> codes(x.size());
    std::transform(x.begin(), x.end(), codes.begin(),
                   [](float value) { return static_cast<std::uint8_t>(128 + 127 * value); });
    constexpr float kScale = 1.0F / 127;
    constexpr std::int32_t kZeroPoint = 128;
    std::vector<float> of_floats(s.weight_size()), of_codes(s.weight_size());
    run(Conv2dBackwardWeight<float>{s, x.data(), g.data(), of_floats.data(), GetParam()});
    run(CodesBackwardWeight<std::uint8_t>{s, codes.data(), &kScale, &kZeroPoint, g.data(), nullptr,
                                          of_codes.data(), GetParam()});
    std::vector<ReferenceSum> floats(of_floats.size()), scaled(of_floats.size());
    const auto operand = [&](float value) {
      return s.is_depthwise() ? double(value) : test::operand(GetParam(), value);
    };
    for_each_product(s, [&](auto xi, auto wi, auto yi) {
      floats[wi].add(operand(x[xi]) * operand(g[yi]));
      scaled[wi].add(double(kScale) * (codes[xi] - kZeroPoint) * operand(g[yi]));
    });
    test::expect_sums(of_floats, floats);
    test::expect_sums(of_codes, scaled);
    if (HasFailure()) return;
  }
}

TEST_P(ConvBackend, RunsOnSeveralThreadsAtOnce) {
  const Conv2dShape s = with(image(4, 12, 12, 8, 16), 3, 1, 1);
  const auto x = random_values<float>(s.input_size(), 1),
             w = random_values<float>(s.weight_size(), 2);
  std::vector<std::vector<float>> results(4, std::vector<float>(s.output_size()));
  std::vector<std::thread> threads;
  for (auto& y : results) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        run(Conv2d<float>{s, x.data(), w.data(), nullptr, y.data(), GetParam()});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& y : results) EXPECT_EQ(y, results.front());
}

INSTANTIATE_TEST_SUITE_P(All, ConvBackend, ::testing::ValuesIn(test::all_products()),
                         [](const auto& param_info) {
                           return test::products_name(param_info.param);
                         });

}  // namespace
}  // namespace steelyard::kernels
