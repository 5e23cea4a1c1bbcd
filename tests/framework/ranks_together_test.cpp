// What ranks do together: errors that become those of all, and evaluation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "steelyard/framework/comm/threads.h"
#include "steelyard/framework/files/safetensors_header.h"
#include "steelyard/framework/train/evaluate.h"
#include "steelyard/framework/train/shards/replicas.h"
#include "steelyard/layers/containers/builders.h"
#include "tests/support/temporary_folder.h"

namespace steelyard {
namespace {

using comm::Communicator;
using comm::run_as_ranks;
using testing::message_of;

TEST(OnAllRanks, AnErrorOfOneIsThatOfAll) {
  struct Case {
    std::string name;
    std::function<void(int rank)> work;
    std::string message;  // of every rank
    bool of_device = false;
  };
  const auto refuse = [](int rank) {
    throw InputError("file " + std::to_string(rank) + " is missing");
  };
  const Case cases[] = {
      {"none", [](int) {}, ""},
      {"all the same", [&](int) { refuse(7); }, "file 7 is missing"},
      {"all, each its own", refuse, "rank 0: file 0 is missing"},
      {"one", [&](int rank) { rank == 2 ? refuse(2) : void(); }, "rank 2: file 2 is missing"},
      {"a device",
       [](int rank) {
         if (rank == 1) throw DeviceError("no GPU");
       },
       "rank 1: no GPU", true},
  };
  for (const Case& c : cases) {
    std::atomic<int> equal = 0;
    run_as_ranks(4, [&](Communicator& ranks) {
      const auto together = [&] { on_all_ranks(ranks, [&] { c.work(ranks.rank()); }); };
      const std::string message = c.of_device         ? message_of<SharedDeviceError>(together)
                                  : c.message.empty() ? (together(), "")
                                                      : message_of<SharedInputError>(together);
      equal += message == c.message;
      ranks.finish();
    });
    EXPECT_EQ(equal, 4) << c.name;
  }
}

std::string checkpoint_header(std::int64_t floats) {
  return encode_safetensors_header(
      {{"weight", DType::kF32, {floats}, 0, static_cast<std::uint64_t>(4 * floats)}}, {});
}

// The message of rank 1, where rank 0 sends this in place of a checkpoint.
std::string message_beside(const std::string& header, std::uint64_t bytes) {
  std::string message;
  run_as_ranks(2, [&](Communicator& ranks) {
    if (ranks.rank() == 0) {
      ranks.broadcast(header);
      ranks.broadcast(std::as_writable_bytes(std::span(&bytes, 1)));
      return;
    }
    message = message_of<std::runtime_error>([&] {
      std::optional<Checkpoint> checkpoint;
      broadcast(checkpoint, ranks);
    });
  });
  return message;
}

TEST(BroadcastOfACheckpoint, WhatRankZeroAnnouncesIsBounded) {
  const std::int64_t floats = std::int64_t{1} << 50;
  EXPECT_THAT(message_beside(checkpoint_header(floats), 4 * floats),
              ::testing::StartsWith("rank 0 announces a checkpoint of 4503599627370496 bytes, and "
                                    "this machine has memory of "));
  EXPECT_THAT(message_beside(checkpoint_header(floats), 4096),
              ::testing::StartsWith("checkpoint of rank 0: "));
  EXPECT_THAT(message_beside("{}", 0), ::testing::StartsWith("checkpoint of rank 0: "));
}

thread_local bool is_rank = false;

// Samples that are worth a thread's while; counts those that a rank's own thread has read.
class DecodedSamples : public TensorSamples {
 public:
  using TensorSamples::TensorSamples;
  bool decodes() const override { return true; }
  const void* in_memory(std::int64_t) const override { return nullptr; }
  void read(std::int64_t sample, Rng*, void* to) const override {
    if (is_rank) ++read_by_ranks_;
    std::memcpy(to, TensorSamples::in_memory(sample), shape()[0] * sizeof(float));
  }
  int read_by_ranks() const { return read_by_ranks_; }

 private:
  mutable std::atomic<int> read_by_ranks_ = 0;
};

TEST(Evaluate, RanksReadAheadAndEndWithTheBitsOfOne) {
  Rng rng(5);
  Dataset samples;
  Tensor inputs = Tensor::empty({23, 6});
  for (float& v : inputs.span<float>()) v = static_cast<float>(rng.normal());
  samples.targets = Tensor::empty({23}, DType::kI64);
  for (std::int64_t& v : samples.targets.span<std::int64_t>()) {
    v = static_cast<std::int64_t>(rng.below(3));
  }
  samples.classes = 3;
  const auto source = std::make_shared<DecodedSamples>(inputs);
  samples.source = source;
  const auto metrics = [&](Communicator& ranks) {
    Rng weights(7);
    const auto model = linear(6, 3, weights);
    return evaluate(*model, samples, {}, {}, 4, ranks);
  };
  Communicator alone;
  const Metrics expected = metrics(alone);
  for (const int size : {2, 4, 8}) {  // of 6 batches: some ranks have two, some none
    run_as_ranks(size, [&](Communicator& ranks) {
      is_rank = true;
      const Metrics found = metrics(ranks);
      EXPECT_EQ(found.loss, expected.loss) << size;
      EXPECT_EQ(found.top1, expected.top1) << size;
      ranks.finish();
    });
  }
  EXPECT_EQ(source->read_by_ranks(), 0);
}

}  // namespace
}  // namespace steelyard
