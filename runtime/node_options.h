// The options of deployed operations: a struct for each operation that has some. Their fields are
// the names under which files have them. Dimensions are those of a sample, counted from 0.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <variant>
#include <vector>

#include "steelyard/framework/ops/op_options.h"
#include "steelyard/framework/ops/products/conv_geometry.h"
#include "steelyard/framework/ops/reductions/pool_geometry.h"
#include "steelyard/framework/tensor/fields.h"
#include "steelyard/framework/tensor/tensor.h"

namespace steelyard::deploy {

struct NoOptions {
  static constexpr auto fields() { return std::tuple<>(); }
};

// slice: the positions of each dimension, from `first` on in `steps`.
struct Positions {
  std::vector<std::int64_t> first{};
  std::vector<std::int64_t> steps{};
  static constexpr auto fields() {
    return std::tuple(field("first", &Positions::first), field("steps", &Positions::steps));
  }
};

// input_part: the values of the input from `first` on, under a shape of their own.
struct PartOfInput {
  std::array<std::int64_t, 1> first{0};  // files hold a list
  Shape shape{};
  static constexpr auto fields() {
    return std::tuple(field("first", &PartOfInput::first), field("shape", &PartOfInput::shape));
  }
};

// sum, reduce_max, reduce_min: the dimensions that are reduced, in order.
struct ReducedDims {
  std::vector<std::int64_t> dims{};
  static constexpr auto fields() { return std::tuple(field("dims", &ReducedDims::dims)); }
};

// resize: of each row and column; 0 where weights [outputs, inputs], a constant, say it.
struct Repeats {
  std::array<std::int64_t, 2> repeats{1, 1};
  static constexpr auto fields() { return std::tuple(field("repeats", &Repeats::repeats)); }
};

// layer_norm
struct NormEpsilon {
  double eps = 0;
  static constexpr auto fields() { return std::tuple(field("eps", &NormEpsilon::eps)); }
};

using NodeOptions =
    std::variant<NoOptions, AxisOrder, Border, Bounds, Conv2dGeometry, ConvTranspose2dGeometry,
                 CumulativeSumOptions, EluOptions, Exponent, GruOptions, JoinedAxis, LstmOptions,
                 NegativeSlope, NewShape, NormEpsilon, PartOfInput, Pool2dGeometry, Positions,
                 ReducedDims, Repeats, kernels::Ramp>;

// f(name, value) for each option.
template <typename F>
void for_each_option(const NodeOptions& options, const F& f) {
  std::visit(
      [&](const auto& of) {
        for_each_field<std::decay_t<decltype(of)>>(
            [&](const auto& field) { f(field.name, field.get(of)); });
      },
      options);
}

// The option of that name and type; `otherwise` where an operation has none.
template <typename T>
T option_or(const NodeOptions& options, std::string_view name, T otherwise) {
  for_each_option(options, [&](const char* field, const auto& value) {
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, T>) {
      if (name == field) otherwise = value;
    }
  });
  return otherwise;
}

}  // namespace steelyard::deploy
