#include "steelyard/export/onnx_graph.h"

#include <bit>

#include "steelyard/framework/error.h"

namespace steelyard::deploy {

static_assert(std::endian::native == std::endian::little, "raw_data is little-endian");

onnx::TensorProto& OnnxGraph::initializer(const std::string& name, int data_type,
                                          const Shape& shape) {
  onnx::TensorProto& tensor = *proto_.add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(data_type);
  for (const std::int64_t dim : shape) tensor.add_dims(dim);
  return tensor;
}

std::string OnnxGraph::floats(const std::string& name, std::span<const float> values,
                              const Shape& shape) {
  initializer(name, onnx::TensorProto::FLOAT, shape)
      .set_raw_data(values.data(), values.size_bytes());
  return name;
}

std::string OnnxGraph::int32s(const std::string& name, std::span<const std::int32_t> values,
                              const Shape& shape) {
  initializer(name, onnx::TensorProto::INT32, shape)
      .set_raw_data(values.data(), values.size_bytes());
  return name;
}

std::string OnnxGraph::int64s(const std::string& name, std::span<const std::int64_t> values,
                              const Shape& shape) {
  initializer(name, onnx::TensorProto::INT64, shape)
      .set_raw_data(values.data(), values.size_bytes());
  return name;
}

std::string OnnxGraph::codes(const std::string& name, int data_type,
                             std::span<const std::int8_t> values, const Shape& shape) {
  onnx::TensorProto& tensor = initializer(name, data_type, shape);
  if (data_type != kOnnxInt4) {
    tensor.set_raw_data(values.data(), values.size());
    return name;
  }
  std::string& packed = *tensor.mutable_raw_data();
  packed.assign((values.size() + 1) / 2, '\0');
  for (std::size_t i = 0; i < values.size(); ++i) {
    const int nibble = (values[i] & 0xF) << (4 * (i % 2));
    packed[i / 2] = static_cast<char>(packed[i / 2] | nibble);
  }
  return name;
}

onnx::NodeProto& OnnxGraph::add(const std::string& operation,
                                const std::vector<std::string>& inputs, const std::string& output) {
  onnx::NodeProto& node = *proto_.add_node();
  node.set_op_type(operation);
  node.set_name(output + ":" + operation);
  for (const std::string& input : inputs) node.add_input(input);
  node.add_output(output);
  return node;
}

void set_attribute(onnx::NodeProto& node, const std::string& name, std::int64_t value) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::INT);
  attribute.set_i(value);
}

void set_attribute(onnx::NodeProto& node, const std::string& name,
                   const std::vector<std::int64_t>& values) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::INTS);
  for (const std::int64_t value : values) attribute.add_ints(value);
}

void set_attribute(onnx::NodeProto& node, const std::string& name,
                   const std::array<std::int64_t, 2>& pair) {
  set_attribute(node, name, std::vector<std::int64_t>{pair[0], pair[1]});
}

std::vector<std::int64_t> pads(const std::array<std::int64_t, 2>& padding) {
  return {padding[0], padding[1], padding[0], padding[1]};
}

void set_window(onnx::NodeProto& node, const Pool2dGeometry& pool) {
  set_attribute(node, "kernel_shape", pool.kernel);
  set_attribute(node, "strides", pool.stride);
  set_attribute(node, "pads", pads(pool.padding));
}

void refuse_onnx(const Node& node, const std::string& why) {
  throw InputError("export: " + node.name + " (" + op_name(node.op) + ") has no ONNX form: " + why);
}

}  // namespace steelyard::deploy
