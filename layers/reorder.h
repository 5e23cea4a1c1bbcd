// Layers that move values: other shapes and orders, parts, borders, repeated elements, reductions
// over axes and running sums, resized images.
#pragma once

#include <vector>

#include "steelyard/framework/ops/moves/resize.h"
#include "steelyard/framework/ops/moves/slice.h"
#include "steelyard/framework/ops/op_options.h"
#include "steelyard/framework/tensor/fields.h"
#include "steelyard/layers/containers/graph.h"

namespace steelyard {

// Dimension i of the output is dimension order[i] of the input.
class Permute : public Module {
 public:
  explicit Permute(std::vector<std::int64_t> order) : order_(std::move(order)) {}
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "Permute"; }
  std::string description() const override;
  const std::vector<std::int64_t>& order() const { return order_; }

 private:
  std::vector<std::int64_t> order_;
};

// Another shape for the same elements; -1, at most once, is what is left, and 0 the size that the
// input has there.
class Reshape : public Module {
 public:
  explicit Reshape(Shape shape);
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "Reshape"; }
  std::string description() const override;
  const Shape& shape() const { return shape_; }
  // The shape of the output for an input of this shape. Throws std::invalid_argument where it does
  // not fit.
  Shape shape_for(const Shape& input) const;

 private:
  Shape shape_;
};

struct SliceOptions {
  std::int64_t axis = 0;  // counted from 0, the batch's
  TakenAxis taken{};
  static constexpr auto fields() {
    return std::tuple_cat(std::tuple(field("axis", &SliceOptions::axis)),
                          fields_within(&SliceOptions::taken));
  }
};

// Part of one dimension, counted from 0.
class Slice : public Module {
 public:
  Slice(std::int64_t axis, const TakenAxis& taken) : axis_(axis), taken_(taken) {}
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "Slice"; }
  std::int64_t axis() const { return axis_; }
  const TakenAxis& taken() const { return taken_; }
  // The positions along all dimensions of an input of this shape.
  std::vector<TakenAxis> taken_of(const Shape& input) const;

 private:
  std::int64_t axis_;
  TakenAxis taken_;
};

// cumulative_sum() along the last dimension.
class CumulativeSum : public Module {
 public:
  explicit CumulativeSum(const CumulativeSumOptions& options) : options_(options) {}
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "CumulativeSum"; }

 private:
  CumulativeSumOptions options_;
};

struct PadOptions {
  std::vector<std::int64_t> before{}, after{};
  double value = 0;
  static constexpr auto fields() {
    return std::tuple(field("before", &PadOptions::before), field("after", &PadOptions::after),
                      field("value", &PadOptions::value));
  }
};

// A border of constant values: pairs of before and after, one for each dimension.
class Pad : public Module {
 public:
  Pad(std::vector<std::int64_t> before, std::vector<std::int64_t> after, double value)
      : before_(std::move(before)), after_(std::move(after)), value_(value) {}
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "Pad"; }
  const std::vector<std::int64_t>& before() const { return before_; }
  const std::vector<std::int64_t>& after() const { return after_; }
  double value() const { return value_; }

 private:
  std::vector<std::int64_t> before_, after_;
  double value_;
};

// The elements repeated to a shape that has as many dimensions or more; -1 is a size of the input.
class Expand : public Module {
 public:
  explicit Expand(Shape shape) : shape_(std::move(shape)) {}
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "Expand"; }
  std::string description() const override;

 private:
  Shape shape_;
};

enum class Reduction { kSum, kMean, kMax, kMin };

struct ReduceOptions {
  std::vector<std::int64_t> axes{};
  bool keep = false;
  static constexpr auto fields() {
    return std::tuple(field("axes", &ReduceOptions::axes), field("keep", &ReduceOptions::keep));
  }
};

// The sum, mean, largest or smallest element over some dimensions, which stay with size 1 or go.
class Reduce : public Module {
 public:
  Reduce(Reduction reduction, std::vector<std::int64_t> axes, bool keep)
      : reduction_(reduction), axes_(std::move(axes)), keep_(keep) {}
  Variable forward(const Variable& x, ForwardContext& context) override;
  // "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin".
  std::string type_name() const override;
  Reduction reduction() const { return reduction_; }
  const std::vector<std::int64_t>& axes() const { return axes_; }
  bool keep() const { return keep_; }

 private:
  Reduction reduction_;
  std::vector<std::int64_t> axes_;
  bool keep_;
};

// The inputs one after another along a dimension, counted from 0. (Cat, in
// layers/containers/graph.h, joins the last one.)
class CatAxis : public JoinModule {
 public:
  explicit CatAxis(std::int64_t axis) : axis_(axis) {}
  Variable join(const std::vector<Variable>& inputs, ForwardContext& context) override;
  std::string type_name() const override { return "CatAxis"; }

 private:
  std::int64_t axis_;
};

struct ResizeOptions {
  ResizedAxis height{}, width{};
  static constexpr auto fields() {
    constexpr auto axis = [](const char* repeats, const char* in, const char* out,
                             const char* weights) {
      return std::tuple(field(repeats, &ResizedAxis::repeats),
                        field(in, &ResizedAxis::inputs, /*optional=*/true),
                        field(out, &ResizedAxis::outputs, /*optional=*/true),
                        field(weights, &ResizedAxis::weights, /*optional=*/true));
    };
    return std::tuple_cat(
        fields_within(&ResizeOptions::height,
                      axis("height_repeats", "height_in", "height_out", "height_weights")),
        fields_within(&ResizeOptions::width,
                      axis("width_repeats", "width_in", "width_out", "width_weights")));
  }
};

// [N, H, W, C] with other heights and widths.
class Resize : public Module {
 public:
  Resize(ResizedAxis height, ResizedAxis width)
      : height_(std::move(height)), width_(std::move(width)) {}
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "Resize"; }
  std::string description() const override;
  const ResizedAxis& height() const { return height_; }
  const ResizedAxis& width() const { return width_; }

 private:
  ResizedAxis height_, width_;
};

}  // namespace steelyard
