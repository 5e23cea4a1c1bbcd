// Networks with several inputs and outputs, and with a table of rows, from C and in C++.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>

#include "steelyard/export/graph_file.h"
#include "steelyard/export/trace.h"
#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "steelyard/framework/ops/moves/input_part.h"
#include "steelyard/framework/ops/moves/output_parts.h"
#include "steelyard/framework/ops/products/embedding.h"
#include "steelyard/runtime/interpreter.h"
#include "steelyard/runtime/steelyard_runtime.h"
#include "tests/support/temporary_folder.h"

namespace steelyard {
namespace {

using testing::message_of;
using testing::TemporaryFolder;

// The example of docs/deployment.md: an image [2, 3, 1] and numbers [4] give ten times the numbers
// and the image raised by 1.
class TwoInputsAndOutputs : public Module {
 public:
  Variable forward(const Variable& x, ForwardContext&) override {
    const Variable image = input_part(x, {.first = 0, .shape = {2, 3, 1}});
    const Variable numbers = input_part(x, {.first = 6, .shape = {4}});
    return output_parts({numbers * 10.0, image + 1.0});
  }
  std::string type_name() const override { return "TwoInputsAndOutputs"; }
};

// Rows of a table [3, 2].
class Rows : public Module {
 public:
  Variable forward(const Variable& x, ForwardContext&) override {
    return embedding(x, Variable(Tensor::from<float>({1, 2, 3, 4, 5, 6}, {3, 2})));
  }
  std::string type_name() const override { return "Rows"; }
};

deploy::Graph graph_of(Module& model, const Shape& sample) {
  deploy::Graph graph = deploy::trace(model, Tensor::zeros(sample), "parts").graph;
  graph.target = TargetKind::kValues;
  return graph;
}

deploy::Graph rows() {
  Rows model;
  return graph_of(model, {1, 4});
}

// The model in a file, as C has it.
class Loaded {
 public:
  explicit Loaded(const deploy::Graph& graph) {
    const TemporaryFolder folder;
    deploy::save_graph(folder / "model", graph);
    EXPECT_EQ(steelyard_model_load((folder / "model").c_str(), &model_, message, sizeof message), 0)
        << message;
  }
  ~Loaded() { steelyard_model_destroy(model_); }
  Loaded(const Loaded&) = delete;
  Loaded& operator=(const Loaded&) = delete;

  operator const steelyard_model*() const { return model_; }  // NOLINT(google-explicit-constructor)

  char message[256] = "";

 private:
  steelyard_model* model_ = nullptr;
};

TEST(Parts, LieOneAfterAnotherInEachSample) {
  TwoInputsAndOutputs network;
  Loaded model(graph_of(network, {1, 10}));
  steelyard_sample input{}, output{};
  ASSERT_EQ(steelyard_model_input(model, &input), 0);
  ASSERT_EQ(steelyard_model_output(model, &output), 0);
  EXPECT_EQ(input.elements, 10);
  EXPECT_EQ(output.elements, 10);
  const float images[2][6] = {{1, 2, 3, 4, 5, 6}, {7, 8, 9, 10, 11, 12}};
  const float numbers[2][4] = {{.1F, .2F, .3F, .4F}, {.5F, .6F, .7F, .8F}};
  float samples[2][10], results[2][10];
  for (int i = 0; i < 2; ++i) {
    std::memcpy(samples[i], images[i], sizeof images[i]);
    std::memcpy(samples[i] + 6, numbers[i], sizeof numbers[i]);
  }
  ASSERT_EQ(steelyard_model_run(model, 2, samples, sizeof samples, results[0], sizeof results,
                                model.message, sizeof model.message),
            0)
      << model.message;
  for (int i = 0; i < 2; ++i) {
    for (int k = 0; k < 4; ++k) EXPECT_EQ(results[i][k], numbers[i][k] * 10);
    for (int k = 0; k < 6; ++k) EXPECT_EQ(results[i][4 + k], images[i][k] + 1);
  }
}

TEST(Rows, AnIndexOutsideTheTableIsTheCallersError) {
  const float good[4] = {0, 2, 1, 0}, bad[4] = {0, 2, 3, 0};
  float results[8];
  Loaded model(rows());
  const auto run = [&](const float(&words)[4]) {
    return steelyard_model_run(model, 1, words, sizeof words, results, sizeof results,
                               model.message, sizeof model.message);
  };
  EXPECT_EQ(run(good), STEELYARD_RUNTIME_OK) << model.message;
  EXPECT_EQ(results[2], 5.0F);
  EXPECT_EQ(run(bad), STEELYARD_RUNTIME_INVALID_ARGUMENT);
  EXPECT_NE(std::string(model.message).find("expected indices in [0, 3), got 3"), std::string::npos)
      << model.message;
  EXPECT_THROW(deploy::Interpreter(rows()).run(Tensor::from<float>({0, 2, 3, 0}, {1, 4})),
               std::out_of_range);
}

TEST(Interpreters, ThatWereMovedFromSaySo) {
  deploy::Interpreter first(rows());
  const deploy::Interpreter second = std::move(first);
  const Tensor words = Tensor::zeros({1, 4});
  EXPECT_EQ(second.run(words).size(), 8);
  // NOLINTBEGIN(bugprone-use-after-move)
  const auto refuses = [&](const auto& f) {
    EXPECT_EQ(message_of<std::logic_error>([&] { f(first); }),
              "[interpreter] it was moved from and has no graph");
  };
  refuses([&](const auto& model) { model.run(words); });
  refuses([&](const auto& model) { model.run_raw(words); });
  refuses([&](const auto& model) { model.run_raw(0, nullptr, nullptr); });
  refuses([&](const auto& model) { model.workspace_bytes(1); });
  refuses([&](const auto& model) { model.run_all(words); });
  refuses([&](const auto& model) { model.run_node(second.graph().nodes[0], {words, words}); });
  // NOLINTEND(bugprone-use-after-move)
}

TEST(Interpreters, TakeBatchesOfNoSamples) {
  const deploy::Interpreter model(rows(), deploy::Engine::kLean);
  EXPECT_EQ(model.run(Tensor::zeros({0, 4})).shape(), (Shape{0, 4, 2}));
  EXPECT_EQ(model.run_raw(Tensor::zeros({0, 4})).shape(), (Shape{0, 4, 2}));
  model.run_raw(0, nullptr, nullptr);
}

}  // namespace
}  // namespace steelyard
