// Tensors, storage and modules on a GPU.
#include <cstring>
#include <functional>
#include <limits>
#include <stdexcept>

#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "steelyard/framework/tensor/caching_allocator.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/layers/weighted/linear.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace steelyard::testing {
namespace {

using TensorOnCuda = WithCudaDevice;

TEST_F(TensorOnCuda, KeepsItsBytesThereAndBack) {
  const Tensor x = random_tensor({5, 7}, 1, DType::kF32);
  const Tensor there = x.to(kCudaDevice);
  EXPECT_EQ(there.device(), kCudaDevice);
  EXPECT_EQ(x.device(), kCpuDevice);
  EXPECT_EQ(values(there.to(kCpuDevice)), values(x));
  EXPECT_EQ(values(there.clone().to(kCpuDevice)), values(x));
  EXPECT_EQ(there.clone().device(), kCudaDevice);
}

// Small copies travel in launches, several where one is too small. The source changes at once.
TEST_F(TensorOnCuda, TakesBytesOfAnyNumber) {
  for (const std::int64_t n : {0, 1, 3999, 4000, 4001, 9000, 64000, 64001, 300000}) {
    Tensor x = Tensor::empty({n}, DType::kU8);
    for (std::int64_t i = 0; i < n; ++i) {
      x.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(i % 251);
    }
    const auto expected = values(x);
    const Tensor there = x.to(kCudaDevice);
    x.fill(255);
    EXPECT_EQ(values(there.to(kCpuDevice)), expected) << n;
  }
}

TEST_F(TensorOnCuda, FillsEveryDtype) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI64,
                            DType::kI32, DType::kI8, DType::kU8, DType::kBool}) {
    const Tensor t = Tensor::full({1000}, 1, dtype, kCudaDevice);
    EXPECT_EQ(t.device(), kCudaDevice);
    const Tensor expected = Tensor::full({1000}, 1, dtype);
    const Tensor actual = t.to(kCpuDevice);
    EXPECT_EQ(std::memcmp(actual.raw(), expected.raw(), static_cast<std::size_t>(t.bytes())), 0)
        << dtype_name(dtype);
  }
}

TEST_F(TensorOnCuda, ConvertsItemsAndDtypes) {
  const Tensor t = Tensor::full({}, 1.5, DType::kF32, kCudaDevice);
  EXPECT_EQ(t.item(), 1.5);
  EXPECT_EQ(t.to(DType::kF64).device(), kCudaDevice);
  EXPECT_EQ(t.to(DType::kF64).item(), 1.5);
}

TEST_F(TensorOnCuda, IsAnErrorWhenItChangesOrMovesBeforeBackward) {
  const auto backward_after = [](const std::function<void(const Tensor&)>& change) {
    const Variable x(Tensor::full({2}, 2, DType::kF32, kCudaDevice), true);
    const Variable y = multiply(x, x);
    change(x.value());
    y.backward(Tensor::full({2}, 1, DType::kF32, kCudaDevice));
  };
  EXPECT_NO_THROW(backward_after([](const Tensor&) {}));
  EXPECT_THROW(backward_after([](const Tensor& x) { x.fill(100); }), std::logic_error);
  EXPECT_THROW(backward_after([](const Tensor& x) { x.copy_from(Tensor::zeros({2})); }),
               std::logic_error);
  EXPECT_THROW(backward_after([](const Tensor& x) { x.move_to(kCpuDevice); }), std::logic_error);
}

TEST_F(TensorOnCuda, HandlesMoveTogether) {
  const Tensor x = random_tensor({3}, 1);
  const Tensor alias = x;
  x.move_to(kCudaDevice);
  EXPECT_EQ(alias.device(), kCudaDevice);
  alias.move_to(kCpuDevice);
  EXPECT_EQ(values(x), values(random_tensor({3}, 1)));
}

TEST_F(TensorOnCuda, ASpanNeedsTheCpu) {
  const Tensor t = Tensor::zeros({3}, DType::kF32, kCudaDevice);
  EXPECT_THROW(t.span<float>(), std::invalid_argument);
}

TEST_F(TensorOnCuda, BlocksAreReused) {
  const AllocatorStats before = allocator_stats(kCudaDevice);
  const void* first = Tensor::empty({4000}, DType::kF32, kCudaDevice).raw();
  EXPECT_EQ(Tensor::empty({4000}, DType::kF32, kCudaDevice).raw(), first);
  EXPECT_EQ(allocator_stats(kCudaDevice).in_use_bytes, before.in_use_bytes);
  EXPECT_EQ(allocator_stats(kCpuDevice).cached_bytes, allocator_stats().cached_bytes);
}

TEST_F(TensorOnCuda, MemoryThatIsNotThereIsSaidWithItsSizes) {
  try {
    Tensor::empty({std::numeric_limits<std::int64_t>::max() / 16}, DType::kU8, kCudaDevice);
    FAIL() << "nothing thrown";
  } catch (const OutOfMemory& error) {
    EXPECT_NE(std::string(error.what()).find("cuda:0: asked for "), std::string::npos)
        << error.what();
  }
}

TEST_F(TensorOnCuda, ModulesMoveWithParameters) {
  Rng rng(1);
  const Linear layer({.in_features = 3, .out_features = 2}, rng);
  const auto before = values(layer.named_parameters()[0].variable.value());
  move_to(layer, kCudaDevice);
  for (const NamedParameter& p : layer.named_parameters()) {
    EXPECT_EQ(p.variable.value().device(), kCudaDevice) << p.name;
  }
  EXPECT_EQ(values(layer.named_parameters()[0].variable.value().to(kCpuDevice)), before);
}

TEST(ResolveDevice, SaysWhatIsMissing) {
  EXPECT_EQ(resolve_device("cpu"), kCpuDevice);
  EXPECT_THROW(resolve_device("cuda:"), InputError);
  EXPECT_THROW(resolve_device("cuda:x"), InputError);
  EXPECT_THROW(resolve_device("gpu"), InputError);
  EXPECT_THROW(resolve_device("cuda:99"), DeviceError);
  EXPECT_EQ(why_no_gpu().empty(), resolve_device("auto") != kCpuDevice);
}

}  // namespace
}  // namespace steelyard::testing
