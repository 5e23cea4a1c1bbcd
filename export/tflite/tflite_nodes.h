// What the rows of operations (op_info.h) write the nodes of a TFLite file with.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "steelyard/export/tflite/tflite_model.h"
#include "steelyard/runtime/graph.h"

namespace steelyard::deploy {

// One window operation along height and width.
struct TfliteWindows {
  std::array<std::int64_t, 2> kernel{1, 1};  // dilation left aside
  std::array<std::int64_t, 2> stride{1, 1};
  std::array<std::int64_t, 2> padding{0, 0};
  std::array<std::int64_t, 2> dilation{1, 1};
};

class TfliteNodes {
 public:
  // A graph that tflite_refusal() does not refuse. The tensors of its values are the first ones.
  TfliteNodes(const Graph& graph, bool pack_int4);

  const Graph& graph() const { return graph_; }

  // The tensors of values.
  std::int32_t tensor(std::size_t value) const { return tensors_.at(value); }
  std::int32_t input(const Node& node, std::size_t i = 0) const { return tensor(node.inputs[i]); }
  std::int32_t output(const Node& node) const { return tensor(node.output); }
  const Quantization& input_quantization(const Node& node, std::size_t i = 0) const {
    return *graph_.values[node.inputs[i]].quantization;
  }
  const Quantization& output_quantization(const Node& node) const {
    return *graph_.values[node.output].quantization;
  }
  // The shape of a value with the batch, 1.
  std::vector<std::int32_t> batch_shape(std::size_t value) const;

  // The type of weights that TFLite Micro has kernels of 4 bits for.
  TfliteType weight_type(const Weights& weights) const {
    return pack_int4_ && weights.bits <= 4 ? TfliteType::kInt4 : TfliteType::kInt8;
  }

  // A new tensor of computed codes.
  std::int32_t computed(const std::string& name, std::vector<std::int32_t> shape,
                        const Quantization& q);
  // A new tensor of codes that stay for the next run, and begin at their zero points.
  std::int32_t variable(const std::string& name, std::vector<std::int32_t> shape,
                        TfliteQuantization q, TfliteType type);
  // New tensors of constants. Equal bytes are stored once; codes of kInt4 are two to a byte.
  std::int32_t codes(const std::string& name, std::span<const std::int8_t> values,
                     std::vector<std::int32_t> shape, TfliteQuantization q,
                     TfliteType type = TfliteType::kInt8);
  std::int32_t int32s(const std::string& name, std::span<const std::int32_t> values,
                      std::vector<std::int32_t> shape, std::optional<TfliteQuantization> q = {});

  // A new tensor that stands for a resource.
  std::int32_t resource(const std::string& name);

  void add(TfliteOp op, std::int32_t version, std::vector<std::int32_t> inputs,
           std::optional<std::int32_t> output, TfliteOptions options = {});

  // What windows over the node's image read, and how they are padded.
  struct Padded {
    std::int32_t input = 0;
    std::int32_t padding = 0;  // the schema's: SAME or VALID
  };
  // TFLite knows two paddings; for others a node is added that writes `border` around the image.
  Padded padded(const Node& node, const TfliteWindows& windows, std::int8_t border);

  void add_metadata(const std::string& name, const std::string& text);

  // The file so far.
  TfliteModel& model() { return model_; }

 private:
  std::int32_t add_tensor(TfliteTensor tensor);
  std::uint32_t buffer_of(std::string bytes);

  const Graph& graph_;
  bool pack_int4_;
  TfliteModel model_;
  std::map<std::size_t, std::int32_t> tensors_;   // by value
  std::map<std::string, std::uint32_t> buffers_;  // by their bytes
};

// Positions along the dimensions of a sample as those of the tensor, whose first is the batch's.
std::vector<std::int32_t> tflite_positions(std::int32_t of_batch,
                                           const std::vector<std::int64_t>& of_sample);

// The node that flattens an image into this value, whose elements a file has pixel by pixel; null
// where the file has them as the graph has, or where another node flattens nothing.
const Node* tflite_flattened(const Graph& graph, std::size_t value);
// A node that gives the codes of its input another shape.
void add_tflite_reshape(TfliteNodes& nodes, const Node& node, std::int32_t input);

// One scale and zero point of a tensor.
TfliteQuantization tflite_quantization(const Quantization& q);
// The schema's number of a fused activation.
std::int32_t tflite_activation(kernels::Activation activation);

}  // namespace steelyard::deploy
