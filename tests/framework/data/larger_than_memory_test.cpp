// Datasets of four times the memory that the program may still take.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>

#include "steelyard/framework/data/data_loader.h"
#include "steelyard/framework/data/dataset_digest.h"
#include "steelyard/framework/data/dataset_registry.h"
#include "steelyard/framework/files/safetensors_header.h"
#include "steelyard/kernels/backend.h"
#include "tests/support/npy_files.h"
#include "tests/support/temporary_folder.h"

namespace steelyard {
namespace {

// Four times as much data as the program may still take.
void train_on_more_than_memory(const std::string& dataset, const std::filesystem::path& folder) {
  constexpr rlim_t kMemory = rlim_t{32} << 20;
  rlim_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t limit = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + kMemory;
  const rlimit most{limit, limit};
  if (::setrlimit(RLIMIT_AS, &most) != 0) std::_Exit(2);
  kernels::set_num_threads(2);
  const Dataset train = builtin_datasets().load(dataset, folder).train;
  LoaderOptions options{.batch_size = 256, .shuffle = true, .normalization = {}, .augment = {}};
  options.normalization = compute_normalization(train);
  const auto [rest, validation] = split_validation(train, 100, 1);
  std::int64_t samples = digest_of(std::array{rest, validation}).size() == 64 ? 0 : -1;
  DataLoader loader(rest, options);
  loader.start(0);
  while (const auto batch = loader.next()) samples += batch->inputs.dim(0);
  std::_Exit(samples == train.size() - 100 ? 0 : 3);
}

class LargerThanMemory : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
    GTEST_SKIP() << "the sanitizer needs the memory that the test takes away";
#endif
#endif
  }
  // A file that begins with `head` and has `zeros` bytes behind it, which take no room on disk.
  void write(const std::string& name, const std::string& head, std::int64_t zeros = 0) {
    testing::write_bytes(folder_ / name, head);
    std::filesystem::resize_file(folder_ / name, head.size() + static_cast<std::uint64_t>(zeros));
  }
  void expect_trainable(const std::string& dataset) {
    EXPECT_EXIT(train_on_more_than_memory(dataset, folder_.path()), ::testing::ExitedWithCode(0),
                "");
  }

  static constexpr std::int64_t kSamples = std::int64_t{128} << 8;  // of 4 KiB
  testing::TemporaryFolder folder_;
};

TEST_F(LargerThanMemory, Arrays) {
  const std::string n = std::to_string(kSamples);
  write("train_inputs.npy", testing::npy("|u1", "(" + n + ", 64, 64)", ""), kSamples * 4096);
  write("train_targets.npy", testing::npy("|u1", "(" + n + ",)", ""), kSamples);
  write("test_inputs.npy", testing::npy("|u1", "(1, 64, 64)", ""), 4096);
  write("test_targets.npy", testing::npy("|u1", "(1,)", ""), 1);
  expect_trainable("arrays");
}

TEST_F(LargerThanMemory, Idx) {
  const auto big_endian = [](std::int64_t n) {
    return std::string{static_cast<char>(n >> 24), static_cast<char>(n >> 16),
                       static_cast<char>(n >> 8), static_cast<char>(n)};
  };
  for (const auto& [split, count] :
       {std::pair("train", kSamples), std::pair("test", std::int64_t{1})}) {
    write(std::string(split) + "-images-idx3-ubyte",
          big_endian(0x803) + big_endian(count) + big_endian(64) + big_endian(64), count * 4096);
    write(std::string(split) + "-labels-idx1-ubyte", big_endian(0x801) + big_endian(count), count);
  }
  expect_trainable("idx");
}

TEST_F(LargerThanMemory, Cifar) {
  for (const char* name : {"data_batch_1.bin", "data_batch_2.bin"}) {
    write(name, "", kSamples * 2 / 3 * 3073);
  }
  write("test_batch.bin", "", 3073);
  expect_trainable("cifar10");
}

TEST_F(LargerThanMemory, SafetensorsInShards) {
  const auto write_shard = [&](const std::string& name, std::int64_t count) {
    const auto bytes = static_cast<std::uint64_t>(count) * 4096;
    const auto all = bytes + static_cast<std::uint64_t>(count) * 8;
    write(name,
          encode_safetensors_header({{"inputs", DType::kU8, {count, 64, 64}, 0, bytes},
                                     {"targets", DType::kI64, {count}, bytes, all}},
                                    {}),
          static_cast<std::int64_t>(all));
  };
  write_shard("train-00001-of-00002.safetensors", kSamples / 2);
  write_shard("train-00002-of-00002.safetensors", kSamples / 2);
  write_shard("test.safetensors", 1);
  expect_trainable("safetensors");
}

}  // namespace
}  // namespace steelyard
