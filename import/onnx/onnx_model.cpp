#include "steelyard/import/onnx/onnx_model.h"

#include "steelyard/framework/tensor/printable.h"

namespace steelyard::imports {
namespace {

template <typename T>
T attribute(const OnnxNode& node, const std::string& name, const T& otherwise) {
  const auto found = node.attributes.find(name);
  if (found == node.attributes.end()) return otherwise;
  const T* value = std::get_if<T>(&found->second);
  return value != nullptr ? *value : otherwise;
}

template <typename T, typename Text>
std::string bracketed(const std::vector<T>& items, const Text& text) {
  std::string joined = "[";
  for (const T& item : items) joined += (joined.size() > 1 ? ", " : "") + text(item);
  return joined + "]";
}

}  // namespace

std::string to_string(const ExtentShape& shape) {
  return bracketed(shape, [](const Extent& e) {
    if (!e.of_batch) return std::to_string(e.value);
    return e.value == 1 ? std::string("N") : std::to_string(e.value) + "*N";
  });
}

std::string to_string(const std::vector<OnnxDim>& dims) {
  return bracketed(dims, [](const OnnxDim& dim) {
    if (dim.size) return std::to_string(*dim.size);
    return dim.name.empty() ? std::string("?") : printable(dim.name);
  });
}

std::int64_t OnnxNode::integer(const std::string& key, std::int64_t otherwise) const {
  return attribute(*this, key, otherwise);
}
float OnnxNode::real(const std::string& key, float otherwise) const {
  return attribute(*this, key, otherwise);
}
std::string OnnxNode::text(const std::string& key, const std::string& otherwise) const {
  return attribute(*this, key, otherwise);
}
std::vector<std::int64_t> OnnxNode::integers(const std::string& key,
                                             const std::vector<std::int64_t>& otherwise) const {
  return attribute(*this, key, otherwise);
}

std::vector<float> OnnxNode::reals(const std::string& key) const {
  return attribute(*this, key, std::vector<float>());
}

std::string OnnxNode::label() const {
  if (!name.empty()) return name;
  return outputs.empty() ? op : outputs[0];
}

}  // namespace steelyard::imports
