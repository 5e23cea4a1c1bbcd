// Networks of what imported graphs have besides layers: parts, borders, other orders and sizes,
// arithmetic with constants, products of values, norms. Some layers are quantized by w8a8().
#pragma once

#include <memory>
#include <string>

#include "steelyard/framework/ops/elementwise/activations.h"
#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "steelyard/framework/ops/elementwise/relu.h"
#include "steelyard/framework/ops/elementwise/unary.h"
#include "steelyard/framework/ops/moves/choose.h"
#include "steelyard/framework/ops/moves/concat.h"
#include "steelyard/framework/ops/moves/expand.h"
#include "steelyard/framework/ops/moves/flatten.h"
#include "steelyard/framework/ops/moves/input_part.h"
#include "steelyard/framework/ops/moves/output_parts.h"
#include "steelyard/framework/ops/moves/permute.h"
#include "steelyard/framework/ops/moves/resize.h"
#include "steelyard/framework/ops/moves/slice.h"
#include "steelyard/framework/ops/products/embedding.h"
#include "steelyard/framework/ops/products/matmul.h"
#include "steelyard/framework/ops/reductions/cumulative_sum.h"
#include "steelyard/framework/ops/reductions/extremes.h"
#include "steelyard/framework/ops/reductions/layer_norm.h"
#include "steelyard/framework/ops/reductions/pool.h"
#include "steelyard/framework/ops/reductions/softmax.h"
#include "steelyard/layers/norms/instance_norm.h"
#include "steelyard/layers/weighted/conv_transpose2d.h"
#include "steelyard/layers/weighted/gru.h"
#include "steelyard/layers/weighted/lstm.h"
#include "tests/export/export_support.h"

namespace steelyard::testing {

// The rows of a matrix [outputs, inputs] that each sum to 1.
inline ResizedAxis blended(std::int64_t inputs, std::int64_t outputs) {
  ResizedAxis axis{.inputs = inputs, .outputs = outputs};
  for (std::int64_t o = 0; o < outputs; ++o) {
    const std::int64_t first = o * (inputs - 1) / outputs;
    for (std::int64_t i = 0; i < inputs; ++i) {
      axis.weights.push_back(i == first ? 0.25 : i == first + 1 ? 0.75 : 0);
    }
  }
  return axis;
}

// Images [N, 9, 8, 3] to images [N, 8, 6, 2], in float but for its convolutions.
class ImageOperations : public Module {
 public:
  explicit ImageOperations(Rng& rng)
      : conv_(register_child("conv", conv(3, 4, 3, 1, rng))),
        norm_(register_child("norm", norm(4, 3))),
        up_(register_child(
            "up", std::make_shared<ConvTranspose2d>(ConvTranspose2dOptions{.in_channels = 4,
                                                                           .out_channels = 6,
                                                                           .kernel_size = {3, 2},
                                                                           .stride = {2, 1},
                                                                           .padding = {1, 0},
                                                                           .output_padding = {1, 0},
                                                                           .groups = 2},
                                                    rng))),
        own_norm_(register_child(
            "own_norm", std::make_shared<InstanceNorm>(InstanceNormOptions{.channels = 4}))),
        last_(register_child("last", conv(12, 2, 1, 1, rng))),
        scale_(register_parameter("scale", random_tensor({4}, 5, DType::kF32))),
        map_(register_parameter("map", random_tensor({9, 8, 1}, 6, DType::kF32))) {}

