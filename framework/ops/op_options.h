// The options of operations that may be part of an exported model, each with its names.
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include "steelyard/framework/tensor/fields.h"
#include "steelyard/framework/tensor/tensor.h"
#include "steelyard/kernels/activation/activation.h"

namespace steelyard {

template <>
constexpr auto fields_of<kernels::Ramp>() {
  return std::tuple(field("slope", &kernels::Ramp::slope), field("offset", &kernels::Ramp::offset));
}

// The options of leaky_relu().
struct NegativeSlope {
  double slope = 0.01;
  static constexpr auto fields() { return std::tuple(field("slope", &NegativeSlope::slope)); }
};

// What clamp() keeps x within.
struct Bounds {
  double lo = 0, hi = 0;
  static constexpr auto fields() {
    return std::tuple(field("lo", &Bounds::lo), field("hi", &Bounds::hi));
  }
};

// The options of pow() and elu().
struct Exponent {
  double exponent = 1;
  static constexpr auto fields() { return std::tuple(field("exponent", &Exponent::exponent)); }
};
struct EluOptions {
  double alpha = 1;
  static constexpr auto fields() { return std::tuple(field("alpha", &EluOptions::alpha)); }
};

// Along which dimension values are joined: -1 is the last one.
struct JoinedAxis {
  std::int64_t axis = -1;
  static constexpr auto fields() {
    return std::tuple(field("axis", &JoinedAxis::axis, /*optional=*/true));
  }
};

// The options of permute(): dimension i of the output is dimension order[i] of the input.
struct AxisOrder {
  std::vector<std::int64_t> order{};
  static constexpr auto fields() { return std::tuple(field("order", &AxisOrder::order)); }
};

// The options of what gives another shape: reshape(), expand().
struct NewShape {
  Shape shape{};
  static constexpr auto fields() { return std::tuple(field("shape", &NewShape::shape)); }
};

// A border as exports read it: how many elements of `value` lie before each dimension.
struct Border {
  std::vector<std::int64_t> before{};
  double value = 0;
  static constexpr auto fields() {
    return std::tuple(field("before", &Border::before), field("value", &Border::value));
  }
};

// The options of cumulative_sum().
struct CumulativeSumOptions {
  bool exclusive = false;  // without the element itself
  bool reverse = false;    // from the last element to the first
  static constexpr auto fields() {
    return std::tuple(field("exclusive", &CumulativeSumOptions::exclusive),
                      field("reverse", &CumulativeSumOptions::reverse));
  }
};

// The options of gru() and lstm().
struct GruOptions {
  bool reverse = false;  // from the sequence's end to its beginning
  static constexpr auto fields() { return std::tuple(field("reverse", &GruOptions::reverse)); }
};
struct LstmOptions {
  bool reverse = false;     // from the sequence's end to its beginning
  bool final_cell = false;  // whether the cell after the last step follows the outputs
  static constexpr auto fields() {
    return std::tuple(field("reverse", &LstmOptions::reverse),
                      field("final_cell", &LstmOptions::final_cell));
  }
};

}  // namespace steelyard
