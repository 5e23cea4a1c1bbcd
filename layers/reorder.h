// Layers that move values: other shapes and orders, parts, borders, means over axes, resized
// images.
#pragma once

#include <array>
#include <vector>

#include "steelyard/framework/ops/slice.h"
#include "steelyard/layers/graph.h"

namespace steelyard {

// Dimension i of the output is dimension order[i] of the input.
class Permute : public Module {
 public:
  explicit Permute(std::vector<std::int64_t> order) : order_(std::move(order)) {}
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "Permute"; }
  std::string description() const override;

 private:
  std::vector<std::int64_t> order_;
};

// The same elements under another shape; -1, at most once, is what is left.
class Reshape : public Module {
 public:
  explicit Reshape(Shape shape);
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "Reshape"; }
  std::string description() const override;

 private:
  Shape shape_;
};

// Part of one dimension, counted from 0.
class Slice : public Module {
 public:
  Slice(std::int64_t axis, const TakenAxis& taken) : axis_(axis), taken_(taken) {}
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "Slice"; }

 private:
  std::int64_t axis_;
  TakenAxis taken_;
};

// A border of constant values: pairs of before and after, one for each dimension.
class Pad : public Module {
 public:
  Pad(std::vector<std::int64_t> before, std::vector<std::int64_t> after, double value)
      : before_(std::move(before)), after_(std::move(after)), value_(value) {}
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "Pad"; }

 private:
  std::vector<std::int64_t> before_, after_;
  double value_;
};

enum class Reduction { kSum, kMean };

// The sum or mean over some dimensions, which stay with size 1 or go.
class Reduce : public Module {
 public:
  Reduce(Reduction reduction, std::vector<std::int64_t> axes, bool keep)
      : reduction_(reduction), axes_(std::move(axes)), keep_(keep) {}
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override {
    return reduction_ == Reduction::kSum ? "ReduceSum" : "ReduceMean";
  }

 private:
  Reduction reduction_;
  std::vector<std::int64_t> axes_;
  bool keep_;
};

// The inputs one after another along a dimension, counted from 0. (Cat, in layers/graph.h, joins
// the last one.)
class CatAxis : public JoinModule {
 public:
  explicit CatAxis(std::int64_t axis) : axis_(axis) {}
  Variable join(const std::vector<Variable>& inputs, ForwardContext& context) override;
  std::string type_name() const override { return "CatAxis"; }

 private:
  std::int64_t axis_;
};

// How one dimension is resized: each output is a weighted sum of inputs.
struct ResizedAxis {
  std::int64_t repeats = 0;  // each input so often; 0: by the weights
  std::int64_t inputs = 0;   // sizes
  std::int64_t outputs = 0;
  std::vector<double> weights{};  // [outputs, inputs]
};

// [N, H, W, C] with other heights and widths.
class Resize : public Module {
 public:
  Resize(ResizedAxis height, ResizedAxis width);
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "Resize"; }
  std::string description() const override;

 private:
  ResizedAxis height_, width_;
  std::array<Tensor, 2> weights_;  // f64, on the CPU; undefined for repeats
};

}  // namespace steelyard
