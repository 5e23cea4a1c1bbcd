#include "steelyard/framework/train/shards/sharded_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>

#include "steelyard/framework/comm/threads.h"
#include "steelyard/framework/ops/losses/losses.h"
#include "steelyard/framework/ops/products/linear.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/layers/containers/builders.h"
#include "steelyard/layers/identity.h"

namespace steelyard {
namespace {

using comm::Communicator;
using comm::run_as_ranks;

constexpr std::int64_t kClasses = 3;

ModulePtr<Sequential> model_with_norm_and_dropout() {
  Rng rng(7);
  return sequential({{"conv", conv2d(2, 4, 3, rng, {.padding = {1, 1}})},
                     {"norm", batch_norm2d(4)},
                     {"relu", relu()},
                     {"dropout", dropout(0.25)},
                     {"flatten", flatten()},
                     {"fc", linear(4 * 4 * 4, kClasses, rng)}});
}

Batch batch_of(std::int64_t rows) {
  Rng rng(11);
  Batch batch{Tensor::empty({rows, 4, 4, 2}), Tensor::empty({rows}, DType::kI64)};
  for (float& v : batch.inputs.span<float>()) v = static_cast<float>(3 * rng.normal() + 5);
  for (std::int64_t& v : batch.targets.span<std::int64_t>()) {
    v = static_cast<std::int64_t>(rng.below(kClasses));
  }
  return batch;
}

Variable loss_of(Module& model, const Batch& rows, std::int64_t shard) {
  Rng rng(3, static_cast<std::uint64_t>(shard));
  ForwardContext context{.training = true, .rng = &rng};
  return cross_entropy(model.forward(Variable(rows.inputs), context), rows.targets);
}

std::string bytes_of(const Tensor& tensor) {
  return {static_cast<const char*>(tensor.raw()), static_cast<std::size_t>(tensor.bytes())};
}

// The bytes of the loss, of every gradient and of every buffer after `steps` steps.
std::string after_steps(Communicator& ranks, std::int64_t shards, std::int64_t rows,
                        std::size_t bucket_bytes = GradientBuckets::kBytes) {
  const auto model = model_with_norm_and_dropout();
  ShardedStep step(*model, shards, ranks, bucket_bytes);
  std::string bytes;
  for (int i = 0; i < 2; ++i) {
    bytes += bytes_of(step.run(batch_of(rows), [&](const Batch& part, std::int64_t shard) {
      return loss_of(*model, part, shard);
    }));
    for (const NamedParameter& p : model->named_parameters()) bytes += bytes_of(p.variable.grad());
  }
  for (const NamedBuffer& b : model->named_buffers()) bytes += bytes_of(b.tensor);
  return bytes;
}

// 21 rows are no multiple of the shards; of 3 rows and 8 shards most ranks have none. Sums begin
// with every gradient, with some together, and after backward.
TEST(ShardedStep, GivesTheSameBitsForAnyNumberOfRanks) {
  for (const std::int64_t rows : {32, 21, 3}) {
    Communicator alone;
    const std::string expected = after_steps(alone, 8, rows);
    for (const int ranks : {2, 4, 8}) {
      for (const std::size_t bucket_bytes : {1, 300, 1 << 20}) {
        std::mutex mutex;
        int same = 0;
        run_as_ranks(ranks, [&](Communicator& all) {
          const std::string bytes = after_steps(all, 8, rows, bucket_bytes);
          const std::lock_guard lock(mutex);
          same += bytes == expected ? 1 : 0;
        });
        EXPECT_EQ(same, ranks) << rows << " rows, " << ranks << " ranks, " << bucket_bytes;
      }
    }
  }
}

// In backward: whether bytes go between the ranks, for which it waits at most so long.
class WatchesBytes : public Function {
 public:
  WatchesBytes(Communicator& ranks, std::chrono::milliseconds patience, bool& seen)
      : ranks_(ranks), before_(ranks.stats().bytes_sent), patience_(patience), seen_(seen) {}
  std::string name() const override { return "watches_bytes"; }
  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    const auto end = std::chrono::steady_clock::now() + patience_;
    const auto sent = [&] { return ranks_.stats().bytes_sent > before_; };
    while (!sent() && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    seen_ = sent();
    return {grad_output};
  }

