#include <memory>

#include "tests/c/c_support.h"

namespace steelyard::c_face {
namespace {

using Managed = std::unique_ptr<DLManagedTensor, Destroy>;

struct TensorCase {
  Context context;
  std::int64_t shape[2] = {2, 3};

  steelyard_status create(DLDevice device, DLDataType dtype, int32_t ndim, Managed& made) {
    DLManagedTensor* tensor = nullptr;
    const steelyard_status status =
        steelyard_tensor_create(context, device, dtype, ndim, shape, &tensor);
    made.reset(tensor);
    return status;
  }
};

TEST(CTensor, IsDenseAndAligned) {
  TensorCase c;
  Managed made;
  ASSERT_EQ(c.create({kDLCPU, 0}, type_of<float>(), 2, made), STEELYARD_OK);
  const DLTensor& view = made->dl_tensor;
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view.data) % 64, 0U);
  EXPECT_EQ(view.ndim, 2);
  EXPECT_EQ(view.shape[1], 3);
  EXPECT_EQ(view.strides[0], 3);
  EXPECT_EQ(view.device.device_type, kDLCPU);
  EXPECT_EQ(view.dtype.bits, 32);
}

TEST(CTensor, RefusesWhatNoTensorIs) {
  TensorCase c;
  Managed made;
  EXPECT_EQ(c.create({kDLCPU, 0}, {kDLFloat, 32, 2}, 2, made), STEELYARD_INVALID_ARGUMENT);
  EXPECT_EQ(c.context.message(),
            "steelyard_tensor_create: tensor: expected f32, f64, f16, bf16, i64, i32, i8, u8 or "
            "bool, got the code 2 of 32 bits in 2 lanes");
  EXPECT_EQ(c.create({static_cast<DLDeviceType>(9), 0}, type_of<float>(), 2, made),
            STEELYARD_INVALID_ARGUMENT);
  EXPECT_EQ(c.context.message(),
            "steelyard_tensor_create: tensor: expected a device of the kinds 1 (CPU), 2 (CUDA) and "
            "3 (pinned memory), got the kind 9");
  EXPECT_EQ(c.create({kDLCPU, 0}, type_of<float>(), -1, made), STEELYARD_INVALID_ARGUMENT);
  EXPECT_EQ(c.context.message(), "steelyard_tensor_create: expected ndim >= 0, got -1");
  EXPECT_EQ(steelyard_tensor_create(c.context, {kDLCPU, 0}, type_of<float>(), 2, nullptr, nullptr),
            STEELYARD_INVALID_ARGUMENT);
  EXPECT_EQ(c.context.message(),
            "steelyard_tensor_create: expected a pointer for tensor, got NULL");
  c.shape[0] = -2;
  EXPECT_EQ(c.create({kDLCPU, 0}, type_of<float>(), 2, made), STEELYARD_INVALID_ARGUMENT);
  EXPECT_EQ(c.context.message(), "steelyard_tensor_create: [tensor] negative dimension in [-2, 3]");
}

TEST(CTensor, OfAMissingDeviceIsRefused) {
  TensorCase c;
  Managed made;
  EXPECT_EQ(c.create({kDLCUDA, 99}, type_of<float>(), 2, made), STEELYARD_NO_DEVICE);
  EXPECT_EQ(
      c.context.message().rfind("steelyard_tensor_create: device 'cuda:99' is not available: ", 0),
      0U);
}

TEST(CTensor, WithoutMemoryIsAStatus) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer ends a program that asks for so much";
#endif
  TensorCase c;
  Managed made;
  c.shape[0] = std::int64_t{1} << 44;
  EXPECT_EQ(c.create({kDLCPU, 0}, type_of<float>(), 2, made), STEELYARD_OUT_OF_MEMORY);
  EXPECT_EQ(made, nullptr);
  EXPECT_NE(c.context.message(), "");
}

TEST(CTensor, CopiesElements) {
  TensorCase c;
  Managed made;
  ASSERT_EQ(c.create({kDLCPU, 0}, type_of<float>(), 2, made), STEELYARD_OK);
  Array<float> from({1, 2, 3, 4, 5, 6}, {2, 3}), back(std::vector<float>(6), {2, 3});
  ASSERT_EQ(steelyard_tensor_copy(c.context, nullptr, &from.view, &made->dl_tensor), STEELYARD_OK);
  ASSERT_EQ(steelyard_tensor_copy(c.context, nullptr, &made->dl_tensor, &back.view), STEELYARD_OK);
  EXPECT_EQ(back.values, from.values);
}

TEST(CTensor, CopiesOnlyBetweenTensorsOfOneForm) {
  const Context context;
  Array<float> from({1, 2, 3, 4}, {2, 2}), flat(std::vector<float>(4));
  Array<std::int32_t> whole({0, 0, 0, 0}, {2, 2});
  const auto copy = [&](const DLTensor* to) {
    EXPECT_EQ(steelyard_tensor_copy(context, nullptr, &from.view, to), STEELYARD_INVALID_ARGUMENT);
    return context.message();
  };
  EXPECT_EQ(copy(&flat.view), "steelyard_tensor_copy: to: expected the shape [2, 2], got [4]");
  EXPECT_EQ(copy(&whole.view), "steelyard_tensor_copy: to: expected f32, got i32");
  EXPECT_EQ(copy(nullptr), "steelyard_tensor_copy: to: expected a tensor, got NULL");
  EXPECT_EQ(copy(&from.view),
            "steelyard_tensor_copy: expected from and to apart, got memory that overlaps");
  std::int64_t transposed[] = {1, 2};
  Array<float> to(std::vector<float>(4), {2, 2});
  to.view.strides = transposed;
  EXPECT_EQ(
      copy(&to.view),
      "steelyard_tensor_copy: to: expected a dense array, strides [2, 1], got strides [1, 2]");
  int stream = 0;
  EXPECT_EQ(steelyard_tensor_copy(context, &stream, &from.view, &flat.view),
            STEELYARD_INVALID_ARGUMENT);
}

TEST(CTensor, ViewsAreChecked) {
  const Context context;
  Array<float> from({1, 2, 3, 4}), to(std::vector<float>(4));
  const auto copy = [&] {
    EXPECT_EQ(steelyard_tensor_copy(context, nullptr, &from.view, &to.view),
              STEELYARD_INVALID_ARGUMENT);
    return context.message();
  };
  const DLTensor good = from.view;
  from.view.data = nullptr;
  EXPECT_EQ(copy(), "steelyard_tensor_copy: from: expected memory, got NULL");
  from.view = good;
  from.view.byte_offset = 2;
  EXPECT_EQ(copy(),
            "steelyard_tensor_copy: from: expected an address aligned to its 4 bytes, got one 2 "
            "past such an address");
  from.view = good;
  from.view.ndim = 9;
  EXPECT_EQ(copy(), "steelyard_tensor_copy: from: expected 0 to 8 axes, got 9");
  from.view = good;
  from.view.shape = nullptr;
  EXPECT_EQ(copy(), "steelyard_tensor_copy: from: expected a shape, got NULL");
  from.view = good;
  std::int64_t far[] = {std::int64_t{1} << 60};
  from.view.strides = far;
  EXPECT_EQ(copy(),
            "steelyard_tensor_copy: from: expected strides within the memory, got "
            "[1152921504606846976]");
}

}  // namespace
}  // namespace steelyard::c_face
