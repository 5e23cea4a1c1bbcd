// Images of other sizes: pixels that repeat, which codes can do too, or weighted sums of pixels.
#include "steelyard/runtime/ops/resize.h"

#include <cstddef>
#include <cstring>

#include "steelyard/runtime/ops/moves.h"
#include "steelyard/runtime/ops/rows.h"

namespace steelyard::deploy {
namespace {

constexpr const char* kSides[] = {"height", "width"};

Shape shape(const Graph& graph, const Node& node) {
  const Shape& in = graph.values[node.inputs[0]].shape;
  expect(in.size() == 3, node, "expected an image, got " + shape_string(in));
  Shape out = in;
  std::size_t weighted = 0;
  for (std::size_t side = 0; side < 2; ++side) {
    if (repeats_of(node)[side] > 0) {
      out[side] *= repeats_of(node)[side];
      continue;
    }
    ++weighted;
    const Tensor* weights = constant_at(node, place_of(node, side));
    expect(weights != nullptr && weights->rank() == 2 && weights->dim(1) == in[side], node,
           std::string("expected weights [outputs, inputs] of the ") + kSides[side]);
    out[side] = weights->dim(0);
  }
  expect(node.constants.size() == weighted, node, "wrong number of weights");
  return out;
}

void check(const Graph& graph, const Node& node) {
  expect(node.constants.empty() || !graph.values[node.output].quantization, node,
         "sums of pixels are computed in float");
}

// Each row and column so often.
Tensor repeated(const Operands& op) {
  const auto [rows, columns] = repeats_of(op.node);
  const Shape& in = op.input_value(0).shape;
  const std::int64_t width = in[1], channels = in[2];
  move(op, 0, [=](std::int64_t i) {
    const std::int64_t pixel = i / channels, to_width = width * columns;
    return (pixel / to_width / rows * width + pixel % to_width / columns) * channels + i % channels;
  });
  return op.output();
}

// x [N, H, W, C] with sums along one side.
Tensor weighted(const Tensor& x, std::size_t side, const Tensor& weights) {
  Shape shape = x.shape();
  shape[side + 1] = weights.dim(0);
  Tensor y = Tensor::empty(shape);
  const std::int64_t inputs = weights.dim(1), outputs = weights.dim(0);
  const std::int64_t inner = side == 0 ? x.dim(2) * x.dim(3) : x.dim(3);
  fill_floats(y, [&](std::int64_t i) {
    const std::int64_t o = i / inner % outputs, first = i / inner / outputs * inputs;
    double sum = 0;
    for (std::int64_t k = 0; k < inputs; ++k) {
      sum += double{weights.data<float>()[o * inputs + k]} *
             double{x.data<float>()[(first + k) * inner + i % inner]};
    }
    return static_cast<float>(sum);
  });
  return y;
}

void reference(const Operands& op) {
  if (op.node.constants.empty()) {
    repeated(op);
    return;
  }
  Tensor y = dequantized(op.input_value(0), op.input(0));
  for (std::size_t side = 0; side < 2; ++side) {
    if (repeats_of(op.node)[side] > 1) {
      Tensor ones =
          Tensor::zeros({y.dim(static_cast<std::int64_t>(side) + 1) * repeats_of(op.node)[side],
                         y.dim(static_cast<std::int64_t>(side) + 1)});
      for (std::int64_t o = 0; o < ones.dim(0); ++o) {
        ones.data<float>()[o * ones.dim(1) + o / repeats_of(op.node)[side]] = 1;
      }
      y = weighted(y, side, ones);
    } else if (repeats_of(op.node)[side] == 0) {
      y = weighted(y, side, *constant_at(op.node, place_of(op.node, side)));
    }
  }
  fill_floats(op.output(), [&](std::int64_t i) { return y.data<float>()[i]; });
}

// repeated() where elements stay as they are: each pixel is copied along its row, then the row.
bool copy_pixels(const Operands& op) {
  const Tensor &x = op.input(0), &y = op.output();
  if (!op.node.constants.empty() || x.dtype() != y.dtype() || x.size() == 0) return false;
  const std::int64_t rows = repeats_of(op.node)[0], columns = repeats_of(op.node)[1];
  const std::int64_t lines = x.dim(0) * x.dim(1), width = x.dim(2);
  const auto pixel = static_cast<std::size_t>(x.bytes() / (lines * width));
  const std::size_t row = pixel * static_cast<std::size_t>(width * columns);
  const auto* const from = static_cast<const std::byte*>(x.raw());
  auto* const to = static_cast<std::byte*>(y.raw());
#pragma omp parallel for if (y.size() >= kElementsForThreads)
  for (std::int64_t line = 0; line < lines; ++line) {
    const std::byte* source = from + static_cast<std::size_t>(line * width) * pixel;
    std::byte* const first = to + static_cast<std::size_t>(line * rows) * row;
    std::byte* at = first;
    for (std::int64_t i = 0; i < width; ++i, source += pixel) {
      for (std::int64_t k = 0; k < columns; ++k, at += pixel) std::memcpy(at, source, pixel);
    }
    for (std::int64_t k = 1; k < rows; ++k, at += row) std::memcpy(at, first, row);
  }
  return true;
}

}  // namespace

OpInfo resize_op() {
  return {.op = Op::kResize,
          .name = "resize",
          .inputs = 3,
          .optional = 2,
          .takes_constants = true,
          .keeps_codes = true,
          .rounds_floats = true,
          .options = Repeats{},
          .graph_version = 5,
          .shape = shape,
          .check = check,
          .reference = reference,
          .fast = copy_pixels};
}

}  // namespace steelyard::deploy