 private:
  Communicator& ranks_;
  std::int64_t before_;
  std::chrono::milliseconds patience_;
  bool& seen_;
};

// Gradients of the last layer travel while backward is at the first one; a parameter without a
// gradient and a frozen one behind it keep nobody waiting.
TEST(ShardedStep, SumsOfGradientsBeginDuringBackward) {
  for (const auto& [bucket_bytes, patience, expected] :
       {std::tuple<std::size_t, int, bool>{1, 20'000, true}, {1 << 20, 0, false}}) {
    run_as_ranks(2, [&](Communicator& all) {
      Rng rng(7);
      const auto model = sequential({{"first", linear(2, 3, rng)},
                                     {"last", linear(3, 1, rng)},
                                     {"frozen", linear(1, 1, rng)},
                                     {"unused", linear(1, 1, rng)}});
      const std::vector<NamedParameter> parameters = model->named_parameters();
      const auto variable = [&](std::size_t i) { return parameters[i].variable; };
      variable(4).set_requires_grad(false);
      bool seen = !expected;
      ShardedStep step(*model, 4, all, bucket_bytes);
      const Batch batch{Tensor::full({8, 2}, 0.5), Tensor::zeros({8, 1})};
      step.run(batch, [&](const Batch& part, std::int64_t shard) {
        const Variable bias = variable(1);
        const bool last = shard % 2 == 1;
        const auto watches = std::make_shared<WatchesBytes>(
            all, std::chrono::milliseconds(last ? patience : 0), seen);
        const Variable watched = record(bias.value().clone(), watches, {bias});
        Variable y = linear(Variable(part.inputs), variable(0), watched);
        y = linear(linear(y, variable(2), variable(3)), variable(4), variable(5));
        return mse_loss(y, part.targets);
      });
      EXPECT_EQ(seen, expected);
      EXPECT_TRUE(variable(1).grad().defined());
      EXPECT_FALSE(variable(4).grad().defined());
      EXPECT_FALSE(variable(6).grad().defined());
    });
  }
}

// The gradient of a frozen parameter does not travel; once it is trained again, it does.
TEST(ShardedStep, GradientsOfFrozenParametersAreNotSent) {
  run_as_ranks(2, [&](Communicator& all) {
    Rng rng(7);
    const auto model =
        sequential({{"large", linear(500, 20, rng)}, {"small", linear(20, kClasses, rng)}});
    Variable weight = model->named_parameters()[0].variable;
    ShardedStep step(*model, 2, all);
    const Batch batch{Tensor::full({8, 500}, 0.5), Tensor::zeros({8}, DType::kI64)};
    const auto bytes_of_a_step = [&] {
      const std::int64_t before = all.stats().bytes_sent;
      step.run(batch,
               [&](const Batch& part, std::int64_t shard) { return loss_of(*model, part, shard); });
      return all.stats().bytes_sent - before;
    };
    weight.set_grad(Tensor::zeros(weight.shape()));  // of an earlier step
    weight.set_requires_grad(false);
    EXPECT_LT(bytes_of_a_step(), weight.value().bytes() / 10);
    EXPECT_FALSE(weight.grad().defined());
    weight.set_requires_grad(true);
    EXPECT_GT(bytes_of_a_step(), weight.value().bytes() / 2);
    EXPECT_TRUE(weight.grad().defined());
    all.finish();
  });
}

TEST(ShardedStep, IsTheMeanOverTheRowsOfTheBatch) {
  const auto model = model_with_norm_and_dropout();
  model->slot("dropout").replace(make_module<Identity>());
  model->slot("norm").replace(make_module<Identity>());
  Communicator alone;
  for (const std::int64_t rows : {32, 21, 3}) {
    const Batch batch = batch_of(rows);
    clear_gradients(*model);
    const Variable whole = loss_of(*model, batch, 0);
    whole.backward();
    std::vector<Tensor> expected;
    for (const NamedParameter& p : model->named_parameters()) {
      expected.push_back(p.variable.grad().clone());
    }
    const Tensor loss =
        ShardedStep(*model, 8, alone).run(batch, [&](const Batch& part, std::int64_t shard) {
          return loss_of(*model, part, shard);
        });
    EXPECT_NEAR(loss.item(), whole.value().item(), 1e-6);
    const auto parameters = model->named_parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const Tensor& gradient = parameters[i].variable.grad();
      for (std::int64_t k = 0; k < gradient.size(); ++k) {
        EXPECT_NEAR(gradient.data<float>()[k], expected[i].data<float>()[k], 2e-6)
            << parameters[i].name;
      }
    }
  }
}

// Each shard is normalized by itself, and the running statistics follow the batch.
TEST(ShardedStep, MovesRunningStatisticsOnceByTheMomentsOfTheBatch) {
  const auto norm = batch_norm2d(2);
  const Batch batch = batch_of(21);
  Communicator alone;
  ShardedStep(*norm, 8, alone).run(batch, [&](const Batch& part, std::int64_t) {
    ForwardContext context{.training = true};
    const Variable y = norm->forward(Variable(part.inputs), context);
    return mse_loss(y, Tensor::zeros(y.shape()));
  });
  EXPECT_EQ(norm->num_batches_tracked().item(), 1);
  const std::int64_t count = batch.inputs.size() / 2;
  for (std::int64_t c = 0; c < 2; ++c) {
    double sum = 0, squares = 0;
    for (std::int64_t i = 0; i < count; ++i) sum += batch.inputs.data<float>()[2 * i + c];
    const double mean = sum / static_cast<double>(count);
    for (std::int64_t i = 0; i < count; ++i) {
      squares += std::pow(batch.inputs.data<float>()[2 * i + c] - mean, 2);
    }
    EXPECT_NEAR(norm->running_mean().data<float>()[c], 0.1 * mean, 1e-6);
    EXPECT_NEAR(norm->running_var().data<float>()[c],
                0.9 + 0.1 * squares / static_cast<double>(count - 1), 2e-6);
  }
}

// Gathers the largest input and how often it ran; refuses to run before a first pass.
class KnowsTheLargest : public Module, public StepStatistics {
 public:
  Variable forward(const Variable& x, ForwardContext&) override {
    if (!first_pass_ && !known_) throw std::logic_error("ran before anything was known");
    for (const float v : x.value().span<float>()) {
      *largest_.data<float>() = std::max(*largest_.data<float>(), v);
    }
    *passes_.data<std::int64_t>() += 1;
    return x;
  }
  std::string type_name() const override { return "KnowsTheLargest"; }

  bool needs_first_pass() const override { return !known_; }
  void begin_first_pass() override { first_pass_ = true; }
  void end_first_pass() override { first_pass_ = false; }
  void begin_step() override {
    largest_.fill(-1e30);
    passes_.fill(0);
  }
  std::vector<Tensor> maxima() override { return {largest_}; }
  std::vector<Tensor> counts() override { return {passes_}; }
  void end_step() override {
    known_ = true;
    learned.emplace_back(*largest_.data<float>(), *passes_.data<std::int64_t>());
  }
  void abandon_step() override {}

  std::vector<std::pair<float, std::int64_t>> learned;

 private:
  Tensor largest_ = Tensor::zeros({1});
  Tensor passes_ = Tensor::zeros({1}, DType::kI64);
  bool first_pass_ = false, known_ = false;
};

TEST(ShardedStep, ModulesThatKnowNothingLearnFromAPassOfTheirOwn) {
  for (const int ranks : {1, 4}) {
    run_as_ranks(ranks, [&](Communicator& all) {
      const auto largest = make_module<KnowsTheLargest>();
      Rng rng(7);
      const auto model = sequential({{"largest", largest}, {"fc", linear(1, 1, rng)}});
      ShardedStep step(*model, 4, all);
      const Batch batch{Tensor::from({1.0F, 7.0F, 2.0F, 3.0F, 4.0F, 5.0F}, {6, 1}),
                        Tensor::zeros({6, 1})};
      for (int i = 0; i < 2; ++i) {
        step.run(batch, [&](const Batch& part, std::int64_t) {
          ForwardContext context{.training = true};
          return mse_loss(model->forward(Variable(part.inputs), context), part.targets);
        });
      }
      const std::pair<float, std::int64_t> of_all{7.0F, 4};
      EXPECT_THAT(largest->learned, ::testing::ElementsAre(of_all, of_all, of_all));
    });
  }
}

TEST(ShardedStep, AnErrorLeavesModulesAsTheyWere) {
  const auto norm = batch_norm2d(2);
  Communicator alone;
  ShardedStep step(*norm, 2, alone);
  const auto fails = [](const Batch&, std::int64_t) -> Variable { throw std::domain_error("no"); };
  EXPECT_THROW(step.run(batch_of(4), fails), std::domain_error);
  ForwardContext context{.training = true};
  norm->forward(Variable(batch_of(4).inputs), context);
  EXPECT_EQ(norm->num_batches_tracked().item(), 1);
}

TEST(ShardedStep, RefusesShardsThatAreNoPowerOfTwo) {
  const auto norm = batch_norm2d(2);
  Communicator alone;
  EXPECT_THROW(ShardedStep(*norm, 3, alone), InputError);
}

}  // namespace
}  // namespace steelyard