  Variable forward(const Variable& x, ForwardContext& context) override {
    Variable y = leaky_relu(norm_(leaky_relu(conv_(x, context), 0.3), context), 0.1);
    y = y * scale_ + map_;
    y = pad(1.5 - y / 2.0, {0, 1, 0, 0}, {0, 0, 2, 0}, 0.5);             // 10 x 10
    y = slice(y, {{0, y.dim(0), 1}, {8, 4, -2}, {1, 3, 3}, {0, 4, 1}});  // 4 x 3, backwards
    y = own_norm_(clamp(y, -1, 1.25), context);
    const Variable large = up_(y, context);  // 8 x 4 x 6
    const Variable twice = resize(y, {.repeats = 2, .inputs = 4, .outputs = 8}, blended(3, 4));
    y = concat(
        {large,
         concat({twice, slice(twice, {{0, y.dim(0), 1}, {0, 8, 1}, {0, 4, 1}, {1, 2, 1}})})});
    y = resize(y, blended(8, 8), {.repeats = 2, .inputs = 4, .outputs = 8});
    y = slice(y, {{0, y.dim(0), 1}, {0, 8, 1}, {1, 6, 1}, {0, 12, 1}});
    return last_(concat({slice(y, {{0, y.dim(0), 1}, {0, 3, 1}, {0, 6, 1}, {0, 12, 1}}),
                         slice(y, {{0, y.dim(0), 1}, {3, 5, 1}, {0, 6, 1}, {0, 12, 1}})},
                        1),
                 context);
  }
  std::string type_name() const override { return "ImageOperations"; }

 private:
  Slot& conv_;
  Slot& norm_;
  Slot& up_;
  Slot& own_norm_;
  Slot& last_;
  Variable scale_, map_;
};

// Images [N, 9, 8, 3] as a sequence of rows: one head of attention over them, a score for each row.
// What lies between is functions of numbers and rows of a table.
class Attention : public Module {
 public:
  explicit Attention(Rng& rng)
      : stem_(register_child("stem", conv(3, 4, 3, 2, rng))),
        query_(register_child("query", std::make_shared<Linear>(LinearOptions{16, 6}, rng))),
        key_(register_child("key", std::make_shared<Linear>(LinearOptions{16, 6}, rng))),
        value_(register_child("value", std::make_shared<Linear>(LinearOptions{16, 6}, rng))),
        scores_(register_child("scores", std::make_shared<Linear>(LinearOptions{6, 5}, rng))),
        matrix_(register_parameter("matrix", random_tensor({6, 6}, 7, DType::kF32))),
        table_(register_parameter("table", random_tensor({4, 6}, 10, DType::kF32))),
        gamma_(register_parameter("gamma", random_tensor({6}, 8, DType::kF32))),
        beta_(register_parameter("beta", random_tensor({6}, 9, DType::kF32))) {}

  Variable forward(const Variable& x, ForwardContext& context) override {
    const Variable image = stem_(x, context);  // [N, 5, 4, 4]
    const std::int64_t n = image.dim(0);
    const Variable rows = reshape(permute(image, {0, 2, 1, 3}), {n, 5, 16});
    const auto heads = [&](const Variable& all) {  // [N, 2, 5, 3]
      return permute(reshape(all, {n, 5, 2, 3}), {0, 2, 1, 3});
    };
    const Variable q = heads(query_(rows, context)), k = heads(key_(rows, context)),
                   v = heads(value_(rows, context));
    const Variable shares = softmax(matmul(q, transpose(k, 2, 3)) / 1.5);
    Variable y = reshape(permute(matmul(shares, v), {0, 2, 1, 3}), {n, 5, 6});
    y = gelu(layer_norm(matmul(y, matrix_), gamma_, beta_, 1e-3)) + looked_up(x);
    y = functions(y);
    return scores_(y - mean(y, {1}, ReducedAxes::kKeep), context);
  }
  std::string type_name() const override { return "Attention"; }

 private:
  // Rows of a table at what the input holds when it is rounded.
  Variable looked_up(const Variable& x) const {
    const std::int64_t n = x.dim(0);
    const Variable column = slice(x, {{0, n, 1}, {2, 5, 1}, {3, 1, 1}, {1, 1, 1}});
    return embedding(reshape(clamp(column * 2.0, 0, 3), {n, 5}), table_);
  }

