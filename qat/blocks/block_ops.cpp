#include "steelyard/qat/blocks/block_ops.h"

#include <stdexcept>

#include "steelyard/framework/autograd/shapes_only.h"
#include "steelyard/framework/ops/op_support.h"
#include "steelyard/framework/ops/reductions/column_sums.h"
#include "steelyard/framework/tensor/visit_blocks.h"
#include "steelyard/kernels/elementwise/elementwise.h"
#include "steelyard/kernels/ggml_blocks/ggml_blocks.h"
#include "steelyard/kernels/matmul/matmul.h"

namespace steelyard::qat {
namespace {

using kernels::BlockType;

// The blocks u8 [rows, bytes] of x f32 [..., F].
template <class Format>
Tensor encoded(const Tensor& x) {
  const std::int64_t width = x.dim(-1), in_row = width / Format::kElements;
  const std::int64_t rows = x.size() / width;
  Tensor blocks = Tensor::empty({rows, in_row * Format::kBytes}, DType::kU8, x.device());
  run(x.device(), kernels::EncodeBlocks<Format>{.n = rows * in_row,
                                                .x = x.data<float>(),
                                                .scales = nullptr,
                                                .blocks = blocks.data<std::uint8_t>()});
  return blocks;
}

// Their values f32, of that shape.
template <class Format>
Tensor decoded(const Tensor& blocks, const Shape& shape) {
  Tensor values = Tensor::empty(shape, DType::kF32, blocks.device());
  run(blocks.device(), kernels::DecodeBlocks<Format>{.n = values.size() / Format::kElements,
                                                     .blocks = blocks.data<std::uint8_t>(),
                                                     .x = values.data<float>()});
  return values;
}

class BlockValuesFunction : public Function {
 public:
  std::string name() const override { return "block_values"; }
  std::vector<Tensor> backward(const Tensor& grad_output) const override { return {grad_output}; }
};

struct ProductShape {
  std::int64_t rows, in, out;
};

template <class Format>
class BlockLinearFunction : public Function {
 public:
  BlockLinearFunction(const ProductShape& shape, Shape x_shape, const Tensor& inputs,
                      const Tensor& weights)
      : shape_(shape), x_shape_(std::move(x_shape)) {
    save(inputs);
    save(weights);
  }

  std::string name() const override { return "block_linear"; }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    const auto& [rows, in, out] = shape_;
    const float* grad_y = grad_output.data<float>();
    const Device device = grad_output.device();
    std::vector<Tensor> grads(inputs().size());
    if (needs_grad(0)) {
      const Tensor weights = decoded<Format>(saved()[1], {out, in});
      grads[0] = Tensor::empty(x_shape_, DType::kF32, device);
      run(device, kernels::Matmul<float>{.shape = {.m = rows, .n = in, .k = out},
                                         .a = grad_y,
                                         .b = weights.data<float>(),
                                         .c = grads[0].data<float>()});
    }
    if (needs_grad(1)) {
      const Tensor values = decoded<kernels::Q8_0Blocks>(saved()[0], {rows, in});
      grads[1] = Tensor::empty({out, in}, DType::kF32, device);
      run(device,
          kernels::Matmul<float>{.shape = {.m = out, .n = in, .k = rows, .transpose_a = true},
                                 .a = grad_y,
                                 .b = values.data<float>(),
                                 .c = grads[1].data<float>()});
    }
    if (grads.size() > 2 && needs_grad(2)) grads[2] = ops::column_sums<float>(grad_output);
    return grads;
  }

 private:
  ProductShape shape_;
  Shape x_shape_;
};

// y [..., out] of inputs that are blocks of x [..., in].
template <class Format>
Tensor multiplied(const ProductShape& shape, const Shape& x_shape, const Tensor& inputs,
                  const Tensor& weights, const Variable& bias) {
  Shape y_shape = x_shape;
  y_shape.back() = shape.out;
  Tensor y = Tensor::empty(std::move(y_shape), DType::kF32, inputs.device());
  run(y.device(), kernels::BlockProduct<Format>{.rows = shape.rows,
                                                .columns = shape.out,
                                                .terms = shape.in,
                                                .inputs = inputs.data<std::uint8_t>(),
                                                .weights = weights.data<std::uint8_t>(),
                                                .y = y.data<float>()});
  if (bias.defined()) {
    run(y.device(), kernels::AddBias<float>{.rows = shape.rows,
                                            .channels = shape.out,
                                            .x = y.data<float>(),
                                            .bias = bias.value().data<float>(),
                                            .y = y.data<float>()});
  }
  return y;
}

template <class Format>
Variable product(const ProductShape& shape, const Variable& x, const Variable& weight,
                 const Variable& bias, const BlockScheme& scheme) {
  const Tensor inputs = encoded<kernels::InputBlocks>(x.value());
  const Tensor weights = encoded_blocks(weight.value(), scheme);
  const Tensor y = multiplied<Format>(shape, x.shape(), inputs, weights, bias);
  if (!should_record({x, weight, bias})) return Variable(y);
  return record(y, std::make_shared<BlockLinearFunction<Format>>(shape, x.shape(), inputs, weights),
                {x, weight, bias});
}

// f(Format()) for the types that there are products of.
template <class F>
Variable visit_products(BlockType type, const F& f) {
  switch (type) {
    case BlockType::kQ4_0:
      return f(kernels::Q4_0Blocks());
    case BlockType::kQ8_0:
      return f(kernels::Q8_0Blocks());
    case BlockType::kIq4Nl:
      return f(kernels::Iq4NlBlocks());
    case BlockType::kMxfp4:
      return f(kernels::Mxfp4Blocks());
    default:
      throw std::invalid_argument("[block_linear] expected q4_0, q8_0, iq4_nl or mxfp4, got " +
                                  std::string(kernels::ggml_type(type).name));
  }
}

Variable shape_alone(const Variable& x, std::int64_t out) {
  Shape shape = x.shape();
  shape.back() = out;
  return Variable(Tensor::zeros(shape, DType::kF32, x.value().device()));
}

void require_f32(const char* op, const char* what, const Variable& x) {
  ops::require_defined(op, what, x);
  if (x.dtype() != DType::kF32) {
    ops::fail(op, std::string(what) + " of dtype f32", std::string(dtype_name(x.dtype())));
  }
  if (x.shape().empty()) ops::fail(op, std::string(what) + " [..., F]", "[]");
}

}  // namespace

