// Matrix products, linear layers and convolutions on a GPU against the CPU.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "steelyard/framework/ops/products/conv2d.h"
#include "steelyard/framework/ops/products/linear.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/cuda/gemm.h"
#include "steelyard/kernels/value_type.h"
#include "tests/framework/device/device_cases.h"

namespace steelyard::testing {
namespace {

using kernels::cuda::GemmShape;

// A shape's stored sizes, with room for its strides.
std::int64_t elements(std::int64_t rows, std::int64_t stride, std::int64_t batches,
                      std::int64_t batch_stride) {
  return (batches - 1) * batch_stride + rows * stride;
}

struct GemmOperands {
  explicit GemmOperands(const GemmShape& s)
      : a(random_tensor(
            {elements(s.transpose_a ? s.k : s.m, s.stored_row_a(), s.batches, s.batch_stride_a)},
            1)),
        b(random_tensor(
            {elements(s.transpose_b ? s.n : s.k, s.stored_row_b(), s.batches, s.batch_stride_b)},
            2)),
        c(random_tensor({elements(s.m, s.stored_row_c(), s.batches, s.batch_stride_c)}, 3)) {}
  Tensor a, b, c;
};

// C by the definition; what lies between its rows stays as it was.
Tensor expected_product(const GemmShape& s, const GemmOperands& with) {
  const Tensor c = with.c.clone();
  const double* a = with.a.data<double>();
  const double* b = with.b.data<double>();
  for (std::int64_t batch = 0; batch < s.batches; ++batch) {
    for (std::int64_t i = 0; i < s.m; ++i) {
      for (std::int64_t j = 0; j < s.n; ++j) {
        double& y = c.data<double>()[batch * s.batch_stride_c + i * s.stored_row_c() + j];
        double sum = s.accumulate ? y : 0.0;
        for (std::int64_t k = 0; k < s.k; ++k) {
          const std::int64_t at_a =
              s.transpose_a ? k * s.stored_row_a() + i : i * s.stored_row_a() + k;
          const std::int64_t at_b =
              s.transpose_b ? j * s.stored_row_b() + k : k * s.stored_row_b() + j;
          sum += a[batch * s.batch_stride_a + at_a] * b[batch * s.batch_stride_b + at_b];
        }
        y = sum;
      }
    }
  }
  return c;
}

template <typename T>
Tensor product_on_cuda(const GemmShape& s, const GemmOperands& with) {
  const DType dtype = DTypeOf<T>::value;
  const Tensor a = with.a.to(dtype).to(kCudaDevice), b = with.b.to(dtype).to(kCudaDevice);
  const Tensor c = with.c.to(dtype).to(kCudaDevice);
  kernels::cuda::gemm<T>(cuda_queue(kCudaDevice), s, a.data<T>(), b.data<T>(), c.data<T>());
  return c.to(kCpuDevice);
}

struct GemmCase {
  const char* name;
  GemmShape shape;
};
void PrintTo(const GemmCase& c, std::ostream* out) { *out << c.name; }

class GemmOnCuda : public ::testing::TestWithParam<GemmCase> {
 protected:
  void SetUp() override {
    if (!has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  }
};

TEST_P(GemmOnCuda, MatchesItsDefinition) {
  const GemmShape& shape = GetParam().shape;
  const GemmOperands operands(shape);
  const Tensor expected = expected_product(shape, operands);
  EXPECT_TRUE(all_close(product_on_cuda<double>(shape, operands), expected, 1e-12, 1e-12));
  EXPECT_TRUE(all_close(product_on_cuda<float>(shape, operands), expected, 1e-5, 1e-5));
}

void expect_exact_in_bfloat16(const GemmShape& shape, const GemmOperands& operands) {
  const auto bits_on_cuda = [](const Tensor& t) {
    Tensor bits = Tensor::empty(t.shape(), DType::kBF16);
    for (std::int64_t i = 0; i < t.size(); ++i) {
      static_cast<std::uint16_t*>(bits.raw())[i] =
          kernels::narrow<kernels::BFloat16>(static_cast<float>(t.data<double>()[i])).bits;
    }
    return bits.to(kCudaDevice);
  };
  const Tensor a = bits_on_cuda(operands.a), b = bits_on_cuda(operands.b);
  const Tensor c = operands.c.to(DType::kF32).to(kCudaDevice);
  kernels::cuda::gemm_bf16(cuda_queue(kCudaDevice), shape,
                           static_cast<const std::uint16_t*>(a.raw()),
                           static_cast<const std::uint16_t*>(b.raw()), c.data<float>());
  EXPECT_EQ(values(c.to(kCpuDevice)), values(expected_product(shape, operands)));
}

// Integers of 8 bits are exact in bfloat16 and their sums in float: no bit may differ.
TEST_P(GemmOnCuda, MultipliesIntegersExactlyInBfloat16) {
  const GemmOperands operands(GetParam().shape);
  for (const Tensor& t : {operands.a, operands.b, operands.c}) {
    for (double& value : t.span<double>()) value = std::floor(value * 256.0);
  }
  expect_exact_in_bfloat16(GetParam().shape, operands);
}

using LargeSumsOnCuda = WithCudaDevice;

// Sums close to 2^24 of large terms and, in pieces that may be added at the end, of many small
// ones, all of one sign, of sizes that tensor cores take.
TEST_F(LargeSumsOnCuda, BelowTwoTo24AreExactInBfloat16) {
  struct Case {
    GemmShape shape;
    double largest_a, largest_b;
  };
  for (const Case& c : {Case{{.m = 128, .n = 64, .k = 512, .transpose_b = true}, 255, 128},
                        Case{{.m = 40, .n = 24, .k = 8192, .transpose_b = true}, 32, 63}}) {
    GemmOperands operands(c.shape);
    const auto make_one_sided = [](const Tensor& t, double largest) {
      for (double& value : t.span<double>()) {
        value = largest - std::floor(std::abs(value) * largest / 16);
      }
    };
    make_one_sided(operands.a, c.largest_a);
    make_one_sided(operands.b, c.largest_b);
    expect_exact_in_bfloat16(c.shape, operands);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, GemmOnCuda,
    ::testing::Values(
        GemmCase{"plain", {.m = 7, .n = 5, .k = 33}},
        GemmCase{"one_element", {.m = 1, .n = 1, .k = 1}},
        GemmCase{"transposed_a", {.m = 7, .n = 5, .k = 9, .transpose_a = true}},
        GemmCase{"transposed_b", {.m = 7, .n = 5, .k = 9, .transpose_b = true}},
        GemmCase{"transposed_both",
                 {.m = 4, .n = 6, .k = 3, .transpose_a = true, .transpose_b = true}},
        GemmCase{"accumulated", {.m = 3, .n = 5, .k = 8, .accumulate = true}},
        GemmCase{"no_terms", {.m = 3, .n = 5, .k = 0}},
        GemmCase{"no_terms_accumulated", {.m = 3, .n = 5, .k = 0, .accumulate = true}},
        GemmCase{"strided_batches",
                 {.m = 6,
                  .n = 2,
                  .k = 4,
                  .transpose_b = true,
                  .row_stride_a = 13,
                  .row_stride_c = 7,
                  .batches = 3,
                  .batch_stride_a = 4,
                  .batch_stride_b = 8,
                  .batch_stride_c = 2}},
        GemmCase{"strided_batches_of_no_terms",
                 {.m = 2, .n = 3, .k = 0, .row_stride_c = 4, .batches = 2, .batch_stride_c = 9}},
        GemmCase{"strided_transposed",
                 {.m = 3,
                  .n = 4,
                  .k = 10,
                  .transpose_a = true,
                  .accumulate = true,
                  .row_stride_a = 8,
                  .row_stride_b = 9,
                  .batches = 2,
                  .batch_stride_a = 3,
                  .batch_stride_b = 4,
                  .batch_stride_c = 12}}),
    [](const auto& gemm) { return std::string(gemm.param.name); });

using Vs = std::vector<Variable>;
using Place = std::function<Tensor(const Tensor&)>;

DeviceCase linear_case(const std::string& name, const Shape& x, std::int64_t out, bool bias) {
  std::vector<Tensor> inputs{random_tensor(x, 1), random_tensor({out, x.back()}, 2)};
  if (bias) inputs.push_back(random_tensor({out}, 3));
  return {name, inputs, [](const Vs& v, const Place&) {
            return linear(v[0], v[1], v.size() > 2 ? v[2] : Variable());
          }};
}

// x is [N, H, W, C], w [O, C/groups, KH, KW].
DeviceCase conv_case(const std::string& name, const Shape& x, const Shape& w,
                     const Conv2dGeometry& geometry, bool bias = true) {
  std::vector<Tensor> inputs{random_tensor(x, 1), random_tensor(w, 2)};
  if (bias) inputs.push_back(random_tensor({w[0]}, 3));
  return {name, inputs, [geometry](const Vs& v, const Place&) {
            return conv2d(v[0], v[1], v.size() > 2 ? v[2] : Variable(), geometry);
          }};
}

std::vector<DeviceCase> product_cases() {
  const Conv2dGeometry same{.padding = {1, 1}};
  const Conv2dGeometry uneven{.stride = {2, 3}, .padding = {2, 1}, .dilation = {1, 2}};
  const auto grouped = [](Conv2dGeometry geometry, std::int64_t groups) {
    geometry.groups = groups;
    return geometry;
  };
  return {
      linear_case("linear", {37, 29}, 13, true),
      linear_case("linear_without_bias", {5, 3, 17}, 33, false),
      linear_case("linear_one_element", {1, 1}, 1, true),
      linear_case("linear_no_rows", {0, 4}, 3, true),
      conv_case("conv", {2, 7, 6, 4}, {5, 4, 3, 3}, same),
      conv_case("conv_16_byte_patches", {2, 5, 6, 8}, {6, 8, 3, 3}, same),
      conv_case("conv_three_channels", {3, 9, 8, 3}, {7, 3, 3, 3}, same, false),
      conv_case("conv_uneven", {2, 11, 13, 3}, {4, 3, 3, 2}, uneven),
      conv_case("conv_pointwise", {2, 5, 7, 6}, {9, 6, 1, 1}, {}),
      conv_case("conv_pointwise_strided", {2, 5, 7, 6}, {9, 6, 1, 1}, {.stride = {2, 2}}),
      conv_case("conv_pointwise_padded", {1, 3, 3, 2}, {3, 2, 1, 1}, {.padding = {1, 1}}),
      conv_case("conv_grouped", {2, 6, 7, 8}, {6, 4, 3, 3}, grouped(same, 2)),
      conv_case("conv_grouped_uneven", {2, 11, 13, 6}, {9, 2, 3, 2}, grouped(uneven, 3)),
      conv_case("conv_grouped_pointwise", {2, 5, 7, 6}, {4, 3, 1, 1}, grouped({}, 2)),
      conv_case("conv_one_channel_of_a_group", {2, 6, 5, 4}, {8, 1, 3, 3}, grouped(same, 4)),
      conv_case("conv_depthwise", {2, 9, 7, 40}, {40, 1, 3, 3}, grouped(same, 40)),
      conv_case("conv_depthwise_uneven", {2, 11, 13, 5}, {5, 1, 3, 2}, grouped(uneven, 5), false),
      conv_case("conv_depthwise_pointwise", {2, 3, 3, 5}, {5, 1, 1, 1}, grouped({}, 5)),
      conv_case("conv_depthwise_stride2", {3, 9, 12, 20}, {20, 1, 3, 3},
                grouped({.stride = {2, 2}, .padding = {1, 1}}, 20)),
      conv_case("conv_depthwise_stride2_unpadded", {2, 8, 7, 6}, {6, 1, 3, 3},
                grouped({.stride = {2, 2}}, 6)),
      conv_case("conv_depthwise_5x5", {2, 7, 9, 12}, {12, 1, 5, 5},
                grouped({.padding = {2, 2}}, 12)),
      conv_case("conv_depthwise_5x5_stride2", {2, 11, 14, 7}, {7, 1, 5, 5},
                grouped({.stride = {2, 2}, .padding = {2, 2}}, 7)),
      conv_case("conv_depthwise_5x5_far_padding", {1, 2, 3, 8}, {8, 1, 5, 5},
                grouped({.stride = {1, 2}, .padding = {4, 5}}, 8)),
      conv_case("conv_depthwise_wide_rows", {2, 3, 150, 4}, {4, 1, 3, 3},
                grouped({.stride = {2, 1}, .padding = {1, 1}, .dilation = {2, 1}}, 4)),
      conv_case("conv_depthwise_many_rows", {40, 13, 2, 36}, {36, 1, 3, 5},
                grouped({.padding = {1, 2}}, 36)),
      conv_case("conv_depthwise_dilated", {2, 8, 9, 8}, {8, 1, 3, 3},
                grouped({.padding = {2, 2}, .dilation = {2, 2}}, 8)),
      conv_case("conv_depthwise_7x7_stride3", {2, 9, 10, 12}, {12, 1, 7, 7},
                grouped({.stride = {3, 3}, .padding = {3, 3}}, 12)),
      conv_case("conv_whole_image", {3, 4, 5, 2}, {3, 2, 4, 5}, {}),
      conv_case("conv_one_element", {1, 1, 1, 1}, {1, 1, 1, 1}, {}),
      conv_case("conv_no_images", {0, 5, 5, 2}, {3, 2, 3, 3}, same),
      conv_case("conv_depthwise_no_images", {0, 5, 5, 2}, {2, 1, 3, 3}, grouped(same, 2)),
  };
}

using ProductsOnCuda = OnCuda;
TEST_P(ProductsOnCuda, MatchTheCpuInDouble) { expect_close(DType::kF64); }
TEST_P(ProductsOnCuda, MatchTheCpuInFloat) { expect_close(DType::kF32); }
INSTANTIATE_TEST_SUITE_P(Ops, ProductsOnCuda, ::testing::ValuesIn(product_cases()),
                         device_case_name);

struct ConvResults {
  Tensor y, grad_x, grad_w;
};

// Without a tape, so that the queue can be the test's own.
template <typename... Queue>
ConvResults run_conv(Device device, const kernels::Conv2dShape& s, const Queue&... queue) {
  const Tensor x = random_tensor({s.input_size()}, 1).to(device);
  const Tensor w = random_tensor({s.weight_size()}, 2).to(device);
  const Tensor grad_y = random_tensor({s.output_size()}, 3).to(device);
  ConvResults out{Tensor::empty({s.output_size()}, DType::kF64, device),
                  Tensor::empty({s.input_size()}, DType::kF64, device),
                  Tensor::empty({s.weight_size()}, DType::kF64, device)};
  kernels::run(queue..., kernels::Conv2d<double>{s, x.data<double>(), w.data<double>(), nullptr,
                                                 out.y.data<double>()});
  kernels::run(queue...,
               kernels::Conv2dBackwardInput<double>{s, grad_y.data<double>(), w.data<double>(),
                                                    out.grad_x.data<double>()});
  kernels::run(queue...,
               kernels::Conv2dBackwardWeight<double>{s, x.data<double>(), grad_y.data<double>(),
                                                     out.grad_w.data<double>()});
  return out;
}

// A tensor's elements behind one of another, as a slice of an array would lie.
Tensor behind_one(const Tensor& x) {
  Tensor longer = Tensor::zeros({x.size() + 1}, x.dtype());
  std::copy_n(x.data<float>(), x.size(), longer.data<float>() + 1);
  return longer.to(kCudaDevice);
}

using UnalignedConvOnCuda = WithCudaDevice;

// Inputs that do not lie on 16 bytes, which channels by fours would be read by.
TEST_F(UnalignedConvOnCuda, MatchesTheCpu) {
  const kernels::Conv2dShape s{.batch = 2,
                               .in_h = 5,
                               .in_w = 6,
                               .in_channels = 8,
                               .out_channels = 3,
                               .kernel_h = 3,
                               .kernel_w = 3,
                               .pad_h = 1,
                               .pad_w = 1};
  const Tensor x = random_tensor({s.input_size()}, 1, DType::kF32);
  const Tensor w = random_tensor({s.weight_size()}, 2, DType::kF32);
  const Tensor grad_y = random_tensor({s.output_size()}, 3, DType::kF32);
  const Tensor y = Tensor::empty({s.output_size()}), grad_w = Tensor::empty({s.weight_size()});
  using Forward = kernels::Conv2d<float>;
  using BackwardWeight = kernels::Conv2dBackwardWeight<float>;
  kernels::run(Forward{s, x.data<float>(), w.data<float>(), nullptr, y.data<float>()});
  kernels::run(BackwardWeight{s, x.data<float>(), grad_y.data<float>(), grad_w.data<float>()});
  const Tensor x_there = behind_one(x), w_there = behind_one(w), grad_there = behind_one(grad_y);
  const Tensor y_there = behind_one(y), grad_w_there = behind_one(grad_w);
  y_there.fill(0);
  grad_w_there.fill(0);
  const kernels::CudaQueue& queue = cuda_queue(kCudaDevice);
  kernels::run(queue, Forward{s, x_there.data<float>() + 1, w_there.data<float>() + 1, nullptr,
                              y_there.data<float>() + 1});
  kernels::run(queue, BackwardWeight{s, x_there.data<float>() + 1, grad_there.data<float>() + 1,
                                     grad_w_there.data<float>() + 1});
  EXPECT_TRUE(all_close(y_there, behind_one(y), 1e-5, 1e-5));
  EXPECT_TRUE(all_close(grad_w_there, behind_one(grad_w), 1e-5, 1e-5));
}

void expect_results_close(const ConvResults& actual, const ConvResults& expected) {
  EXPECT_TRUE(all_close(actual.y.to(kCpuDevice), expected.y, 1e-12, 1e-12));
  EXPECT_TRUE(all_close(actual.grad_x.to(kCpuDevice), expected.grad_x, 1e-12, 1e-12));
  EXPECT_TRUE(all_close(actual.grad_w.to(kCpuDevice), expected.grad_w, 1e-12, 1e-12));
}

using LargeConvOnCuda = WithCudaDevice;

// Patches of two million elements: a thread then makes a column of several pixels, whose runs do
// not end with the rows and images.
TEST_F(LargeConvOnCuda, MatchesTheCpu) {
  const kernels::Conv2dShape s{.batch = 2,
                               .in_h = 118,
                               .in_w = 237,
                               .in_channels = 3,
                               .out_channels = 2,
                               .kernel_h = 5,
                               .kernel_w = 5,
                               .stride_w = 2,
                               .pad_h = 2,
                               .pad_w = 2};
  expect_results_close(run_conv(kCudaDevice, s, cuda_queue(kCudaDevice)), run_conv(kCpuDevice, s));
}

using ConvInPartsOnCuda = WithCudaDevice;

// Patches of all images at once, of two images, of one, of a few pixels, of one pixel.
TEST_F(ConvInPartsOnCuda, GivesTheSameGradients) {
  const kernels::Conv2dShape s{.batch = 5,
                               .in_h = 6,
                               .in_w = 7,
                               .in_channels = 4,
                               .out_channels = 6,
                               .kernel_h = 3,
                               .kernel_w = 3,
                               .stride_h = 1,
                               .stride_w = 2,
                               .pad_h = 1,
                               .pad_w = 1,
                               .groups = 2};
  const ConvResults expected = run_conv(kCpuDevice, s);
  const std::int64_t pixel_bytes = 9 * s.in_channels * std::int64_t{sizeof(double)};
  const std::int64_t image_pixels = s.out_h() * s.out_w();
  for (const std::int64_t pixels : {1000 * image_pixels, 2 * image_pixels + 1, image_pixels,
                                    std::int64_t{7}, std::int64_t{1}}) {
    kernels::CudaQueue queue = cuda_queue(kCudaDevice);
    queue.part_bytes = pixels * pixel_bytes;
    SCOPED_TRACE(pixels);
    expect_results_close(run_conv(kCudaDevice, s, queue), expected);
  }
}

}  // namespace
}  // namespace steelyard::testing
