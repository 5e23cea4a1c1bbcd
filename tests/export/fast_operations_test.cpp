// Operations that the fast engine computes by tables, vectors and exact products: the values of the
// reference, over types of codes, zero points, shapes and threads.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "steelyard/export/graph_text.h"
#include "steelyard/kernels/backend.h"
#include "steelyard/runtime/interpreter.h"
#include "steelyard/runtime/op_info.h"

namespace steelyard::deploy {
namespace {

// A graph whose first nodes quantize the input.
class Builder {
 public:
  explicit Builder(Shape input) { graph_.values.push_back({"input", std::move(input), {}}); }

  std::size_t quantize(const Quantization& q) {
    return add(Op::kQuantize, {0}, graph_.values[0].shape, q);
  }
  std::size_t add(Op op, std::vector<std::size_t> inputs, Shape shape,
                  std::optional<Quantization> q, NodeOptions options = {}) {
    Node node;
    node.op = op;
    node.name = "node" + std::to_string(graph_.nodes.size());
    node.options = options.index() == 0 ? op_info(op).options : std::move(options);
    node.inputs = std::move(inputs);
    node.output = graph_.values.size();
    graph_.values.push_back({node.name, std::move(shape), std::move(q)});
    graph_.nodes.push_back(std::move(node));
    return graph_.output = graph_.values.size() - 1;
  }
  const Graph& graph() const { return graph_; }
  Node& last() { return graph_.nodes.back(); }
  const Quantization& of(std::size_t value) const { return *graph_.values[value].quantization; }

 private:
  Graph graph_;
};

Quantization grid(DType dtype, float scale, std::int32_t zero_point) {
  Quantization q;
  q.scale = scale;
  q.zero_point = zero_point;
  q.dtype = dtype;
  q.range = q.whole_range();
  return q;
}

// Every code of each type, symmetric or not.
std::vector<Quantization> grids(float scale) {
  return {grid(DType::kU8, scale, 0), grid(DType::kU8, scale, 128), grid(DType::kU8, scale, 77),
          grid(DType::kI8, scale, 0), grid(DType::kI8, scale, -31)};
}

Tensor numbers(Shape shape) {
  const Tensor x = Tensor::empty(std::move(shape));
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 1.5F);
  for (float& value : x.span<float>()) value = normal(random);
  return x;
}

void expect_the_same(const Graph& graph, std::int64_t batch) {
  Shape shape = graph.values[graph.input].shape;
  shape.insert(shape.begin(), batch);
  const Tensor x = numbers(shape);
  const std::vector<Tensor> expected = Interpreter(graph, Engine::kReference).run_all(x);
  const int threads = kernels::num_threads();
  for (const int count : {1, 3}) {
    kernels::set_num_threads(count);
    const std::vector<Tensor> values = Interpreter(graph, Engine::kFast).run_all(x);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i].shape(), expected[i].shape());
      EXPECT_EQ(std::memcmp(values[i].raw(), expected[i].raw(),
                            static_cast<std::size_t>(values[i].bytes())),
                0)
          << to_string(graph) << "value " << graph.values[i].name << ", " << count << " threads";
    }
  }
  kernels::set_num_threads(threads);
}

TEST(FastOperations, ProductsOfCodesThatBroadcast) {
  for (const Quantization& of_a : grids(0.03F)) {
    for (const Quantization& of_b : grids(0.02F)) {
      for (const Quantization& out : grids(0.07F)) {
        Builder build({4, 6, 5});
        const std::size_t a = build.quantize(of_a), b = build.quantize(of_b);
        const std::size_t row =
            build.add(Op::kSlice, {b}, {1, 1, 5}, of_b, Positions{{3, 0, 0}, {1, 1, 1}});
        build.add(Op::kMul, {a, b}, {4, 6, 5}, out);
        build.add(Op::kMul, {a, row}, {4, 6, 5}, out);
        build.add(Op::kMul, {row, a}, {4, 6, 5}, out);
        expect_the_same(build.graph(), 3);
      }
    }
  }
}

TEST(FastOperations, ProductsOfMatricesOfCodes) {
  for (const Quantization& of_a : grids(0.03F)) {
    for (const Quantization& of_b : grids(0.02F)) {
      for (const Quantization& out : grids(0.3F)) {
        Builder build({2, 37, 19});
        const std::size_t a = build.quantize(of_a), b = build.quantize(of_b);
        const std::size_t turned =
            build.add(Op::kPermute, {b}, {2, 19, 37}, of_b, AxisOrder{{0, 2, 1}});
        build.add(Op::kMatmul, {a, turned}, {2, 37, 37}, out);
        expect_the_same(build.graph(), 2);
      }
    }
  }
}

TEST(FastOperations, FunctionsOfCodes) {
  for (const Op op : {Op::kSigmoid, Op::kHardswish, Op::kSilu, Op::kHardSigmoid, Op::kGelu,
                      Op::kTanhGelu, Op::kTanh, Op::kLeakyRelu, Op::kAffine}) {
    for (const Quantization& in : grids(0.03F)) {
      for (const Quantization& out : grids(0.01F)) {
        for (const std::int64_t columns : {1, 64, 331}) {  // fewer than bytes, and more
          Builder build({columns});
          build.add(op, {build.quantize(in)}, {columns}, out);
          expect_the_same(build.graph(), 5);
        }
      }
    }
  }
}

