// Elementwise kernels, transposes and softmax on a GPU against the CPU, where no operation shows
// all.
#include <array>
#include <cmath>
#include <limits>

#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/elementwise/elementwise.h"
#include "steelyard/kernels/softmax/softmax.h"
#include "steelyard/kernels/transpose/transpose.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace steelyard::testing {
namespace {

using KernelOnCuda = WithCudaDevice;

const kernels::CudaQueue& queue() { return cuda_queue(kCudaDevice); }

// One row, parts of a block, several parts, more rows than parts; channels below, at and above the
// columns of a block.
const std::vector<std::array<std::int64_t, 2>> kMatrices{
    {0, 5}, {1, 1}, {7, 3}, {256, 32}, {257, 33}, {1000, 100}, {300001, 1}, {270000, 2}, {4, 0}};

TEST_F(KernelOnCuda, ColumnSums) {
  for (const auto& [rows, channels] : kMatrices) {
    const Tensor x = random_tensor({rows, channels}, 1);
    const Tensor expected = Tensor::full({channels}, 9, DType::kF64);
    kernels::run(
        kernels::ColumnSums<double>{rows, channels, x.data<double>(), expected.data<double>()});
    for (const DType dtype : {DType::kF32, DType::kF64}) {
      const Tensor there = x.to(dtype).to(kCudaDevice);
      const Tensor sums = Tensor::full({channels}, 9, dtype, kCudaDevice);
      visit_floating(dtype, "test", [&](auto zero) {
        using T = decltype(zero);
        kernels::run(queue(),
                     kernels::ColumnSums<T>{rows, channels, there.data<T>(), sums.data<T>()});
      });
      const double tolerance = dtype == DType::kF64 ? 1e-9 : 1e-4;
      EXPECT_TRUE(all_close(sums.to(kCpuDevice), expected, tolerance, tolerance))
          << rows << " x " << channels;
    }
  }
}

TEST_F(KernelOnCuda, ANanStaysInItsColumn) {
  Tensor x = random_tensor({600, 3}, 1, DType::kF32);
  x.data<float>()[500 * 3 + 1] = std::numeric_limits<float>::quiet_NaN();
  const Tensor there = x.to(kCudaDevice);
  const Tensor sums = Tensor::empty({3}, DType::kF32, kCudaDevice);
  kernels::run(queue(),
               kernels::ColumnSums<float>{600, 3, there.data<float>(), sums.data<float>()});
  const auto found = values(sums.to(kCpuDevice));
  EXPECT_FALSE(std::isnan(found[0]));
  EXPECT_TRUE(std::isnan(found[1]));
  EXPECT_FALSE(std::isnan(found[2]));
}

TEST_F(KernelOnCuda, AddBiasInPlace) {
  for (const auto& [rows, channels] : kMatrices) {
    if (rows > 10000) continue;
    const Tensor x = random_tensor({rows, channels}, 1);
    const Tensor bias = random_tensor({channels}, 2);
    const Tensor y = x.clone().to(kCudaDevice);
    const Tensor there = bias.to(kCudaDevice);
    const auto add = [&](const Tensor& to, const Tensor& addend) {
      auto* values = to.data<double>();
      run(to.device(),
          kernels::AddBias<double>{rows, channels, values, addend.data<double>(), values});
    };
    add(y, there);
    add(x, bias);
    EXPECT_EQ(values(y.to(kCpuDevice)), values(x));
  }
}

TEST_F(KernelOnCuda, CodesChangeTheirLayout) {
  for (const DType dtype : {DType::kI8, DType::kU8}) {
    Tensor x = Tensor::empty({2, 35, 40}, dtype);
    auto* bytes = static_cast<std::uint8_t*>(x.raw());
    for (std::int64_t i = 0; i < x.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 7 % 251);
    const Tensor there = x.to(kCudaDevice);
    const Tensor y = Tensor::empty({2, 40, 35}, dtype, kCudaDevice);
    const Tensor expected = Tensor::empty({2, 40, 35}, dtype);
    const auto transpose = [](auto zero, const Tensor& from, const Tensor& to) {
      using Code = decltype(zero);
      run(from.device(), kernels::Transpose<Code>{2, 35, 40, from.data<Code>(), to.data<Code>()});
    };
    if (dtype == DType::kI8) {
      transpose(std::int8_t{}, there, y);
      transpose(std::int8_t{}, x, expected);
    } else {
      transpose(std::uint8_t{}, there, y);
      transpose(std::uint8_t{}, x, expected);
    }
    EXPECT_EQ(values(y.to(kCpuDevice)), values(expected));
  }
}

TEST_F(KernelOnCuda, ArgmaxTakesTheFirstOfEqualsAndNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::int64_t classes : {1, 5, 33, 200}) {
    Tensor logits = random_tensor({41, classes}, 3, DType::kF32);
    for (std::int64_t i = 0; i < logits.size(); ++i) {
      float& value = logits.data<float>()[i];
      value = i % 61 == 7 ? nan : std::round(value * 2);
    }
    const Tensor there = logits.to(kCudaDevice);
    const Tensor places = Tensor::empty({41}, DType::kI64, kCudaDevice);
    const Tensor expected = Tensor::empty({41}, DType::kI64);
    kernels::run(queue(), kernels::ArgmaxRows<float>{.rows = 41,
                                                     .columns = classes,
                                                     .logits = there.data<float>(),
                                                     .predictions = places.data<std::int64_t>()});
    kernels::run(kernels::ArgmaxRows<float>{.rows = 41,
                                            .columns = classes,
                                            .logits = logits.data<float>(),
                                            .predictions = expected.data<std::int64_t>()});
    EXPECT_EQ(values(places.to(kCpuDevice)), values(expected)) << classes;
  }
}

