// Memory that runs out anywhere in a model's life is a status: nothing ends the process, is lost or
// is taken for a damaged file.
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <new>
#include <optional>
#include <string>

#include "steelyard/export/graph_file.h"
#include "steelyard/framework/tensor/caching_allocator.h"
#include "steelyard/kernels/cpu/line_buffer.h"
#include "steelyard/kernels/cpu/parallel.h"
#include "steelyard/runtime/steelyard_runtime.h"
#include "tests/runtime/allocations.h"
#include "tests/runtime/runtime_models.h"
#include "tests/support/temporary_folder.h"

namespace steelyard {
namespace {

using testing::FailingAllocations;

constexpr std::int64_t kAllOthers = std::numeric_limits<std::int32_t>::max();

// A file, samples, and what the model makes of them.
class OutOfMemoryAnywhere : public ::testing::TestWithParam<std::int64_t> {
 protected:
  OutOfMemoryAnywhere() {
    deploy::save_graph(path_, testing::shipped_model());
    EXPECT_EQ(whole_life(expected_), STEELYARD_RUNTIME_OK) << message_;
  }

  std::int32_t run(const steelyard_model* model, std::array<float, 10>& scores) {
    return steelyard_model_run(model, 2, pixels_.raw(), static_cast<std::size_t>(pixels_.bytes()),
                               scores.data(), sizeof scores, message_, sizeof message_);
  }
  std::int32_t resize(const steelyard_model* model) {
    return steelyard_model_image(model, photo_.pixels.data(), photo_.height, photo_.width, 3,
                                 static_cast<std::size_t>(photo_.width * 3), sample_.data(),
                                 sample_.size(), message_, sizeof message_);
  }
  std::int32_t whole_life(std::array<float, 10>& scores) {
    steelyard_model* model = nullptr;
    std::int32_t status = steelyard_model_load(path_.c_str(), &model, message_, sizeof message_);
    EXPECT_EQ(model == nullptr, status != STEELYARD_RUNTIME_OK);
    if (status == STEELYARD_RUNTIME_OK) status = resize(model);
    if (status == STEELYARD_RUNTIME_OK) status = run(model, scores);
    steelyard_model_destroy(model);
    return status;
  }

  // Calls f() until it takes no allocation that fails, each time one more succeeds before; after it
  // `check` with memory.
  template <typename F, typename Check>
  void at_every_allocation(const F& f, const Check& check) {
    std::array<int, 5> statuses{};
    bool happened = true;
    for (std::int64_t first = 1; happened && !HasFailure(); ++first) {
      SCOPED_TRACE(first);
      {
        const FailingAllocations failing(first, GetParam());
        const std::int32_t status = f();
        happened = failing.happened();
        ++statuses.at(static_cast<std::size_t>(status));
        if (status != STEELYARD_RUNTIME_OK) {
          EXPECT_EQ(status, STEELYARD_RUNTIME_OUT_OF_MEMORY) << message_;
        }
      }
      check();
    }
    EXPECT_GT(statuses[STEELYARD_RUNTIME_OUT_OF_MEMORY], 10);
    EXPECT_GT(statuses[STEELYARD_RUNTIME_OK], 0);
  }

  testing::TemporaryFolder folder_;
  const std::string path_ = folder_ / "model.safetensors";
  const Tensor pixels_ = testing::pixels(2);
  const Image photo_ = testing::photo();
  std::array<std::uint8_t, 9 * 8 * 3> sample_{};
  std::array<float, 10> expected_{};
  char message_[256] = "";
};

TEST_P(OutOfMemoryAnywhere, OfALifeIsAStatus) {
  const std::int64_t in_use = allocator_stats().in_use_bytes, blocks = testing::heap_blocks();
  std::array<float, 10> scores{};
  at_every_allocation([&] { return whole_life(scores); }, [] {});
  EXPECT_EQ(whole_life(scores), STEELYARD_RUNTIME_OK);
  EXPECT_EQ(scores, expected_);
  EXPECT_EQ(allocator_stats().in_use_bytes, in_use);
  EXPECT_LE(testing::heap_blocks(), blocks + 8);  // what is kept for reuse
}

TEST_P(OutOfMemoryAnywhere, OfARunLeavesTheModelAsItWas) {
  steelyard_model* model = nullptr;
  const auto load = [&] {
    steelyard_model_destroy(model);
    ASSERT_EQ(steelyard_model_load(path_.c_str(), &model, message_, sizeof message_), 0);
  };
  load();
  std::array<float, 10> scores{};
  at_every_allocation([&] { return run(model, scores); },
                      [&] {
                        ASSERT_EQ(run(model, scores), STEELYARD_RUNTIME_OK) << message_;
                        EXPECT_EQ(scores, expected_);
                        load();  // whose first run packs its weights
                      });
  steelyard_model_destroy(model);
}

INSTANTIATE_TEST_SUITE_P(Of, OutOfMemoryAnywhere, ::testing::Values(std::int64_t{1}, kAllOthers),
                         [](const auto& param) {
                           return param.param == 1 ? "OneAllocation" : "AllOthers";
                         });

TEST(OutOfMemory, OfAThreadIsThrownToTheCaller) {
  const int before = kernels::num_threads();
  kernels::set_num_threads(2);
  const auto fail = [](std::int64_t begin, std::int64_t) {
    if (begin > 0) throw std::bad_alloc();
  };
  EXPECT_THROW(kernels::parallel_for(2, 1, fail), std::bad_alloc);
  kernels::set_num_threads(before);
}

TEST(OutOfMemory, WhatCannotBeKeptGoesBack) {
  CachingAllocator allocator{Device{}};
  void* const block = allocator.take(4096);
  std::optional<kernels::KeptVector<char16_t>> vector;  // of a type that nobody else keeps
  const std::int64_t blocks = testing::heap_blocks();
  vector.emplace(std::size_t{100}, u'x');
  {
    const FailingAllocations failing(1, kAllOthers);
    allocator.give_back(block, 4096);
    vector.reset();
  }
  EXPECT_EQ(testing::heap_blocks(), blocks);
  EXPECT_EQ(allocator.stats().in_use_bytes, 0);
  EXPECT_EQ(allocator.stats().cached_bytes, 0);
}

}  // namespace
}  // namespace steelyard