TEST(FastOperations, RectifiedCodes) {
  for (const Op op : {Op::kRelu, Op::kRelu6}) {
    for (const Quantization& in : grids(0.06F)) {
      Builder build({9, 50});
      build.add(op, {build.quantize(in)}, {9, 50}, in);
      expect_the_same(build.graph(), 3);
    }
  }
}

TEST(FastOperations, SoftmaxOfCodes) {
  for (const Quantization& in : grids(0.05F)) {
    for (const Quantization& out :
         {grid(DType::kU8, 0x1p-8F, 0), grid(DType::kI8, 0x1p-8F, -128)}) {
      for (const std::int64_t columns : {1, 7, 300}) {
        Builder build({4, columns});
        build.add(Op::kSoftmax, {build.quantize(in)}, {4, columns}, out);
        expect_the_same(build.graph(), 3);
      }
    }
  }
}

TEST(FastOperations, Moves) {
  std::vector<std::optional<Quantization>> kinds{std::nullopt};
  for (const Quantization& q : grids(0.03F)) kinds.emplace_back(q);
  kinds.emplace_back(grid(DType::kI32, 1e-4F, 5));
  for (const auto& q : kinds) {
    Builder build({3, 4, 5});
    const std::size_t x = q ? build.quantize(*q) : 0;
    build.add(Op::kReshape, {x}, {15, 4}, q, NewShape{{15, 4}});
    build.add(Op::kFlatten, {x}, {60}, q);
    build.add(Op::kPermute, {x}, {5, 3, 4}, q, AxisOrder{{2, 0, 1}});
    build.add(Op::kPermute, {x}, {3, 5, 4}, q, AxisOrder{{0, 2, 1}});
    build.add(Op::kSlice, {x}, {2, 2, 3}, q, Positions{{2, 1, 0}, {-2, 2, 2}});
    expect_the_same(build.graph(), 3);
  }
}

TEST(FastOperations, SumsProductsAndQuotientsOfFloats) {
  Builder build({3, 4, 5});
  const std::size_t row =
      build.add(Op::kSlice, {0}, {1, 4, 1}, {}, Positions{{1, 0, 2}, {1, 1, 1}});
  for (const Op op : {Op::kAdd, Op::kSub, Op::kMul, Op::kDiv, Op::kDivNoNan}) {
    build.add(op, {0, 0}, {3, 4, 5}, {});
    build.add(op, {0, row}, {3, 4, 5}, {});
  }
  const std::size_t codes = build.quantize(grid(DType::kU8, 0.03F, 100));
  build.add(Op::kAdd, {codes, row}, {3, 4, 5}, {});
  expect_the_same(build.graph(), 3);
}

// Sums of floats keep their order, whatever is computed together.
TEST(FastOperations, ProductsOfFloats) {
  for (const std::int64_t rows : {1, 3, 70}) {
    for (const std::int64_t terms : {1, 33}) {
      for (const std::int64_t columns : {1, 15, 37}) {
        Builder build({2, rows + columns, terms});
        const std::size_t a =
            build.add(Op::kSlice, {0}, {2, rows, terms}, {}, Positions{{0, 0, 0}, {1, 1, 1}});
        const std::size_t b =
            build.add(Op::kSlice, {0}, {2, columns, terms}, {}, Positions{{0, rows, 0}, {1, 1, 1}});
        const std::size_t turned =
            build.add(Op::kPermute, {b}, {2, terms, columns}, {}, AxisOrder{{0, 2, 1}});
        build.add(Op::kMatmul, {a, turned}, {2, rows, columns}, {});
        build.add(Op::kMatmul, {a}, {2, rows, columns}, {});
        build.last().constants = {{1, numbers({terms, columns})}};
        expect_the_same(build.graph(), 3);
      }
    }
  }
}

TEST(FastOperations, LinearLayersInFloat) {
  for (const bool bias : {false, true}) {
    for (const bool codes : {false, true}) {
      Builder build({5, 29});
      const std::size_t x = codes ? build.quantize(grid(DType::kI8, 0.03F, -31)) : 0;
      build.add(Op::kLinear, {x}, {5, 43}, {});
      Weights& weights = build.last().weights.emplace();
      weights.weight = numbers({43, 29});
      if (codes) {
        weights.weight = weights.weight.to(DType::kI8);
        weights.scales.assign(43, 0.01F);
      }
      if (bias) weights.bias = numbers({43});
      expect_the_same(build.graph(), 3);
    }
  }
}

TEST(FastOperations, LayerNorms) {
  for (const std::int64_t rows : {1, 7, 8, 25}) {
    Builder build({rows, 37});
    for (const std::size_t x : {std::size_t{0}, build.quantize(grid(DType::kU8, 0.03F, 100))}) {
      build.add(Op::kLayerNorm, {x}, {rows, 37}, {}, NormEpsilon{1e-5});
      build.last().constants = {{1, numbers({37})}, {2, numbers({37})}};
    }
    expect_the_same(build.graph(), 1);
  }
}

}  // namespace
}  // namespace steelyard::deploy
