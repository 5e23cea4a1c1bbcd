// The memory of a run: every value of a graph in one block, whose parts serve again.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "steelyard/runtime/graph.h"

namespace steelyard::deploy {

// Where values lie in a block, for batches of one size.
struct MemoryPlan {
  std::vector<std::int64_t> offsets;  // of each value, in bytes
  std::int64_t bytes = 0;             // of the block
};

// Values of which one is computed before the other is done with have no byte in common: the input
// from the start, others from their node on, until the last node that reads them; the output stays.
// Larger values come first, each at the lowest place that is free. Throws std::invalid_argument
// where sizes exceed 64 bits.
MemoryPlan plan_memory(const Graph& graph, std::int64_t batch);

// The tensors of a graph's values for batches of one size, as graph().values.
class Workspace {
 public:
  // Throws OutOfMemory; std::invalid_argument as plan_memory().
  Workspace(const Graph& graph, std::int64_t batch);

  std::int64_t batch() const { return batch_; }
  std::int64_t bytes() const { return bytes_; }
  std::vector<Tensor>& values() { return values_; }

 private:
  std::int64_t batch_, bytes_;
  std::vector<Tensor> values_;
};

// Workspaces that no run uses, for as many threads as run a model at once; more make their own.
// It takes no lock.
class SpareWorkspaces {
 public:
  SpareWorkspaces() = default;
  ~SpareWorkspaces();
  SpareWorkspaces(const SpareWorkspaces&) = delete;
  SpareWorkspaces& operator=(const SpareWorkspaces&) = delete;

  // A spare one for such batches, or a new one.
  std::unique_ptr<Workspace> take(const Graph& graph, std::int64_t batch);
  void give_back(std::unique_ptr<Workspace> workspace) noexcept;

 private:
  std::array<std::atomic<Workspace*>, 16> places_{};
};

}  // namespace steelyard::deploy