  // Every function of one number, and extremes; shares are a softmax that is spelt out.
  Variable functions(const Variable& y) const {
    const Variable weights = exp(y - expand(amax(y, {2}, ReducedAxes::kKeep), y.shape()));
    const Variable shares = weights / sum(weights, {2}, ReducedAxes::kKeep);
    const Variable sizes = log(sqrt(abs(y) + 1.0)) + pow(abs(y) + 0.5, -0.75);
    const Variable bent = tanh_gelu(erf(y)) - tanh(maximum(y, gamma_));
    const Variable kept = masked(relu(y), y);  // 0 here and there
    return minimum(shares + sizes, bent) + newer(y) + log_softmax(y) * 0.125 + running(y) +
           divide_no_nan(kept * kept, kept) - reshape(amin(y, {1, 2}), {y.dim(0), 1, 1});
  }

  static Variable running(const Variable& y) {
    const Variable from_the_end = cumulative_sum(y, {.exclusive = true, .reverse = true});
    return (cumulative_sum(y) - from_the_end) * 0.0625;
  }

  // Steps far from where they rise, so that rounding moves none.
  static Variable newer(const Variable& y) {
    const Variable small = tanh(y) * 0.25;
    const Variable steps =
        sign(small - 1.0) + floor(small + 2.5) * ceil(small + 2.5) - round(small + 1.0);
    return elu(y, 0.75) * cos(y) - softplus(sin(y)) * steps;
  }

  // Other numbers at some positions, and where two values compare so.
  Variable masked(const Variable& x, const Variable& y) const {
    const Variable mask(Tensor::from<float>({0, 1, 1, 0, 1}, {5, 1})), none = constant(0, x);
    const Variable some = choose(Comparison::kGreater, mask, none, x, constant(0.5, x));
    const Variable capped = choose(Comparison::kGreaterEqual, gamma_, some, some, beta_ * beta_);
    return choose(Comparison::kEqual, relu(y), none, none, capped);
  }

  Slot& stem_;
  Slot& query_;
  Slot& key_;
  Slot& value_;
  Slot& scores_;
  Variable matrix_, table_, gamma_, beta_;
};

// An image and a row of numbers, which are the halves of images [N, 9, 8, 3].
class SeveralInputs : public Module {
 public:
  explicit SeveralInputs(Rng& rng)
      : conv_(register_child("conv", conv(4, 3, 3, 1, rng))),
        fc_(register_child("fc", std::make_shared<Linear>(LinearOptions{60, 3}, rng))) {}
  Variable forward(const Variable& x, ForwardContext& context) override {
    const Variable image = input_part(x, {.first = 76, .shape = {7, 5, 4}});
    const Variable row = input_part(x, {.first = 10, .shape = {60}});
    const Variable kinds = reshape(fc_(row, context), {x.dim(0), 1, 1, 3});
    return conv_(image, context) * kinds;
  }
  std::string type_name() const override { return "SeveralInputs"; }

 private:
  Slot& conv_;
  Slot& fc_;
};

// Of images [N, 9, 8, 3] an image of features, scores, and the image again, times 2 and as rows,
// which have an order of their own.
class SeveralOutputs : public Module {
 public:
  explicit SeveralOutputs(Rng& rng)
      : conv_(register_child("conv", conv(3, 4, 3, 1, rng))),
        fc_(register_child("fc", std::make_shared<Linear>(LinearOptions{4, 5}, rng))) {}
  Variable forward(const Variable& x, ForwardContext& context) override {
    const Variable image = conv_(x, context);
    const Variable scores = fc_(amax(image, {1, 2}), context);
    return output_parts({image, scores, image * 2.0, image, permute(image, {0, 3, 1, 2})});
  }
  std::string type_name() const override { return "SeveralOutputs"; }

