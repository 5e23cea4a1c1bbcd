// The memory of runs: where values lie, and what a second run takes.
#include "steelyard/runtime/workspace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "steelyard/framework/tensor/storage.h"
#include "steelyard/kernels/backend.h"
#include "steelyard/runtime/interpreter.h"
#include "tests/export/random_graph.h"
#include "tests/runtime/allocations.h"
#include "tests/runtime/runtime_models.h"

namespace steelyard::deploy {
namespace {

using ::testing::HasSubstr;

// Whether a value is needed at a node: made there, before it and read later, or the output.
bool is_needed(const Graph& graph, std::size_t value, std::size_t at) {
  std::size_t made = 0, read = value == graph.output ? graph.nodes.size() : 0;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].output == value) made = i;
    for (const std::size_t input : graph.nodes[i].inputs)
      read = input == value ? std::max(read, i) : read;
  }
  return made <= at && at <= std::max(made, read);
}

TEST(MemoryPlan, ValuesThatAreNeededTogetherLieApart) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    const Graph graph = testing::RandomGraph(seed, DType::kU8).graph();
    for (const std::int64_t batch : {1, 3}) {
      const MemoryPlan plan = plan_memory(graph, batch);
      std::int64_t most = 0, all = 0;
      for (std::size_t node = 0; node < graph.nodes.size(); ++node) {
        std::vector<std::pair<std::int64_t, std::int64_t>> parts;  // begin, end
        std::int64_t together = 0;
        for (std::size_t v = 0; v < graph.values.size(); ++v) {
          if (!is_needed(graph, v, node)) continue;
          const bool codes = graph.values[v].quantization.has_value();
          const std::int64_t bytes = batch * shape_size(graph.values[v].shape) * (codes ? 1 : 4);
          EXPECT_EQ(plan.offsets[v] % 64, 0);
          parts.emplace_back(plan.offsets[v], plan.offsets[v] + bytes);
          together += bytes;
        }
        std::sort(parts.begin(), parts.end());
        for (std::size_t i = 1; i < parts.size(); ++i) {
          EXPECT_LE(parts[i - 1].second, parts[i].first) << seed << ", node " << node;
        }
        EXPECT_LE(parts.back().second, plan.bytes);
        most = std::max(most, together);
      }
      for (const Value& value : graph.values) {
        all += (batch * shape_size(value.shape) * (value.quantization ? 1 : 4) + 63) / 64 * 64;
      }
      EXPECT_GE(plan.bytes, most) << seed;
      EXPECT_LT(plan.bytes, all) << seed;
    }
  }
}

TEST(MemoryPlan, RefusesSizesBeyond64Bits) {
  Graph graph;
  graph.values = {{"x", {std::int64_t{1} << 61}, {}}};
  EXPECT_THROW(plan_memory(graph, 1), std::invalid_argument);
  EXPECT_THROW(plan_memory(graph, std::int64_t{1} << 40), std::invalid_argument);
}

TEST(Workspaces, ASecondRunTakesNoMemoryForValues) {
  const Interpreter model(testing::shipped_model(), Engine::kFast);
  const Tensor x = testing::pixels(3);
  std::array<float, 15> first{}, second{};
  model.run_raw(3, x.raw(), first.data());
  const AllocatorStats before = allocator_stats();
  const std::int64_t before_run = testing::heap_allocations();
  model.run_raw(3, x.raw(), second.data());
  const std::int64_t of_layers = testing::heap_allocations() - before_run;
  EXPECT_LE(of_layers, 12);  // sums of an average, and places of a concatenation's parts
  EXPECT_EQ(allocator_stats().in_use_bytes, before.in_use_bytes);
  EXPECT_EQ(allocator_stats().cached_bytes, before.cached_bytes);
  EXPECT_EQ(first, second);
  EXPECT_GT(model.workspace_bytes(3), 3 * 9 * 8 * 3 * 4);  // the input's floats at least
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         std::memcmp(a.raw(), b.raw(), static_cast<std::size_t>(a.bytes())) == 0;
}

