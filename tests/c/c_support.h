// Arrays and contexts for tests of the C face.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "steelyard/c/steelyard_c_plans.h"

namespace steelyard::c_face {

// A context that ends with the object.
class Context {
 public:
  Context() { EXPECT_EQ(steelyard_context_create(&context_), STEELYARD_OK); }
  ~Context() { steelyard_context_destroy(context_); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  operator steelyard_context*() const { return context_; }  // NOLINT: stands for it
  std::string message() const { return steelyard_context_message(context_); }

 private:
  steelyard_context* context_ = nullptr;
};

template <typename T>
DLDataType type_of() {
  constexpr auto kBits = static_cast<std::uint8_t>(sizeof(T) * 8);
  if constexpr (std::is_floating_point_v<T>) {
    return {kDLFloat, kBits, 1};
  } else {
    return {static_cast<std::uint8_t>(std::is_signed_v<T> ? kDLInt : kDLUInt), kBits, 1};
  }
}

// A dense array of the host with its view.
template <typename T>
struct Array {
  Array(std::vector<T> of, std::vector<std::int64_t> shaped)
      : values(std::move(of)), shape(std::move(shaped)) {
    view = {values.data(),
            {kDLCPU, 0},
            static_cast<std::int32_t>(shape.size()),
            type_of<T>(),
            shape.data(),
            nullptr,
            0};
  }
  explicit Array(std::vector<T> of)
      : Array(of, {static_cast<std::int64_t>(of.size())}) {}  // NOLINT: two copies of a few numbers
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  std::vector<T> values;
  std::vector<std::int64_t> shape;
  DLTensor view = {};
};

// Numbers of both signs between -2 and 2, none of which lies on a tie of a scale of tenths.
inline std::vector<float> wave(std::size_t n) {
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) {
    values[i] = static_cast<float>(static_cast<int>(i * 37 % 101) - 50) * 0.0391F;
  }
  return values;
}

// Ends what a *_create function made.
struct Destroy {
  void operator()(steelyard_plan* plan) const { steelyard_plan_destroy(plan); }
  void operator()(steelyard_observer* observer) const { steelyard_observer_destroy(observer); }
  void operator()(DLManagedTensor* tensor) const { tensor->deleter(tensor); }
};

}  // namespace steelyard::c_face
