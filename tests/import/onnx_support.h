// ONNX models for tests, made in memory, and what an imported one computes.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/framework/ops/moves/permute.h"
#include "steelyard/import/translate.h"
#include "tests/support/tensors.h"

namespace steelyard::imports {

// Builds a model node by node; each node's output is called after it.
class ModelMaker {
 public:
  explicit ModelMaker(std::vector<OnnxDim> input_dims) {
    model_.source = "test.onnx";
    model_.opset = 13;
    model_.inputs.push_back({"x", "float", std::move(input_dims)});
  }

  std::string node(const std::string& op, std::vector<std::string> inputs,
                   std::map<std::string, OnnxAttributeValue> attributes = {}) {
    const std::string name = op + "_" + std::to_string(model_.nodes.size());
    model_.nodes.push_back({.name = name,
                            .op = op,
                            .inputs = std::move(inputs),
                            .outputs = {name + ":0"},
                            .attributes = std::move(attributes)});
    return name + ":0";
  }
  std::string reals(const std::string& name, Shape shape, std::vector<float> values) {
    model_.initializers[name] = {std::move(shape), true, std::move(values), {}};
    return name;
  }
  // Random ones.
  std::string weight(const std::string& name, Shape shape) {
    const Tensor values = testing::random_tensor(shape, ++seed_, DType::kF32);
    return reals(name, shape, {values.span<float>().begin(), values.span<float>().end()});
  }
  std::string number(float value) {
    return reals("number_" + std::to_string(model_.initializers.size()), {}, {value});
  }
  std::string integers(const std::vector<std::int64_t>& values) {
    const std::string name = "integers_" + std::to_string(model_.initializers.size());
    Constant constant{.shape = {std::ssize(values)}};
    for (const std::int64_t v : values) constant.integers.push_back({v});
    model_.initializers[name] = std::move(constant);
    return name;
  }
  // The name of a whole number without dimensions.
  std::string number_of(std::int64_t value) {
    const std::string name = integers({value});
    model_.initializers[name].shape = {};
    return name;
  }
  OnnxModel ending_in(const std::string& output) {
    model_.outputs = {{output, "float", {}}};
    return model_;
  }
  OnnxModel& model() { return model_; }

 private:
  OnnxModel model_;
  std::uint64_t seed_ = 0;
};

// [N, C, H, W] with everything but the channels free.
inline std::vector<OnnxDim> images(std::int64_t channels) {
  return {{std::nullopt, "batch"}, {channels}, {std::nullopt, "h"}, {std::nullopt, "w"}};
}

inline std::vector<std::string> types_of(const Imported& imported) {
  std::vector<std::string> types;
  for (const NodeSpec& node : imported.graph.nodes) types.push_back(node.type);
  return types;
}

inline std::vector<std::string> names_of(const Imported& imported) {
  std::vector<std::string> names;
  for (const NodeSpec& node : imported.graph.nodes) names.push_back(node.name);
  return names;
}

// The module with the file's weights.
inline std::shared_ptr<Module> module_of(const Imported& imported) {
  const auto module = build(imported.graph, /*with_head=*/true, "test");
  load_into(*module, imported.weights, "test");
  return module;
}

// What it computes for x [N, ...], images with channels last.
inline Tensor output_of(const Imported& imported, const Tensor& x) {
  const NoGradGuard no_grad;
  ForwardContext context;
  return module_of(imported)->forward(Variable(x), context).value();
}

}  // namespace steelyard::imports