TEST_F(KernelOnCuda, CountsNonFinite) {
  for (const std::int64_t n : {0, 1, 2048, 5000}) {
    Tensor x = Tensor::full({n}, 1e30, DType::kF32);
    for (std::int64_t i = 0; i < n; i += 100) {
      x.data<float>()[i] = i % 200 == 0 ? std::numeric_limits<float>::quiet_NaN()
                                        : -std::numeric_limits<float>::infinity();
    }
    const Tensor there = x.to(kCudaDevice);
    const Tensor count = Tensor::full({}, 77, DType::kI64, kCudaDevice);
    run(kCudaDevice,
        kernels::CountNonFinite<float>{n, there.data<float>(), count.data<std::int64_t>()});
    EXPECT_EQ(count.item(), static_cast<double>((n + 99) / 100));
  }
}

TEST_F(KernelOnCuda, SwapsBytesThatLieAnywhere) {
  for (const std::int64_t at_a : {0, 8, 3}) {
    for (const std::int64_t at_b : {0, 16, 4}) {
      for (const std::int64_t bytes : {0, 1, 8, 3001}) {
        Tensor a = Tensor::empty({3100}, DType::kU8), b = Tensor::empty({3100}, DType::kU8);
        for (std::int64_t i = 0; i < a.size(); ++i) {
          a.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(i * 7 % 251);
          b.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(i * 11 % 241);
        }
        const Tensor there_a = a.to(kCudaDevice), there_b = b.to(kCudaDevice);
        run(kCudaDevice, kernels::Swap<std::uint8_t>{bytes, there_a.data<std::uint8_t>() + at_a,
                                                     there_b.data<std::uint8_t>() + at_b});
        run(kCpuDevice, kernels::Swap<std::uint8_t>{bytes, a.data<std::uint8_t>() + at_a,
                                                    b.data<std::uint8_t>() + at_b});
        EXPECT_EQ(values(there_a.to(kCpuDevice)), values(a)) << at_a << " " << at_b << " " << bytes;
        EXPECT_EQ(values(there_b.to(kCpuDevice)), values(b)) << at_a << " " << at_b << " " << bytes;
      }
    }
  }
}

}  // namespace
}  // namespace steelyard::testing
