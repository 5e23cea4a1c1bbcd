// An ONNX model whose nodes are replaced one by one, with the makers and readers of its values.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/import/onnx/onnx_model.h"

namespace steelyard::imports {

class EditableGraph {
 public:
  explicit EditableGraph(OnnxModel model);

  OnnxModel model;
  std::vector<std::string> outputs;  // the values that model.outputs are, by their names inside

  // After nodes were added, taken out or given other names.
  void index();

  // The constant, or the only number of the constant, of that name.
  const Constant* constant(const std::string& name) const;
  std::optional<double> scalar(const std::string& name) const;
  // Adds a constant; returns its name, which begins with `base`.
  std::string add_constant(const std::string& base, Constant value);

  bool is_read(const std::string& value) const { return readers_.contains(value); }
  int readers_of(const OnnxNode& node) const;
  // The node that makes the value as its first output, if that is the operation of ONNX, or Linear
  // of this importer; else null.
  const OnnxNode* maker(const std::string& value, const char* op) const;
  // The maker() of a value that nobody else reads; else null.
  const OnnxNode* inner(const std::string& value, const char* op) const;

  // Puts a node in the place of node i, under its name and with its first output.
  void replace(std::size_t i, OnnxNode by);
  void remove_unread();

 private:
  void release(std::vector<std::string> values);

  std::map<std::string, std::size_t> maker_;
  std::map<std::string, int> readers_;
};

}  // namespace steelyard::imports
