#include "steelyard/framework/tensor/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <stdexcept>

#include "tests/support/gradcheck.h"

namespace steelyard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::values;

TEST(Tensor, HoldsShapeDtypeAndValues) {
  const Tensor t = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(t.rank(), 2);
  EXPECT_EQ(t.dim(0), 2);
  EXPECT_EQ(t.dim(-1), 3);
  EXPECT_EQ(t.size(), 6);
  EXPECT_EQ(t.bytes(), 24);
  EXPECT_EQ(t.dtype(), DType::kF32);
  EXPECT_THAT(t.span<float>(), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(Tensor, DefaultIsUndefined) {
  const Tensor t;
  EXPECT_FALSE(t.defined());
  EXPECT_THROW(t.data<float>(), std::invalid_argument);
  EXPECT_THROW(t.item(), std::invalid_argument);
  EXPECT_FALSE(t.clone().defined());
}

TEST(Tensor, BorrowsMemoryAsLongAsItsOwnerLives) {
  alignas(64) float memory[4] = {1, 2, 3, 4};
  const auto owner = std::make_shared<int>(0);
  {
    const Tensor t = Tensor::borrow(memory, {2, 2}, DType::kF32, Device{}, owner);
    const Tensor alias = t;
    EXPECT_EQ(t.raw(), memory);
    EXPECT_EQ(owner.use_count(), 2);
    alias.span<float>()[3] = 9;
    memory[0] = 7;
    EXPECT_THAT(t.span<float>(), ElementsAre(7, 2, 3, 9));
    EXPECT_NE(t.clone().raw(), memory);
  }
  EXPECT_EQ(owner.use_count(), 1);
  EXPECT_EQ(memory[3], 9);
  EXPECT_EQ(message_of<std::invalid_argument>(
                [&] { Tensor::borrow(memory + 1, {2}, DType::kF32, Device{}, owner); }),
            "[tensor] expected memory aligned to 64 bytes, got an address 4 past one");
}

TEST(Tensor, RankZeroHoldsOneElement) {
  const Tensor t = Tensor::full(Shape{}, 2.5, DType::kF64);
  EXPECT_EQ(t.rank(), 0);
  EXPECT_EQ(t.size(), 1);
  EXPECT_EQ(t.item(), 2.5);
}

TEST(Tensor, EmptyTensorsAreAllowed) {
  const Tensor t = Tensor::zeros({0, 3});
  EXPECT_TRUE(t.defined());
  EXPECT_EQ(t.size(), 0);
  EXPECT_EQ(t.clone().shape(), (Shape{0, 3}));
  constexpr std::int64_t kLarge = std::int64_t{1} << 40;
  EXPECT_EQ(shape_size({0, kLarge, kLarge}), 0);
  EXPECT_EQ(shape_size({kLarge, kLarge, 0}), 0);
}

TEST(Tensor, CopiesAliasAndClonesDoNot) {
  const Tensor a = Tensor::zeros({2});
  const Tensor alias = a;
  const Tensor clone = a.clone();
  a.data<float>()[0] = 7;
  EXPECT_EQ(alias.data<float>()[0], 7);
  EXPECT_EQ(clone.data<float>()[0], 0);
  EXPECT_TRUE(alias.shares_storage_with(a));
  EXPECT_FALSE(clone.shares_storage_with(a));
}

TEST(Tensor, ReshapeSharesStorage) {
  const Tensor a = Tensor::from<float>({1, 2, 3, 4}, {2, 2});
  const Tensor b = a.reshape({4});
  EXPECT_TRUE(a.shares_storage_with(b));
  EXPECT_EQ(b.shape(), Shape{4});
  EXPECT_EQ(message_of<std::invalid_argument>([&] { a.reshape({3}); }),
            "[reshape] cannot view [2, 2] as [3]");
}

TEST(Tensor, CopyFromWritesIntoSharedStorage) {
  const Tensor a = Tensor::zeros({2});
  const Tensor view = a.reshape({1, 2});
  a.copy_from(Tensor::from<float>({3, 4}, {2}));
  EXPECT_THAT(view.span<float>(), ElementsAre(3, 4));
  EXPECT_THROW(a.copy_from(Tensor::zeros({3})), std::invalid_argument);
  EXPECT_THROW(a.copy_from(Tensor::zeros({2}, DType::kF64)), std::invalid_argument);
  EXPECT_THROW(a.copy_from(Tensor()), std::invalid_argument);
}

TEST(Tensor, ConvertsByValue) {
  const Tensor t = Tensor::from<double>({-1.5, 2.0}, {2});
  EXPECT_EQ(t.to(DType::kF32).span<float>()[0], -1.5f);
  EXPECT_THAT(t.to(DType::kI64).span<std::int64_t>(), ElementsAre(-1, 2));
  EXPECT_FALSE(t.to(DType::kF64).shares_storage_with(t));
}

TEST(Tensor, ConvertsToAndFromHalves) {
  const Tensor values = Tensor::from<float>({0.0F, -1.5F, 0.1F, 3e38F}, {2, 2});
  const Tensor half = values.to(DType::kF16);
  EXPECT_EQ(half.dtype(), DType::kF16);
  const Tensor back = half.to(DType::kF32);
  EXPECT_EQ(back.shape(), values.shape());
  EXPECT_EQ(back.span<float>()[1], -1.5F);
  EXPECT_NEAR(back.span<float>()[2], 0.1F, 0.1 * 0x1p-11);
  EXPECT_TRUE(std::isinf(back.span<float>()[3]));
  const Tensor twice = half.to(DType::kBF16).to(DType::kF64);
  EXPECT_NEAR(twice.span<double>()[2], 0.1, 0.1 * 0x1p-8);
  EXPECT_THROW(half.to(DType::kI32), std::invalid_argument);
  EXPECT_THROW(Tensor::zeros({2}, DType::kI8).to(DType::kBF16), std::invalid_argument);
}

TEST(Tensor, FillSetsEveryElement) {
  const Tensor t = Tensor::zeros({3}, DType::kI32);
  t.fill(-4);
  EXPECT_THAT(t.span<std::int32_t>(), ElementsAre(-4, -4, -4));
}

TEST(TensorErrors, ValuesThatAnIntegerCannotHold) {
  EXPECT_EQ(message_of<std::invalid_argument>([] { Tensor::full({1}, 256, DType::kU8); }),
            "[fill] expected a value that u8 holds, got 256.000000");
  EXPECT_EQ(Tensor::full({1}, -128.5, DType::kI8).item(), -128);
  EXPECT_EQ(Tensor::full({1}, -0.5, DType::kU8).item(), 0);
  EXPECT_EQ(Tensor::full({1}, -0x1p63, DType::kI64).item(), -0x1p63);
  EXPECT_THROW(Tensor::full({1}, -129, DType::kI8), std::invalid_argument);
  EXPECT_THROW(Tensor::full({1}, -1, DType::kU8), std::invalid_argument);
  EXPECT_THROW(Tensor::full({1}, 0x1p31, DType::kI32), std::invalid_argument);
  EXPECT_THROW(Tensor::full({1}, 0x1p63, DType::kI64), std::invalid_argument);
  EXPECT_THROW(Tensor::zeros({1}, DType::kI64).fill(NAN), std::invalid_argument);
  EXPECT_EQ(Tensor::full({1}, 7, DType::kBool).item(), 1);
}

TEST(TensorErrors, NameWhatWasExpected) {
  const Tensor t = Tensor::zeros({2, 3});
  EXPECT_EQ(message_of<std::invalid_argument>([&] { t.data<double>(); }),
            "[tensor] expected dtype f64, got f32");
  EXPECT_EQ(message_of<std::out_of_range>([&] { t.dim(2); }), "[tensor] dimension 2 of [2, 3]");
  EXPECT_THROW(t.dim(-3), std::out_of_range);
  EXPECT_THROW(t.item(), std::invalid_argument);
  EXPECT_EQ(message_of<std::invalid_argument>([] {
              Tensor::from<float>({1, 2}, {3});
            }),
            "[tensor] shape [3] needs 3 values, got 2");
}

TEST(TensorErrors, SizesThatDoNotFit) {
  EXPECT_THROW(Tensor::zeros({2, -1}), std::invalid_argument);
  constexpr std::int64_t kHuge = std::int64_t{1} << 40;
  EXPECT_THAT(message_of<std::invalid_argument>([] {
                shape_size({kHuge, kHuge});
              }),
              HasSubstr("exceeds 64 bits"));
  EXPECT_THROW(Tensor::empty({std::int64_t{1} << 61}, DType::kF64), std::invalid_argument);
}

TEST(TensorErrors, VisitFloatingNamesTheOperation) {
  EXPECT_EQ(
      message_of<std::invalid_argument>([] { visit_floating(DType::kI32, "relu", [](auto) {}); }),
      "[relu] expected f32 or f64, got i32");
}

TEST(Storage, ReusesFreedBlocks) {
  release_cached_memory();
  const AllocatorStats before = allocator_stats();
  const void* first = nullptr;
  {
    const Tensor t = Tensor::empty({1000});
    first = t.raw();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % 64, 0u);
    EXPECT_GE(allocator_stats().in_use_bytes, before.in_use_bytes + 4000);
  }
  EXPECT_EQ(allocator_stats().in_use_bytes, before.in_use_bytes);
  EXPECT_GE(allocator_stats().cached_bytes, 4000);
  EXPECT_EQ(Tensor::empty({1000}).raw(), first);
  release_cached_memory();
  EXPECT_EQ(allocator_stats().cached_bytes, 0);
}

TEST(Storage, PeakFollowsUse) {
  reset_allocator_peak();
  const std::int64_t start = allocator_stats().peak_bytes;
  { const Tensor t = Tensor::empty({1 << 16}); }
  EXPECT_GE(allocator_stats().peak_bytes, start + (4 << 16));
  reset_allocator_peak();
  EXPECT_LT(allocator_stats().peak_bytes, start + (4 << 16));
}

}  // namespace
}  // namespace steelyard
