// The cases that ONNX ships for QLinearConv, QLinearMatMul, ConvInteger and MatMulInteger: every
// integer must be equal.
#include <array>
#include <cstdint>

#include "steelyard/kernels/integer_product/integer_product.h"
#include "steelyard/kernels/requantize/requantize.h"
#include "tests/reference/onnx_cases.h"

namespace steelyard::kernels::onnx_cases {
namespace {

using Codes = std::vector<std::int32_t>;
using Sums = std::vector<std::int32_t>;

// The kernels take s8 weights with zero point 0. w - z_w needs up to nine bits, so it is the sum of
// as many s8 weights as it takes, and the product that of their exact products.
template <typename Product>
Sums summed_products(Codes weights, std::size_t outputs, const Product& product) {
  Sums total(outputs, 0);
  while (std::any_of(weights.begin(), weights.end(), [](std::int32_t w) { return w != 0; })) {
    std::vector<std::int8_t> part;
    for (std::int32_t& w : weights) {
      part.push_back(static_cast<std::int8_t>(std::clamp(w, -128, 127)));
      w -= part.back();
    }
    Sums sums(outputs);
    product(part.data(), sums.data());
    for (std::size_t i = 0; i < outputs; ++i) total[i] += sums[i];
  }
  return total;
}

// Calls f with codes of the tensor's own type.
template <typename F>
void with_codes(const onnx::TensorProto& tensor, const Codes& codes, const F& f) {
  if (code_type_of(tensor) == CodeType::kS8) {
    f(std::vector<std::int8_t>(codes.begin(), codes.end()));
  } else {
    f(std::vector<std::uint8_t>(codes.begin(), codes.end()));
  }
}

// [N, C, H, W] as [N, H, W, C].
Codes channels_last(const Codes& x, const std::vector<std::int64_t>& shape) {
  Codes turned(x.size());
  const std::int64_t pixels = shape[2] * shape[3];
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(x.size()); ++i) {
    const std::int64_t image = i / (shape[1] * pixels);
    const std::int64_t c = i / pixels % shape[1];
    turned[static_cast<std::size_t>((image * pixels + i % pixels) * shape[1] + c)] =
        x[static_cast<std::size_t>(i)];
  }
  return turned;
}

std::array<std::int64_t, 4> attribute(const onnx::NodeProto& node, const std::string& name,
                                      std::array<std::int64_t, 4> values) {
  for (const auto& one : node.attribute()) {
    if (one.name() == name) std::copy(one.ints().begin(), one.ints().end(), values.begin());
  }
  return values;
}

// Code minus zero point; `channel` gives the zero point's index of an element.
template <typename Channel>
Codes centred(const onnx::TensorProto& tensor, const Codes& zero_point, const Channel& channel) {
  Codes values = code_values(tensor);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] -= zero_point.size() > 1 ? zero_point[channel(i)] : zero_point[0];
  }
  return values;
}

// acc[N, OH, OW, O].
Sums conv_sums(const Case& one, const onnx::TensorProto& x, std::int32_t x_zero_point,
               const onnx::TensorProto& w, const Codes& w_zero_point) {
  const auto in = shape_of(x);
  const auto kernel = shape_of(w);
  const auto stride = attribute(one.node, "strides", {1, 1, 0, 0});
  const auto pad = attribute(one.node, "pads", {0, 0, 0, 0});
  EXPECT_TRUE(pad[0] == pad[2] && pad[1] == pad[3]);
  const Conv2dShape shape{.batch = in[0],
                          .in_h = in[2],
                          .in_w = in[3],
                          .in_channels = in[1],
                          .out_channels = kernel[0],
                          .kernel_h = kernel[2],
                          .kernel_w = kernel[3],
                          .stride_h = stride[0],
                          .stride_w = stride[1],
                          .pad_h = pad[0],
                          .pad_w = pad[1],
                          .groups = in[1] / kernel[1]};
  const std::size_t per_channel = static_cast<std::size_t>(size_of(w) / kernel[0]);
  const Codes weights = centred(w, w_zero_point, [&](std::size_t i) { return i / per_channel; });
  Sums total;
  with_codes(x, channels_last(code_values(x), in), [&](const auto& codes) {
    total =
        summed_products(weights, static_cast<std::size_t>(shape.output_size()),
                        [&](const std::int8_t* part, std::int32_t* sums) {
                          using Code = std::decay_t<decltype(codes[0])>;
                          run(IntegerConv2d<Code>{shape, codes.data(), &x_zero_point, part, sums});
                        });
  });
  return total;
}

