// Sequences of tokens in files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "steelyard/framework/data/data_loader.h"
#include "steelyard/framework/data/dataset_registry.h"
#include "steelyard/framework/data/targets.h"
#include "steelyard/framework/ops/losses/losses.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/train/evaluate.h"
#include "tests/support/npy_files.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tensors.h"

namespace steelyard {
namespace {

using ::testing::ElementsAre;
using testing::message_of;
using testing::npy;

template <typename T>
std::string raw_tokens(const std::vector<T>& tokens) {
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(T)};
}

class Tokens : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& bytes) {
    testing::write_bytes(folder_ / name, bytes);
  }
  DatasetSplits load(const std::string& name, const TokenOptions& options,
                     std::optional<std::int64_t> test = {}) const {
    return builtin_datasets().load({.name = "tokens",
                                    .path = name.empty() ? folder_.path() : folder_ / name,
                                    .tokens = options,
                                    .test_samples = test});
  }
  std::string error(const std::string& name, const TokenOptions& options) const {
    return message_of<InputError>([&] { load(name, options); });
  }

  testing::TemporaryFolder folder_;
};

TEST_F(Tokens, AreSequencesWithTheTokensThatFollow) {
  write("train.bin", raw_tokens<std::uint16_t>({1, 2, 3, 4, 5, 6, 65535, 8}));
  write("test.npy", npy("<i4", "(4,)", raw_tokens<std::int32_t>({9, 8, 7, 6})));
  const DatasetSplits splits = load("", {.length = 3});
  const Dataset train = load_samples(splits.train);
  EXPECT_EQ(train.inputs.shape(), (Shape{2, 3}));
  EXPECT_THAT(train.inputs.span<float>(), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_EQ(train.targets.shape(), (Shape{2, 3, 1}));
  EXPECT_THAT(train.targets.span<std::int64_t>(), ElementsAre(2, 3, 4, 5, 6, 65535));
  EXPECT_EQ(target_kind(train.targets, train.classes), TargetKind::kTokens);
  EXPECT_EQ(train.classes, 65536);
  EXPECT_EQ(splits.test.classes, 65536) << "of both sets";
  EXPECT_THAT(load_samples(splits.test).inputs.span<float>(), ElementsAre(9, 8, 7));
  EXPECT_FALSE(splits.train.inputs.defined()) << "they stay in the file";
}

TEST_F(Tokens, OfOneFileAreSplit) {
  std::vector<std::uint32_t> tokens(21);
  for (std::uint32_t i = 0; i < 21; ++i) tokens[i] = 70000 + i;
  write("all.bin", raw_tokens(tokens));
  const DatasetSplits splits = load("all.bin", {.length = 4, .type = TokenType::kU32}, 2);
  EXPECT_EQ(splits.train.size(), 3);
  EXPECT_EQ(splits.test.size(), 2);
  const Dataset test = load_samples(splits.test);
  for (std::int64_t i = 0; i < test.targets.size(); ++i) {
    EXPECT_EQ(test.targets.data<std::int64_t>()[i],
              static_cast<std::int64_t>(test.inputs.data<float>()[i]) + 1);
  }
}

TEST_F(Tokens, ComeInBatches) {
  write("all.bin", raw_tokens<std::uint16_t>({5, 6, 7, 8, 9}));
  const Dataset train = load("all.bin", {.length = 2}, 1).train;
  LoaderOptions options;
  options.batch_size = 1;
  const Batch batch = make_batch(train, options, 0, 0);
  EXPECT_EQ(batch.inputs.shape(), (Shape{1, 2}));
  EXPECT_EQ(batch.targets.shape(), (Shape{1, 2, 1}));
}

TEST_F(Tokens, RefuseWhatDoesNotFit) {
  const std::string path = (folder_ / "all.bin").string();
  write("all.bin", "abc");
  EXPECT_EQ(error("all.bin", {}), path + ": expected tokens of u16, 2 bytes each, got 3 bytes");
  write("all.bin", raw_tokens<std::uint16_t>({1, 2, 3}));
  EXPECT_EQ(error("all.bin", {.length = 3}),
            path +
                ": expected at least 4 tokens, a sequence of data.tokens.length and the token "
                "after it, got 3");
  write("all.bin", raw_tokens<std::uint32_t>({1, 2, 1U << 24}));
  EXPECT_EQ(error("all.bin", {.length = 2, .type = TokenType::kU32}),
            path + ": sample 0: expected tokens from 0 to 16777215, got 16777216");
  write("all.npy", npy("<f4", "(2,)", std::string(8, '\0')));
  EXPECT_EQ(error("all.npy", {}),
            (folder_ / "all.npy").string() + ": expected whole numbers [n], got float32 [2]");
  EXPECT_EQ(error("", {}), folder_.path().string() + ": expected train.bin or train.npy");
}

// Logits of a fixed table, by the token.
class Bigrams : public Module {
 public:
  explicit Bigrams(Tensor table) : table_(std::move(table)) {}
  Variable forward(const Variable& x, ForwardContext&) override {
    Tensor y = Tensor::empty({x.dim(0), x.dim(1), table_.dim(1)});
    for (std::int64_t i = 0; i < x.value().size(); ++i) {
      const auto token = static_cast<std::int64_t>(x.value().data<float>()[i]);
      std::copy_n(table_.data<float>() + token * table_.dim(1), table_.dim(1),
                  y.data<float>() + i * table_.dim(1));
    }
    return Variable(y);
  }
  std::string type_name() const override { return "Bigrams"; }

 private:
  Tensor table_;
};

TEST_F(Tokens, HaveThePerplexityOfTheirMeanLoss) {
  write("all.bin", raw_tokens<std::uint16_t>({0, 1, 2, 0, 2, 1, 1, 0, 1}));
  const Dataset test = load("all.bin", {.length = 2}, 3).test;
  const Loss loss{.type = Loss::Type::kTokenCrossEntropy};
  EXPECT_NO_THROW(validate_loss(loss, test));
  EXPECT_EQ(message_of<InputError>([&] { validate_loss({}, test); }),
            "the loss cross_entropy needs class labels, the dataset has a token at each position "
            "(train.loss: token_cross_entropy)");
  const Tensor table = testing::random_tensor({3, 3}, 1, DType::kF32);
  Bigrams model(table);
  const Metrics metrics = evaluate(model, test, {}, loss, 2);
  double sum = 0;
  const Dataset held = load_samples(test);
  for (std::int64_t i = 0; i < 6; ++i) {
    const float* row = table.data<float>() + static_cast<int>(held.inputs.data<float>()[i]) * 3;
    double total = 0;
    for (int c = 0; c < 3; ++c) total += std::exp(double(row[c]));
    sum += std::log(total) - double(row[held.targets.data<std::int64_t>()[i]]);
  }
  EXPECT_NEAR(metrics.loss, sum / 6, 1e-6);
  EXPECT_NEAR(value_in(metrics, "perplexity").value(), std::exp(sum / 6), 1e-5);
  EXPECT_FALSE(metrics.top1);
  EXPECT_NEAR(loss_of_zero_outputs(loss, test), std::log(3.0), 1e-12);
}

}  // namespace
}  // namespace steelyard
