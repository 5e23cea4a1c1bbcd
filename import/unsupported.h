// The reasons why a graph cannot be imported: all unsupported nodes, not only the first.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "steelyard/framework/tensor/error.h"

namespace steelyard::imports {

// The error that a node's translation throws: only the reason.
class Unsupported : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
[[noreturn]] inline void refuse(const std::string& why) { throw Unsupported(why); }

struct UnsupportedNode {
  std::string node;
  std::string op;
  std::string reason;
};
// "conv_7 (Conv): its weight is computed".
std::string to_string(const UnsupportedNode& node);

// The nodes of a file that have no form here.
class UnsupportedGraph : public InputError {
 public:
  UnsupportedGraph(const std::string& source, std::vector<UnsupportedNode> nodes);
  const std::vector<UnsupportedNode>& nodes() const { return nodes_; }
  const std::string& source() const { return source_; }  // the file

 private:
  std::string source_;
  std::vector<UnsupportedNode> nodes_;
};

}  // namespace steelyard::imports