// acc[..., M, N] of a[..., M, K] and b[..., K, N], which have the same leading dimensions.
Sums matmul_sums(const onnx::TensorProto& a, std::int32_t a_zero_point, const onnx::TensorProto& b,
                 const Codes& b_zero_point) {
  const auto of_a = shape_of(a);
  const auto of_b = shape_of(b);
  const std::int64_t m = of_a[of_a.size() - 2], k = of_a.back(), n = of_b.back();
  const Codes weights =
      centred(b, b_zero_point, [n](std::size_t i) { return i % static_cast<std::size_t>(n); });
  Sums all;
  with_codes(a, code_values(a), [&](const auto& codes) {
    for (std::int64_t matrix = 0; matrix < size_of(a) / (m * k); ++matrix) {
      Codes transposed;
      for (std::int64_t i = 0; i < n * k; ++i) {
        transposed.push_back(weights[static_cast<std::size_t>(matrix * k * n + i % k * n + i / k)]);
      }
      const auto sums =
          summed_products(transposed, static_cast<std::size_t>(m * n),
                          [&](const std::int8_t* part, std::int32_t* s) {
                            using Code = std::decay_t<decltype(codes[0])>;
                            run(IntegerMatmul<Code>{m, n, k, codes.data() + matrix * m * k,
                                                    &a_zero_point, part, s});
                          });
      all.insert(all.end(), sums.begin(), sums.end());
    }
  });
  return all;
}

// The inputs of QLinearConv and QLinearMatMul have one order: x, s_x, z_x, w, s_w, z_w, s_y, z_y.
Codes requantized(const Case& one, const Sums& sums, std::int64_t channels) {
  const auto& in = one.inputs;
  const float x_scale = raw<float>(in[1])[0];
  std::vector<float> product_scale = raw<float>(in[4]);
  product_scale.resize(static_cast<std::size_t>(channels), product_scale[0]);
  for (float& scale : product_scale) scale *= x_scale;
  const Codes bias = in.size() > 8 ? raw<std::int32_t>(in[8]) : Codes();
  const Requantize rule{.rows = static_cast<std::int64_t>(sums.size()) / channels,
                        .channels = channels};
  const float scale = raw<float>(in[6])[0];
  const std::int32_t zero_point = code_values(in[7])[0];
  Codes codes;
  with_codes(in[7], sums, [&](auto out) {
    const bool is_signed = code_type_of(in[7]) == CodeType::kS8;
    using Code = typename decltype(out)::value_type;
    run(RequantizeAccumulators<Code>{
        rule, sums.data(), bias.empty() ? nullptr : bias.data(), product_scale.data(), &scale,
        &zero_point, is_signed ? CodeRange{-128, 127} : CodeRange{0, 255}, out.data(), nullptr});
    codes.assign(out.begin(), out.end());
  });
  return codes;
}

bool check_qlinear_conv(const Case& one) {
  const auto& in = one.inputs;
  const Sums sums = conv_sums(one, in[0], code_values(in[2])[0], in[3], code_values(in[5]));
  EXPECT_EQ(requantized(one, sums, shape_of(in[3])[0]),
            channels_last(code_values(one.outputs[0]), shape_of(one.outputs[0])));
  return true;
}

bool check_qlinear_matmul(const Case& one) {
  const auto& in = one.inputs;
  if (in[1].data_type() != onnx::TensorProto::FLOAT) return false;
  // ONNX 1.17 expects -236 wrapped to 20 here, where the operator is to saturate at -128.
  if (one.name.ends_with("_int8_float32")) return false;
  const Sums sums = matmul_sums(in[0], code_values(in[2])[0], in[3], code_values(in[5]));
  EXPECT_EQ(requantized(one, sums, shape_of(in[3]).back()), code_values(one.outputs[0]));
  return true;
}

Codes zero_point_or_0(const Case& one, std::size_t input) {
  return one.inputs.size() > input ? code_values(one.inputs[input]) : Codes{0};
}

bool check_conv_integer(const Case& one) {
  const auto& in = one.inputs;
  EXPECT_EQ(conv_sums(one, in[0], zero_point_or_0(one, 2)[0], in[1], zero_point_or_0(one, 3)),
            channels_last(raw<std::int32_t>(one.outputs[0]), shape_of(one.outputs[0])));
  return true;
}

bool check_matmul_integer(const Case& one) {
  const auto& in = one.inputs;
  EXPECT_EQ(matmul_sums(in[0], zero_point_or_0(one, 2)[0], in[1], zero_point_or_0(one, 3)),
            raw<std::int32_t>(one.outputs[0]));
  return true;
}

TEST(OnnxTestdata, QLinearConv) { check_each("test_qlinearconv", 1, check_qlinear_conv); }
TEST(OnnxTestdata, QLinearMatMul) { check_each("test_qlinearmatmul", 2, check_qlinear_matmul); }
TEST(OnnxTestdata, ConvInteger) {
  check_each("test_convinteger", 2, check_conv_integer);
  check_each("test_basic_convinteger", 0, check_conv_integer);  // not in ONNX 1.17
}
TEST(OnnxTestdata, MatMulInteger) { check_each("test_matmulinteger", 1, check_matmul_integer); }

}  // namespace
}  // namespace steelyard::kernels::onnx_cases
