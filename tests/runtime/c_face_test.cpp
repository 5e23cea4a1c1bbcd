// The runtime's C face: what it gives is the interpreter's, and what is wrong is a status.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "steelyard/export/graph_file.h"
#include "steelyard/runtime/interpreter.h"
#include "steelyard/runtime/steelyard_runtime.h"
#include "tests/runtime/runtime_models.h"
#include "tests/support/temporary_folder.h"

namespace steelyard {
namespace {

using testing::pixels;
using testing::shipped_model;
using testing::TemporaryFolder;

// A loaded model, ended with the test.
class CFace : public ::testing::Test {
 protected:
  CFace() {
    deploy::save_graph(path_, shipped_model());
    EXPECT_EQ(steelyard_model_load(path_.c_str(), &model_, message_, sizeof message_), 0)
        << message_;
  }
  ~CFace() override { steelyard_model_destroy(model_); }

  std::vector<float> run(const Tensor& x) {
    std::vector<float> scores(static_cast<std::size_t>(x.dim(0)) * 5);
    EXPECT_EQ(steelyard_model_run(model_, x.dim(0), x.raw(), static_cast<std::size_t>(x.bytes()),
                                  scores.data(), scores.size() * sizeof(float), message_,
                                  sizeof message_),
              0)
        << message_;
    return scores;
  }

