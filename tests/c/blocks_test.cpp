// Blocks of ggml's types through the C face.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/c/c_support.h"

namespace steelyard::c_test {
namespace {

struct Matrix {
  Matrix(void* data, DLDataType dtype, std::int64_t rows, std::int64_t columns)
      : shape{rows, columns}, tensor{data, {kDLCPU, 0}, 2, dtype, shape, nullptr, 0} {}
  Matrix(const Matrix&) = delete;
  std::int64_t shape[2];
  DLTensor tensor;
};

class Blocks : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(steelyard_context_create(&context_), STEELYARD_OK); }
  void TearDown() override { steelyard_context_destroy(context_); }
  void expect_refused(steelyard_status status, const std::string& words) {
    EXPECT_EQ(status, STEELYARD_INVALID_ARGUMENT);
    const std::string message = steelyard_context_message(context_);
    EXPECT_NE(message.find(words), std::string::npos) << message;
  }
  static constexpr DLDataType kF32{kDLFloat, 32, 1}, kU8{kDLUInt, 8, 1};
  steelyard_context* context_ = nullptr;
};

TEST_F(Blocks, AProductIsThatOfTheBlocks) {
  std::vector<float> x(2 * 64), w(3 * 64), y(2 * 3), expected(2 * 3), values(3 * 64),
      input_values(2 * 64);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = std::cos(static_cast<float>(3 * i));
  std::vector<std::uint8_t> inputs(2 * 68), weights(3 * 36);
  const Matrix of_x(x.data(), kF32, 2, 64), of_w(w.data(), kF32, 3, 64), of_y(y.data(), kF32, 2, 3);
  const Matrix of_inputs(inputs.data(), kU8, 2, 68), of_weights(weights.data(), kU8, 3, 36);
  const Matrix of_values(values.data(), kF32, 3, 64),
      of_input_values(input_values.data(), kF32, 2, 64);
  ASSERT_EQ(steelyard_blocks_encode(context_, nullptr, "inputs", &of_x.tensor, nullptr,
                                    &of_inputs.tensor),
            STEELYARD_OK);
  ASSERT_EQ(
      steelyard_blocks_encode(context_, nullptr, "q4_0", &of_w.tensor, nullptr, &of_weights.tensor),
      STEELYARD_OK);
  ASSERT_EQ(steelyard_blocks_product(context_, nullptr, "q4_0", &of_inputs.tensor,
                                     &of_weights.tensor, &of_y.tensor),
            STEELYARD_OK);
  ASSERT_EQ(
      steelyard_blocks_decode(context_, nullptr, "q4_0", &of_weights.tensor, &of_values.tensor),
      STEELYARD_OK);
  ASSERT_EQ(steelyard_blocks_decode(context_, nullptr, "inputs", &of_inputs.tensor,
                                    &of_input_values.tensor),
            STEELYARD_OK);
  for (int r = 0; r < 2; ++r) {
    for (int c = 0; c < 3; ++c) {
      double sum = 0;
      for (int k = 0; k < 64; ++k)
        sum += double{input_values[64 * r + k]} * double{values[64 * c + k]};
      EXPECT_NEAR(y[3 * r + c], sum, 1e-5);
    }
  }
}

TEST_F(Blocks, GivenScalesAreTaken) {
  std::vector<float> x(32, 0.3F), scale{0.125F}, values(32);
  std::vector<std::uint8_t> bytes(34);
  const Matrix of_x(x.data(), kF32, 1, 32), of_scale(scale.data(), kF32, 1, 1),
      of_bytes(bytes.data(), kU8, 1, 34);
  const Matrix of_values(values.data(), kF32, 1, 32);
  ASSERT_EQ(steelyard_blocks_encode(context_, nullptr, "q8_0", &of_x.tensor, &of_scale.tensor,
                                    &of_bytes.tensor),
            STEELYARD_OK);
  ASSERT_EQ(steelyard_blocks_decode(context_, nullptr, "q8_0", &of_bytes.tensor, &of_values.tensor),
            STEELYARD_OK);
  EXPECT_EQ(values[5], 0.25F);
  expect_refused(steelyard_blocks_encode(context_, nullptr, "inputs", &of_x.tensor,
                                         &of_scale.tensor, &of_bytes.tensor),
                 "scales: this type takes none");
}

TEST_F(Blocks, RefusesWhatDoesNotFit) {
  std::vector<float> x(64);
  std::vector<std::uint8_t> bytes(68);
  const Matrix of_x(x.data(), kF32, 1, 64), of_bytes(bytes.data(), kU8, 1, 68);
  const Matrix of_short(bytes.data(), kU8, 1, 36), of_odd(x.data(), kF32, 1, 33),
      within(x.data(), kU8, 1, 68);
  const auto encode = [&](const char* type, const Matrix& from, const Matrix& to) {
    return steelyard_blocks_encode(context_, nullptr, type, &from.tensor, nullptr, &to.tensor);
  };
  EXPECT_EQ(encode("q8_0", of_x, of_bytes), STEELYARD_OK);
  expect_refused(encode("q9_0", of_x, of_bytes), "mxfp4_searched or q2_0, got 'q9_0'");
  expect_refused(encode(nullptr, of_x, of_bytes), "expected a pointer for type");
  expect_refused(encode("q8_0", of_x, of_short), "blocks: expected");
  expect_refused(encode("q8_0", of_odd, of_bytes), "whole blocks of 32");
  expect_refused(encode("q8_0", of_bytes, of_x), "values: expected");
  expect_refused(encode("q8_0", of_x, within), "memory that overlaps");
  expect_refused(steelyard_blocks_product(context_, nullptr, "q4_1", &of_bytes.tensor,
                                          &of_short.tensor, &of_x.tensor),
                 "got 'q4_1'");
  expect_refused(steelyard_blocks_product(context_, nullptr, "q4_0", &of_bytes.tensor,
                                          &of_short.tensor, &of_x.tensor),
                 "weights: expected");
}

}  // namespace
}  // namespace steelyard::c_test