void require_whole_blocks(const std::string& what, std::int64_t width, BlockType type) {
  const std::int64_t elements = kernels::ggml_type(type).elements;
  if (width > 0 && width % elements == 0) return;
  throw std::invalid_argument(
      what + ": expected rows of whole blocks of " + std::to_string(elements) + " for " +
      std::string(kernels::ggml_type(type).name) + ", got rows of " + std::to_string(width));
}

Variable block_values(const Variable& x, const BlockScheme& scheme) {
  require_f32("block_values", "values", x);
  require_whole_blocks("[block_values]", x.dim(-1), scheme.type);
  const Tensor blocks = encoded_blocks(x.value(), scheme);
  Tensor y = visit_blocks(
      scheme.type, [&](auto format) { return decoded<decltype(format)>(blocks, x.shape()); });
  if (!should_record({x})) return Variable(y);
  return record(y, std::make_shared<BlockValuesFunction>(), {x});
}

Variable block_linear(const Variable& x, const Variable& weight, const Variable& bias,
                      const BlockScheme& scheme) {
  require_f32("block_linear", "an input", x);
  require_f32("block_linear", "a weight", weight);
  const std::int64_t in = x.dim(-1);
  if (weight.shape().size() != 2 || weight.dim(1) != in) {
    ops::fail("block_linear", "weight [out, " + std::to_string(in) + "]",
              shape_string(weight.shape()));
  }
  ops::require_vector("block_linear", "bias", weight.dim(0), bias);
  ops::require_same_dtype("block_linear", "bias", x, bias);
  require_whole_blocks("[block_linear]", in, scheme.type);
  if (shapes_only()) return shape_alone(x, weight.dim(0));
  return visit_products(scheme.type, [&](auto format) {
    return product<decltype(format)>({x.value().size() / in, in, weight.dim(0)}, x, weight, bias,
                                     scheme);
  });
}

Variable stored_block_linear(const Variable& x, const Tensor& weight, const Variable& bias,
                             BlockType type) {
  require_f32("stored_block_linear", "an input", x);
  const std::int64_t in = x.dim(-1);
  require_whole_blocks("[stored_block_linear]", in, type);
  const kernels::GgmlType& layout = kernels::ggml_type(type);
  const std::int64_t bytes = in / layout.elements * layout.bytes;
  if (weight.dtype() != DType::kU8 || weight.rank() != 2 || weight.dim(1) != bytes) {
    ops::fail("stored_block_linear", "blocks u8 [out, " + std::to_string(bytes) + "]",
              shape_string(weight.shape()));
  }
  ops::require_vector("stored_block_linear", "bias", weight.dim(0), bias);
  if (shapes_only()) return shape_alone(x, weight.dim(0));
  return visit_products(type, [&](auto format) {
    return Variable(
        multiplied<decltype(format)>({x.value().size() / in, in, weight.dim(0)}, x.shape(),
                                     encoded<kernels::InputBlocks>(x.value()), weight, bias));
  });
}

Tensor encoded_blocks(const Tensor& x, const BlockScheme& scheme) {
  return visit_block_makers(scheme.type, scheme.scales == BlockScales::kSearch,
                            [&](auto maker) { return encoded<decltype(maker)>(x); });
}

bool has_block_product(BlockType type) {
  return type == BlockType::kQ4_0 || type == BlockType::kQ8_0 || type == BlockType::kIq4Nl ||
         type == BlockType::kMxfp4;
}

std::string to_string(const BlockScheme& scheme) {
  return std::string(kernels::ggml_type(scheme.type).name) +
         (scheme.scales == BlockScales::kSearch ? ", searched scales" : "");
}

}  // namespace steelyard::qat