  TemporaryFolder folder_;
  std::filesystem::path path_ = folder_ / "model.safetensors";
  steelyard_model* model_ = nullptr;
  char message_[256] = "";
};

TEST_F(CFace, GivesWhatTheInterpreterGives) {
  const deploy::Interpreter reference(shipped_model());
  for (const std::int64_t count : {1, 3, 17}) {
    const Tensor expected = reference.run_raw(pixels(count));
    const auto values = expected.span<float>();
    EXPECT_EQ(run(pixels(count)), std::vector<float>(values.begin(), values.end())) << count;
  }
}

TEST_F(CFace, DescribesTheModel) {
  steelyard_sample input{}, output{};
  ASSERT_EQ(steelyard_model_input(model_, &input), 0);
  ASSERT_EQ(steelyard_model_output(model_, &output), 0);
  EXPECT_EQ(input.dtype, STEELYARD_RUNTIME_U8);
  EXPECT_EQ(std::vector<std::int64_t>(input.shape, input.shape + input.rank),
            (std::vector<std::int64_t>{9, 8, 3}));
  EXPECT_EQ(input.elements, 9 * 8 * 3);
  EXPECT_STREQ(input.name, "input");
  EXPECT_EQ(output.dtype, STEELYARD_RUNTIME_F32);
  EXPECT_EQ(output.rank, 1);
  EXPECT_EQ(output.elements, 5);
  EXPECT_STREQ(steelyard_model_class_name(model_, 1), "dog");
  EXPECT_EQ(steelyard_model_class_name(model_, 5), nullptr);
  EXPECT_EQ(steelyard_model_class_name(model_, -1), nullptr);
  EXPECT_STREQ(steelyard_runtime_version(), "0.1.0");
}

TEST_F(CFace, LoadsBytesThatNeedNotStay) {
  std::string bytes = testing::read_bytes(path_);
  steelyard_model* other = nullptr;
  ASSERT_EQ(
      steelyard_model_load_bytes(bytes.data(), bytes.size(), &other, message_, sizeof message_), 0)
      << message_;
  std::fill(bytes.begin(), bytes.end(), '\0');
  std::swap(model_, other);
  const std::vector<float> scores = run(pixels(2));
  std::swap(model_, other);
  steelyard_model_destroy(other);
  EXPECT_EQ(scores, run(pixels(2)));
}

TEST_F(CFace, RunsInSeveralThreadsAtOnce) {
  const std::vector<float> expected = run(pixels(4));
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (int& count : wrong) {
    threads.emplace_back([&] {
      EXPECT_EQ(steelyard_runtime_set_threads(1), 0);
      for (int i = 0; i < 20; ++i) count += run(pixels(4)) == expected ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST_F(CFace, TellsWhatIsWrongWithAFile) {
  steelyard_model* none = model_;
  EXPECT_EQ(steelyard_model_load((folder_ / "absent").c_str(), &none, message_, sizeof message_),
            STEELYARD_RUNTIME_INVALID_MODEL);
  EXPECT_EQ(none, nullptr);
  EXPECT_NE(std::string(message_).find("absent: cannot open"), std::string::npos) << message_;
  const std::string bytes = testing::read_bytes(path_);
  for (const std::size_t at : {std::size_t{3}, std::size_t{200}, bytes.size() - 1}) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    EXPECT_EQ(steelyard_model_load_bytes(damaged.data(), damaged.size(), &none, message_,
                                         sizeof message_),
              STEELYARD_RUNTIME_INVALID_MODEL)
        << at;
    EXPECT_EQ(std::string(message_).substr(0, 6), "model:") << message_;
  }
  for (std::size_t length = 0; length < bytes.size(); length += bytes.size() / 50) {
    EXPECT_NE(steelyard_model_load_bytes(bytes.data(), length, &none, nullptr, 0), 0) << length;
  }
}

TEST_F(CFace, RefusesArgumentsThatDoNotFit) {
  const Tensor x = pixels(2);
  float scores[10];
  const auto run_with = [&](const steelyard_model* model, std::int64_t samples, const void* input,
                            std::size_t input_bytes, float* output, std::size_t output_bytes) {
    return steelyard_model_run(model, samples, input, input_bytes, output, output_bytes, message_,
                               sizeof message_);
  };
  EXPECT_EQ(run_with(model_, 2, x.raw(), 432, scores, sizeof scores), 0);
  EXPECT_STREQ(message_, "");
  EXPECT_EQ(run_with(nullptr, 2, x.raw(), 432, scores, sizeof scores),
            STEELYARD_RUNTIME_INVALID_ARGUMENT);
  EXPECT_EQ(run_with(model_, 2, nullptr, 432, scores, sizeof scores),
            STEELYARD_RUNTIME_INVALID_ARGUMENT);
  EXPECT_EQ(run_with(model_, 2, x.raw(), 432, nullptr, sizeof scores),
            STEELYARD_RUNTIME_INVALID_ARGUMENT);
  EXPECT_EQ(run_with(model_, 0, nullptr, 0, nullptr, 0), 0);
  EXPECT_EQ(run_with(model_, 0, x.raw(), 432, scores, 0), STEELYARD_RUNTIME_INVALID_ARGUMENT);
  EXPECT_EQ(run_with(model_, -1, x.raw(), 0, scores, 0), STEELYARD_RUNTIME_INVALID_ARGUMENT);
  EXPECT_EQ(run_with(model_, 2, x.raw(), 431, scores, sizeof scores),
            STEELYARD_RUNTIME_INVALID_ARGUMENT);
  EXPECT_STREQ(message_, "[runtime] expected 432 bytes of inputs for 2 samples, got 431");
  EXPECT_EQ(run_with(model_, 2, x.raw(), 432, scores, 39), STEELYARD_RUNTIME_INVALID_ARGUMENT);
  EXPECT_EQ(run_with(model_, INT64_MAX / 3, x.raw(), 432, scores, sizeof scores),
            STEELYARD_RUNTIME_INVALID_ARGUMENT);
  EXPECT_EQ(std::string(message_).substr(0, 52),
            "[runtime] expected more than 2^63 bytes of inputs fo");
  EXPECT_EQ(steelyard_model_load(nullptr, nullptr, nullptr, 0), STEELYARD_RUNTIME_INVALID_ARGUMENT);
  EXPECT_EQ(steelyard_model_load(path_.c_str(), nullptr, nullptr, 0),
            STEELYARD_RUNTIME_INVALID_ARGUMENT);
  EXPECT_EQ(steelyard_model_input(nullptr, nullptr), STEELYARD_RUNTIME_INVALID_ARGUMENT);
  EXPECT_EQ(steelyard_model_output(model_, nullptr), STEELYARD_RUNTIME_INVALID_ARGUMENT);
  EXPECT_EQ(steelyard_model_class_name(nullptr, 0), nullptr);
  EXPECT_EQ(steelyard_runtime_set_threads(-1), STEELYARD_RUNTIME_INVALID_ARGUMENT);
  EXPECT_EQ(steelyard_runtime_set_threads(100000), STEELYARD_RUNTIME_INVALID_ARGUMENT);
  steelyard_model_destroy(nullptr);
}

TEST_F(CFace, RefusesRowsThatAreTooFarApart) {
  const Image photo = testing::photo();
  std::vector<std::uint8_t> sample(9 * 8 * 3);
  for (const std::size_t row_bytes :
       {std::size_t{89}, (std::size_t{1} << 31) + 1, std::size_t{1} << 60, SIZE_MAX}) {
    EXPECT_EQ(
        steelyard_model_image(model_, photo.pixels.data(), photo.height, photo.width, 3, row_bytes,
                              sample.data(), sample.size(), message_, sizeof message_),
        STEELYARD_RUNTIME_INVALID_ARGUMENT);
    EXPECT_EQ(std::string(message_), "[runtime] expected 90 to 2147483648 bytes in a row, got " +
                                         std::to_string(row_bytes));
  }
}

TEST_F(CFace, DestroyingAModelReturnsWhatItsRunsTook) {
  const std::int64_t before = allocator_stats().in_use_bytes;
  steelyard_model* other = nullptr;
  ASSERT_EQ(steelyard_model_load(path_.c_str(), &other, message_, sizeof message_), 0);
  std::swap(model_, other);
  run(pixels(300));
  std::swap(model_, other);
  steelyard_model_destroy(other);
  EXPECT_EQ(allocator_stats().in_use_bytes, before);
  EXPECT_EQ(allocator_stats().cached_bytes, 0);
}

TEST_F(CFace, CutsMessagesToTheirRoom) {
  steelyard_model* none = nullptr;
  char room[5] = "xxxx";
  EXPECT_EQ(steelyard_model_load_bytes("", 0, &none, room, sizeof room),
            STEELYARD_RUNTIME_INVALID_MODEL);
  EXPECT_STREQ(room, "mode");
}

}  // namespace
}  // namespace steelyard
