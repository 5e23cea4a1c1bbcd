// An ONNX model as plain data: what the reader has checked, without the types of protobuf.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "steelyard/framework/tensor/tensor.h"

namespace steelyard::imports {

// A whole number of a shape: a count, or a multiple of the batch's size, which stays free.
struct Extent {
  std::int64_t value = 0;
  bool of_batch = false;  // value * N
  // For a multiple of the batch's size: how many of `value` count samples from outside. (T, N) and
  // (N, T) joined to T * N have T and 1. 1 unless the file fixes its batch.
  std::uint32_t outside = 1;
  bool operator==(const Extent&) const = default;
};
using ExtentShape = std::vector<Extent>;

// "[N, 3, 48, 192]".
std::string to_string(const ExtentShape& shape);

// A tensor that is known: floats (every floating type is converted to f32), or integers and
// booleans.
struct Constant {
  Shape shape;
  bool floating = false;
  std::vector<float> reals = {};      // of a floating one
  std::vector<Extent> integers = {};  // of any other
  std::string origin = {};            // the initializer that it was made of; "" for several or none

  std::int64_t size() const { return shape_size(shape); }
  std::int64_t bytes() const {
    return static_cast<std::int64_t>(reals.size() * sizeof(float) +
                                     integers.size() * sizeof(Extent));
  }
};

using OnnxAttributeValue = std::variant<std::int64_t, float, std::string, std::vector<std::int64_t>,
                                        std::vector<float>, std::vector<std::string>, Constant>;

// The domain of operations that replace several of ONNX's: "Linear" (x, weight [out, in], optional
// bias [out]), "SiLU" (x), "GELU" (x), "DivNoNan" (x, y). No file has them.
inline constexpr const char* kOwnDomain = "steelyard";
// An attribute of nodes that replace several: how many dimensions an input must have at least, as
// the numbers among the several had. They broadcast, and a value of fewer would get more.
inline constexpr const char* kLeastRank = "steelyard.least_rank";

struct OnnxBranch;

struct OnnxNode {
  std::string name;                  // may be empty
  std::string op;                    // "Conv"
  std::string domain = {};           // "" for ONNX's own operations
  std::vector<std::string> inputs;   // "" where an optional one is absent
  std::vector<std::string> outputs;  // the same
  std::map<std::string, OnnxAttributeValue> attributes = {};
  // Of an If. Values from outside that they read are inputs of the node too, after its own.
  std::map<std::string, std::shared_ptr<const OnnxBranch>> branches = {};

  // The attribute where it is there with that type, else the default.
  std::int64_t integer(const std::string& key, std::int64_t otherwise) const;
  float real(const std::string& key, float otherwise) const;
  std::string text(const std::string& key, const std::string& otherwise) const;
  std::vector<std::int64_t> integers(const std::string& key,
                                     const std::vector<std::int64_t>& otherwise = {}) const;
  std::vector<float> reals(const std::string& key) const;
  bool has(const std::string& key) const { return attributes.contains(key); }
  // The input's name; "" where it is absent.
  std::string input(std::size_t i) const { return i < inputs.size() ? inputs[i] : std::string(); }
  // The name in messages: its own, else that of its first output.
  std::string label() const;
};

// The graph inside of a node.
struct OnnxBranch {
  std::vector<OnnxNode> nodes;
  std::map<std::string, Constant> initializers = {};
  std::vector<std::string> outputs;
};

// A dimension of an input or output: a size, or free under a name that may be empty.
struct OnnxDim {
  std::optional<std::int64_t> size;
  std::string name = {};
};

struct OnnxPort {
  std::string name;
  std::string type;  // "float", "int32", ...
  std::vector<OnnxDim> dims = {};
  std::optional<std::size_t> batch_axis = {};  // of an input, where somebody said it
};
// "[N, 3, ?, ?]".
std::string to_string(const std::vector<OnnxDim>& dims);

// Nodes are in an order in which each reads what is there already; every value has one maker, and
// every node makes a value.
struct OnnxModel {
  std::string source;  // the file, for messages
  std::string producer;
  std::int64_t opset = 0;  // of ONNX's own operations
  std::string sha256;      // of the file
  std::vector<OnnxPort> inputs;
  std::vector<OnnxPort> outputs;
  std::vector<OnnxNode> nodes;
  std::map<std::string, Constant> initializers;
  std::map<std::string, std::string> unreadable =
      {};  // those of other types than numbers: the type
  // What constants computed from others may still take (fold.h): at first 768 MiB, and eight times
  // what the file's constants take.
  std::int64_t foldable_bytes = std::int64_t{3} << 28;
  // Layers keep their weights as the file has them: no factor and no second bias behind a layer
  // goes into them. For those who train the file's own parameters, by other names.
  bool keeps_weights = false;
};

}  // namespace steelyard::imports
