// What the rows of operations (op_info.h) write the nodes of a C program with.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "steelyard/export/c/arena.h"
#include "steelyard/runtime/graph.h"

namespace steelyard::deploy {

// Members of a kernel's struct of constants, and their values as text.
class CFields {
 public:
  CFields& set(const char* member, std::int64_t value);
  // The name of an array, or a list in braces.
  CFields& set(const char* member, std::string text);
  const std::vector<std::pair<std::string, std::string>>& list() const { return list_; }

 private:
  std::vector<std::pair<std::string, std::string>> list_;
};

// A call of a kernel: KERNEL(&constants, inputs..., output), or with scratch memory after these.
struct CCall {
  std::string kernel;
  std::string layer;                // of the node, for a comment
  std::string constants;            // the name of the struct
  std::vector<std::size_t> inputs;  // values
  std::size_t output = 0;
  std::optional<ArenaBuffer> scratch = {};  // of a further argument after the output
};

class CNodes {
 public:
  // A graph that c_program_refusal() does not refuse.
  explicit CNodes(const Graph& graph);

  const Graph& graph() const { return graph_; }
  const Quantization& input_quantization(const Node& node, std::size_t i = 0) const {
    return *graph_.values[node.inputs[i]].quantization;
  }
  const Quantization& output_quantization(const Node& node) const {
    return *graph_.values[node.output].quantization;
  }

  // The name of an array of constants. Equal arrays are there once: weights of a layer at two
  // places always, others as it happens.
  std::string array(std::span<const std::int8_t> values, bool of_two_places = false);
  std::string array(std::span<const std::int32_t> values);
  // The same of a table of a function, which all its calls share.
  std::string table(std::span<const std::uint16_t> values);

  // A call of a kernel on all inputs of the node, or on one or none; `fields` are its constants,
  // the name of whose struct is `type`.
  void call(const std::string& kernel, const char* type, const Node& node, const CFields& fields);
  void call_on(std::optional<std::size_t> input, const std::string& kernel, const char* type,
               const Node& node, const CFields& fields);

  // The node's last call writes to so many bytes beside its output.
  void use_scratch(const Node& node, std::int64_t bytes);

  // The node's output are the codes of its input, where they are.
  void keep(const Node& node);
  // Before a call whose kernel reads each code before it writes to its place: the output takes the
  // place of an input that nothing reads afterwards.
  void reuse(const Node& node);

  // The output has a place of its own, whose codes stay from run to run.
  void persist(const Node& node) { persistent_.insert(node.output); }

  // What was written.
  const std::string& constants() const { return constants_; }
  const std::vector<CCall>& calls() const { return calls_; }
  std::int64_t constant_bytes() const { return constant_bytes_; }  // with pointers of 32 bits
  // Without what lists save that happen to be equal.
  std::int64_t most_constant_bytes() const { return constant_bytes_ + saved_bytes_; }
  std::vector<std::string> kernels() const;

  // Where the values lie; `input` is the value that the program is given.
  struct Places {
    std::map<std::size_t, std::int64_t> offsets;  // by value
    std::map<std::size_t, std::int64_t> scratch;  // by the call's output
    std::int64_t bytes = 0;
    std::int64_t least_bytes = 0;       // that any plan needs
    std::int64_t persistent_bytes = 0;  // of them, the first
  };
  Places places(std::size_t input) const;

 private:
  std::string named(const char* type, const std::string& text, std::size_t bytes, std::size_t size,
                    bool of_two_places);
  // The value in whose place this one is.
  std::size_t home(std::size_t value) const;
  // The node after which nothing reads the place of this value.
  std::int64_t last_reader(std::size_t home) const;

  const Graph& graph_;
  std::string constants_;
  std::int64_t constant_bytes_ = 0;
  std::int64_t saved_bytes_ = 0;
  std::map<std::string, std::string> arrays_;  // names by their text
  std::vector<CCall> calls_;
  std::map<std::size_t, std::size_t> homes_;  // of values in the place of others
  std::set<std::size_t> persistent_;
};

}  // namespace steelyard::deploy
