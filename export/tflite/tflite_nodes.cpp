#include "steelyard/export/tflite/tflite_nodes.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "steelyard/export/packed_codes.h"

namespace steelyard::deploy {
namespace {

constexpr std::int32_t kSame = 0, kValid = 1;  // of the schema
constexpr std::uint8_t kPadOptions = 22, kPadV2Options = 43;

static_assert(std::endian::native == std::endian::little, "TFLite files are little-endian");

template <typename T>
std::string raw_bytes(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

// Whether SAME means this padding: as many windows, the first of which begins there.
bool is_same_padding(std::int64_t size, const TfliteWindows& w, std::size_t side) {
  const std::int64_t reach = (w.kernel[side] - 1) * w.dilation[side] + 1;
  const std::int64_t stride = w.stride[side], padding = w.padding[side];
  const std::int64_t windows = (size + 2 * padding - reach) / stride + 1;
  const std::int64_t same = (size + stride - 1) / stride;
  const std::int64_t total = std::max<std::int64_t>((same - 1) * stride + reach - size, 0);
  return windows == same && total / 2 == padding;
}

}  // namespace

TfliteQuantization tflite_quantization(const Quantization& q) {
  return {{q.scale}, {q.zero_point}, 0};
}

std::vector<std::int32_t> tflite_positions(std::int32_t of_batch,
                                           const std::vector<std::int64_t>& of_sample) {
  std::vector<std::int32_t> positions{of_batch};
  for (const std::int64_t at : of_sample) positions.push_back(static_cast<std::int32_t>(at));
  return positions;
}

const Node* tflite_flattened(const Graph& graph, std::size_t value) {
  if (value == graph.output) return nullptr;
  const Node* flatten = nullptr;
  for (const Node& node : graph.nodes) {
    if (node.output == value && node.op == Op::kFlatten) flatten = &node;
    const bool reads = std::count(node.inputs.begin(), node.inputs.end(), value) > 0;
    if (reads && node.op != Op::kLinear) return nullptr;
  }
  if (flatten == nullptr) return nullptr;
  const Shape& image = graph.values[flatten->inputs[0]].shape;
  return image.size() == 3 && image[2] > 1 && image[0] * image[1] > 1 ? flatten : nullptr;
}

void add_tflite_reshape(TfliteNodes& nodes, const Node& node, std::int32_t input) {
  const std::vector<std::int32_t> shape = nodes.batch_shape(node.output);
  const std::int32_t sizes =
      nodes.int32s(node.name + "/shape", shape, {static_cast<std::int32_t>(shape.size())});
  nodes.add(TfliteOp::kReshape, 1, {input, sizes}, nodes.output(node), {.table = 17});
}

std::int32_t tflite_activation(kernels::Activation activation) {
  switch (activation) {
    case kernels::Activation::kRelu:
      return 1;
    case kernels::Activation::kRelu6:
      return 3;
    case kernels::Activation::kNone:
      break;
  }
  return 0;
}

TfliteNodes::TfliteNodes(const Graph& graph, bool pack_int4)
    : graph_(graph), pack_int4_(pack_int4) {
  for (std::size_t i = 0; i < graph.values.size(); ++i) {
    const Value& value = graph.values[i];
    if (!value.quantization) continue;  // the input's floats
    tensors_[i] = add_tensor({.name = value.name,
                              .shape = batch_shape(i),
                              .quantization = tflite_quantization(*value.quantization)});
  }
}

std::vector<std::int32_t> TfliteNodes::batch_shape(std::size_t value) const {
  return tflite_positions(1, graph_.values[value].shape);
}

std::int32_t TfliteNodes::add_tensor(TfliteTensor tensor) {
  model_.tensors.push_back(std::move(tensor));
  return static_cast<std::int32_t>(model_.tensors.size()) - 1;
}

std::uint32_t TfliteNodes::buffer_of(std::string bytes) {
  const auto [found, is_new] =
      buffers_.emplace(std::move(bytes), static_cast<std::uint32_t>(model_.buffers.size()));
  if (is_new) model_.buffers.push_back(found->first);
  return found->second;
}

std::int32_t TfliteNodes::computed(const std::string& name, std::vector<std::int32_t> shape,
                                   const Quantization& q) {
  return add_tensor(
      {.name = name, .shape = std::move(shape), .quantization = tflite_quantization(q)});
}

std::int32_t TfliteNodes::variable(const std::string& name, std::vector<std::int32_t> shape,
                                   TfliteQuantization q, TfliteType type) {
  return add_tensor({.name = name,
                     .shape = std::move(shape),
                     .type = type,
                     .quantization = std::move(q),
                     .is_variable = true});
}

std::int32_t TfliteNodes::codes(const std::string& name, std::span<const std::int8_t> values,
                                std::vector<std::int32_t> shape, TfliteQuantization q,
                                TfliteType type) {
  return add_tensor(
      {.name = name,
       .shape = std::move(shape),
       .type = type,
       .buffer = buffer_of(type == TfliteType::kInt4 ? packed_codes(values, 4) : raw_bytes(values)),
       .quantization = std::move(q)});
}

std::int32_t TfliteNodes::int32s(const std::string& name, std::span<const std::int32_t> values,
                                 std::vector<std::int32_t> shape,
                                 std::optional<TfliteQuantization> q) {
  return add_tensor({.name = name,
                     .shape = std::move(shape),
                     .type = TfliteType::kInt32,
                     .buffer = buffer_of(raw_bytes(values)),
                     .quantization = std::move(q)});
}

std::int32_t TfliteNodes::resource(const std::string& name) {
  return add_tensor({.name = name, .shape = {1}, .type = TfliteType::kResource});
}

void TfliteNodes::add(TfliteOp op, std::int32_t version, std::vector<std::int32_t> inputs,
                      std::optional<std::int32_t> output, TfliteOptions options) {
  model_.operators.push_back({.op = op,
                              .version = version,
                              .inputs = std::move(inputs),
                              .outputs = {},
                              .options = std::move(options)});
  if (output) model_.operators.back().outputs.push_back(*output);
}

TfliteNodes::Padded TfliteNodes::padded(const Node& node, const TfliteWindows& windows,
                                        std::int8_t border) {
  const Shape& in = graph_.values[node.inputs[0]].shape;
  const std::array<std::int64_t, 2>& padding = windows.padding;
  if (padding == std::array<std::int64_t, 2>{0, 0}) return {input(node), kValid};
  if (is_same_padding(in[0], windows, 0) && is_same_padding(in[1], windows, 1)) {
    return {input(node), kSame};
  }
  const Quantization& q = input_quantization(node);
  const auto rows = static_cast<std::int32_t>(padding[0]);
  const auto columns = static_cast<std::int32_t>(padding[1]);
  const std::vector<std::int32_t> pads{0, 0, rows, rows, columns, columns, 0, 0};
  std::vector<std::int32_t> shape = batch_shape(node.inputs[0]);
  shape[1] += 2 * rows;
  shape[2] += 2 * columns;
  const std::int32_t bordered = computed(node.name + "/padded", shape, q);
  std::vector<std::int32_t> inputs{input(node), int32s(node.name + "/paddings", pads, {4, 2})};
  if (border == q.zero_point) {
    add(TfliteOp::kPad, 2, inputs, bordered, {.table = kPadOptions});
  } else {
    inputs.push_back(codes(node.name + "/border", {&border, 1}, {1}, tflite_quantization(q)));
    add(TfliteOp::kPadV2, 2, inputs, bordered, {.table = kPadV2Options});
  }
  return {bordered, kValid};
}

void TfliteNodes::add_metadata(const std::string& name, const std::string& text) {
  model_.metadata.emplace_back(name, buffer_of(text));
}

}  // namespace steelyard::deploy