// Packed weights are all that is left of those that the first run packs.
TEST(LeanEngine, GivesTheSameBitsInLessMemory) {
  const Graph graph = testing::shipped_model();
  std::int64_t weights = 0, other_uses = 0;
  for (const Node& node : graph.nodes) {
    if (node.weights && node.weights->integer()) weights += node.weights->weight.bytes();
  }
  const Tensor x = testing::random_tensor({3, 9, 8, 3}, 4, DType::kF32);
  const Interpreter fast(graph, Engine::kFast);
  const std::vector<Tensor> expected = fast.run_all(x);
  const auto fresh = [&] {  // nobody else has its weights
    Graph copy = graph;
    for (Node& node : copy.nodes) {
      if (node.weights) node.weights->weight = node.weights->weight.clone();
    }
    return copy;
  };
  const std::int64_t before = allocator_stats().in_use_bytes;
  const Interpreter lean(fresh(), Engine::kLean);
  const std::int64_t loaded = allocator_stats().in_use_bytes;
  const std::vector<Tensor> values = lean.run_all(x);
  for (const Tensor& value : values) other_uses += value.bytes();
  EXPECT_GE(loaded - before, weights);
  EXPECT_LE(allocator_stats().in_use_bytes, loaded - weights + 2 * other_uses);
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_TRUE(same_bytes(values[i], expected[i])) << graph.values[i].name;
  }
  const auto packed = std::find_if(lean.graph().nodes.begin(), lean.graph().nodes.end(),
                                   [](const Node& node) { return node.op == Op::kConv2d; });
  EXPECT_EQ(packed->weights->weight.raw(), nullptr);
  EXPECT_EQ(packed->weights->weight.shape(),
            graph.nodes[static_cast<std::size_t>(packed - lean.graph().nodes.begin())]
                .weights->weight.shape());
  const Node copy = *packed;
  const std::string message =
      testing::message_of<std::invalid_argument>([&] { lean.run_node(copy, values); });
  EXPECT_THAT(message, HasSubstr("its weights are with the interpreter that packs them"));
  EXPECT_THROW(validate(lean.graph()), std::invalid_argument);
  EXPECT_THROW(Interpreter(lean.graph()), std::invalid_argument);
  EXPECT_THROW(real_weight(*copy.weights), std::invalid_argument);
  EXPECT_THROW(same_weights(*copy.weights, *copy.weights), std::invalid_argument);
  EXPECT_THROW(copy.weights->weight.clone(), std::invalid_argument);
  EXPECT_THROW(copy.weights->weight.to(DType::kF32), std::invalid_argument);
  EXPECT_THROW(copy.weights->weight.span<std::int8_t>(), std::invalid_argument);
}

TEST(Workspaces, ARunOfNullIsAnError) {
  const Interpreter model(testing::shipped_model(), Engine::kFast);
  std::array<float, 5> outputs{};
  EXPECT_THROW(model.run_raw(1, nullptr, outputs.data()), std::invalid_argument);
  EXPECT_THROW(model.run_raw(1, testing::pixels(1).raw(), nullptr), std::invalid_argument);
}

TEST(Workspaces, SparesServeTheirBatchAlone) {
  const Graph graph = testing::shipped_model();
  SpareWorkspaces spare;
  auto one = spare.take(graph, 1);
  auto two = spare.take(graph, 2);
  const Workspace *const first = one.get(), *const second = two.get();
  spare.give_back(std::move(one));
  spare.give_back(std::move(two));
  two = spare.take(graph, 2);
  EXPECT_EQ(two.get(), second);
  one = spare.take(graph, 1);
  EXPECT_EQ(one.get(), first);
  EXPECT_EQ(spare.take(graph, 3)->batch(), 3);
}

TEST(Workspaces, MoreThanThereIsRoomForAreLetGo) {
  const Graph graph = testing::shipped_model();
  SpareWorkspaces spare;
  std::vector<std::unique_ptr<Workspace>> taken;
  for (int i = 0; i < 40; ++i) taken.push_back(spare.take(graph, 1));
  for (auto& workspace : taken) spare.give_back(std::move(workspace));
  EXPECT_EQ(spare.take(graph, 1)->batch(), 1);
}

// An error leaves the workspace's own input where it was.
TEST(Workspaces, RunsAfterARefusedInput) {
  const Interpreter model(testing::shipped_model(), Engine::kFast);
  const Tensor x = testing::random_tensor({2, 9, 8, 3}, 4, DType::kF32);
  const Tensor expected = model.run(x);
  const Tensor bad = x.clone();
  bad.data<float>()[5] = NAN;
  EXPECT_THROW(model.run(bad), std::invalid_argument);
  EXPECT_TRUE(testing::all_close(model.run(x), expected, 0, 0));
  const Tensor pixels = testing::pixels(2);
  EXPECT_TRUE(
      testing::all_close(model.run_raw(pixels), Interpreter(model.graph()).run_raw(pixels), 0, 0));
}

}  // namespace
}  // namespace steelyard::deploy
