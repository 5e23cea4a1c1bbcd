// Matrix products, linear layers and convolutions on a GPU against the CPU.
#include <cmath>
#include <cstdint>
#include <vector>

#include "framework/on_device.h"
#include "kernels/cuda/gemm.h"
#include "kernels/value_type.h"
#include "tests/framework/device_cases.h"

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

// Integers of 8 bits are exact in bfloat16 and their sums in float: no bit may differ.
TEST_P(GemmOnCuda, MultipliesIntegersExactlyInBfloat16) {
  const GemmShape& shape = GetParam().shape;
  GemmOperands operands(shape);
  for (const Tensor& t : {operands.a, operands.b, operands.c}) {
    for (double& value : t.span<double>()) value = std::floor(value * 256.0);
  }
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

}  // namespace
}  // namespace steelyard::testing
