#include "steelyard/runtime/workspace.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>

namespace steelyard::deploy {
namespace {

constexpr std::int64_t kLineBytes = 64;  // tensors begin with a line of the cache

DType dtype_of(const Value& value) {
  return value.quantization ? value.quantization->dtype : DType::kF32;
}

Shape shape_of(const Value& value, std::int64_t batch) {
  Shape shape = value.shape;
  shape.insert(shape.begin(), batch);
  return shape;
}

std::int64_t whole_lines(const Value& value, std::int64_t batch) {
  const auto width = static_cast<std::int64_t>(dtype_bytes(dtype_of(value)));
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(shape_size(shape_of(value, batch)), width, &bytes) ||
      __builtin_add_overflow(bytes, kLineBytes - 1, &bytes)) {
    throw std::invalid_argument("[interpreter] the bytes of " + value.name + " exceed 64 bits");
  }
  return bytes / kLineBytes * kLineBytes;
}

// What a value takes, and the nodes between which it is needed.
struct Extent {
  std::int64_t bytes = 0;
  std::size_t first = 0, last = 0;

  bool meets(const Extent& other) const { return first <= other.last && other.first <= last; }
};

std::vector<Extent> extents_of(const Graph& graph, std::int64_t batch) {
  std::vector<Extent> extents(graph.values.size());
  for (std::size_t i = 0; i < extents.size(); ++i) {
    extents[i].bytes = whole_lines(graph.values[i], batch);
  }
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    Extent& made = extents[graph.nodes[i].output];
    made.first = made.last = i;
    for (const std::size_t input : graph.nodes[i].inputs) extents[input].last = i;
  }
  extents[graph.output].last = graph.nodes.size();
  return extents;
}

}  // namespace

MemoryPlan plan_memory(const Graph& graph, std::int64_t batch) {
  const std::vector<Extent> extents = extents_of(graph, batch);
  std::vector<std::size_t> order(extents.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return extents[a].bytes > extents[b].bytes;
  });
  MemoryPlan plan{std::vector<std::int64_t>(extents.size(), 0), 0};
  std::vector<std::size_t> placed;  // by their offsets
  for (const std::size_t value : order) {
    std::int64_t at = 0;
    for (const std::size_t other : placed) {
      if (!extents[value].meets(extents[other])) continue;
      if (extents[value].bytes <= plan.offsets[other] - at) break;
      at = std::max(at, plan.offsets[other] + extents[other].bytes);
    }
    std::int64_t end = 0;
    if (__builtin_add_overflow(at, extents[value].bytes, &end)) {
      throw std::invalid_argument("[interpreter] the bytes of all values exceed 64 bits");
    }
    plan.offsets[value] = at;
    plan.bytes = std::max(plan.bytes, end);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), at,
                                   [&](std::int64_t offset, std::size_t other) {
                                     return offset < plan.offsets[other];
                                   }),
                  value);
  }
  return plan;
}

Workspace::Workspace(const Graph& graph, std::int64_t batch) : batch_(batch) {
  const MemoryPlan plan = plan_memory(graph, batch);
  bytes_ = plan.bytes;
  const auto block =
      std::make_shared<const Tensor>(Tensor::empty({std::max(bytes_, kLineBytes)}, DType::kU8));
  values_.reserve(graph.values.size());
  for (std::size_t i = 0; i < graph.values.size(); ++i) {
    values_.push_back(Tensor::borrow(static_cast<std::byte*>(block->raw()) + plan.offsets[i],
                                     shape_of(graph.values[i], batch), dtype_of(graph.values[i]),
                                     Device{}, block));
  }
}

SpareWorkspaces::~SpareWorkspaces() {
  for (std::atomic<Workspace*>& place : places_) delete place.load();
}

std::unique_ptr<Workspace> SpareWorkspaces::take(const Graph& graph, std::int64_t batch) {
  for (std::atomic<Workspace*>& place : places_) {
    std::unique_ptr<Workspace> spare(place.exchange(nullptr));
    if (!spare) continue;
    if (spare->batch() == batch) return spare;
    give_back(std::move(spare));
  }
  return std::make_unique<Workspace>(graph, batch);
}

void SpareWorkspaces::give_back(std::unique_ptr<Workspace> workspace) noexcept {
  Workspace* const given = workspace.release();
  for (std::atomic<Workspace*>& place : places_) {
    Workspace* nothing = nullptr;
    if (place.compare_exchange_strong(nothing, given)) return;
  }
  delete places_[0].exchange(given);
}

}  // namespace steelyard::deploy