 private:
  Slot& conv_;
  Slot& fc_;
};

// Pools of images [N, 9, 8, 3] with zeros around them, as wide as the window of one.
class PaddedPools : public Module {
 public:
  Variable forward(const Variable& x, ForwardContext&) override {
    const auto with_border = [](const Variable& y, std::int64_t width) {
      return pad(y, {0, width, width, 0}, {0, width, width, 0}, 0);
    };
    const Pool2dGeometry pool{.kernel = {3, 3}, .stride = {3, 3}};
    const Variable largest = max_pool2d(with_border(x - 3.0, 2), pool);  // 4 x 4
    const Variable means = avg_pool2d(with_border(x, 3), pool);          // 5 x 4
    return concat({flatten(largest), flatten(means)});
  }
  std::string type_name() const override { return "PaddedPools"; }
};

// The rows of images [N, 9, 8, 3] as a sequence, in both directions, and what they end with.
class Recurrent : public Module {
 public:
  explicit Recurrent(Rng& rng)
      : fc_(register_child("fc", std::make_shared<Linear>(LinearOptions{24, 6}, rng))),
        forward_(register_child("forward", std::make_shared<LSTM>(LstmLayerOptions{6, 5}, rng))),
        backward_(register_child(
            "backward", std::make_shared<LSTM>(
                            LstmLayerOptions{6, 5, {.reverse = true, .final_cell = true}}, rng))),
        scores_(register_child("scores", std::make_shared<Linear>(LinearOptions{10, 4}, rng))) {
    for (const NamedBuffer& buffer : backward_->named_buffers()) {
      buffer.tensor.copy_from(random_tensor({5}, 11, DType::kF32));
    }
  }

  Variable forward(const Variable& x, ForwardContext& context) override {
    const std::int64_t n = x.dim(0);
    const Variable rows = fc_(reshape(x, {n, 9, 24}), context);
    const Variable back = backward_(rows, context);  // and the cell
    const auto part = [&](std::int64_t first, std::int64_t count) {
      return slice(back, {{0, n, 1}, {first, count, 1}, {0, 5, 1}});
    };
    const Variable both = concat({forward_(rows, context), part(0, 9)});
    return scores_(both, context) * mean(part(9, 1), {2}, ReducedAxes::kKeep);
  }
  std::string type_name() const override { return "Recurrent"; }

 private:
  Slot& fc_;
  Slot& forward_;
  Slot& backward_;
  Slot& scores_;
};

// GRUs in both directions, one from a state that is not 0.
class Gated : public Module {
 public:
  explicit Gated(Rng& rng)
      : forward_(register_child("forward", std::make_shared<GRU>(GruLayerOptions{24, 6}, rng))),
        backward_(register_child(
            "backward", std::make_shared<GRU>(GruLayerOptions{24, 5, {.reverse = true}}, rng))),
        scores_(register_child("scores", std::make_shared<Linear>(LinearOptions{11, 4}, rng))) {
    for (const NamedBuffer& buffer : backward_->named_buffers()) {
      buffer.tensor.copy_from(random_tensor({5}, 11, DType::kF32));
    }
  }

  Variable forward(const Variable& x, ForwardContext& context) override {
    const Variable rows = reshape(x, {x.dim(0), 9, 24});
    return scores_(concat({forward_(rows, context), backward_(rows, context)}), context);
  }
  std::string type_name() const override { return "Gated"; }

 private:
  Slot& forward_;
  Slot& backward_;
  Slot& scores_;
};

inline std::shared_ptr<Module> gated(Rng& rng) { return std::make_shared<Gated>(rng); }
inline std::shared_ptr<Module> padded_pools(Rng&) { return std::make_shared<PaddedPools>(); }
inline std::shared_ptr<Module> recurrent(Rng& rng) { return std::make_shared<Recurrent>(rng); }
inline std::shared_ptr<Module> several_inputs(Rng& rng) {
  return std::make_shared<SeveralInputs>(rng);
}
inline std::shared_ptr<Module> several_outputs(Rng& rng) {
  return std::make_shared<SeveralOutputs>(rng);
}
inline std::shared_ptr<Module> image_operations(Rng& rng) {
  return std::make_shared<ImageOperations>(rng);
}
inline std::shared_ptr<Module> attention(Rng& rng) { return std::make_shared<Attention>(rng); }

}  // namespace steelyard::testing
