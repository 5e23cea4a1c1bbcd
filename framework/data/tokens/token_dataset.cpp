#include "steelyard/framework/data/tokens/token_dataset.h"

#include <algorithm>

#include "steelyard/framework/data/arrays/npy.h"
#include "steelyard/framework/data/arrays/stored_array.h"
#include "steelyard/framework/files/files.h"
#include "steelyard/framework/files/folders.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"

namespace steelyard {
namespace {

namespace fs = std::filesystem;

class TokenSamples : public SampleSource {
 public:
  TokenSamples(const StoredArray& array, std::int64_t length)
      : array_(array), size_((array.shape()[0] - 1) / length), shape_{length} {}

  std::int64_t size() const override { return size_; }
  DType dtype() const override { return DType::kF32; }
  const Shape& shape() const override { return shape_; }
  std::string name(std::int64_t sample) const override {
    return array_.name() + ": sample " + std::to_string(sample);
  }

  void read(std::int64_t sample, Rng* /*random*/, void* to) const override {
    const Tensor tokens = array_.read(sample * shape_[0], shape_);
    const auto values = tokens.span<std::int64_t>();
    std::transform(values.begin(), values.end(), static_cast<float*>(to),
                   [](std::int64_t token) { return static_cast<float>(token); });
  }

 private:
  StoredArray array_;
  std::int64_t size_;
  Shape shape_;
};

StoredArray stored_tokens(const fs::path& path, TokenType type) {
  const std::string name = printable(path.string());
  if (path.extension() == ".npy") {
    StoredArray array = NpyFile(path).array("");
    const bool whole = !array.holds_floats() && array.kind() != StoredArray::Kind::kBool;
    if (whole && array.shape().size() == 1) return array;
    throw InputError(name + ": expected whole numbers [n], got " + array.text());
  }
  const std::int64_t bytes = type == TokenType::kU16 ? 2 : 4;
  const auto file = std::make_shared<const InputFile>(path);
  const auto size = static_cast<std::int64_t>(file->size());
  if (size % bytes != 0) {
    throw InputError(name + ": expected tokens of " + word_of(type) + ", " + std::to_string(bytes) +
                     " bytes each, got " + std::to_string(size) + " bytes");
  }
  return {range_of_file(file, 0, file->size()), 0,     name,
          StoredArray::Kind::kUnsigned,         bytes, {size / bytes}};
}

// Tokens of four bytes that are read as two: every second one is 0.
void require_no_wider_tokens(const StoredArray& array, TokenType type) {
  constexpr std::int64_t kLooked = 4096;
  const std::int64_t count = std::min(array.shape()[0], kLooked) / 2;
  if (type != TokenType::kU16 || count < 32) return;
  const Tensor tokens = array.read(0, {2 * count});
  const auto values = tokens.span<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i) {
    if (values[static_cast<std::size_t>(2 * i + 1)] != 0) return;
  }
  throw InputError(array.name() +
                   ": every second token is 0: expected tokens of u16, these look "
                   "like u32 (data.tokens.type)");
}

Dataset sequences_of(const fs::path& path, const TokenOptions& options) {
  const StoredArray array = stored_tokens(path, options.type);
  if (path.extension() != ".npy") require_no_wider_tokens(array, options.type);
  const std::int64_t length = options.length;
  Dataset dataset;
  const auto samples = std::make_shared<const TokenSamples>(array, length);
  if (array.shape()[0] < length + 1) {
    throw InputError(array.name() + ": expected at least " + std::to_string(length + 1) +
                     " tokens, a sequence of data.tokens.length and the token after it, got " +
                     std::to_string(array.shape()[0]));
  }
  dataset.source = samples;
  dataset.targets = Tensor::empty({samples->size(), length, 1}, DType::kI64);
  for (std::int64_t i = 0; i < samples->size(); ++i) {
    const Tensor tokens = array.read(i * length, {length + 1});
    const auto values = tokens.span<std::int64_t>();
    for (const std::int64_t token : values) {
      if (token < 0 || token >= kMaxTokens) {
        throw InputError(samples->name(i) + ": expected tokens from 0 to " +
                         std::to_string(kMaxTokens - 1) + ", got " + std::to_string(token));
      }
      dataset.classes = std::max(dataset.classes, token + 1);
    }
    std::copy(values.begin() + 1, values.end(), dataset.targets.data<std::int64_t>() + i * length);
  }
  return dataset;
}

// The file of a split: NAME.bin or NAME.npy; "" where there is none.
fs::path file_of(const fs::path& folder, const std::string& split) {
  return only_one_of(folder, {split + ".bin", split + ".npy"});
}

}  // namespace

DatasetSplits load_tokens(const DatasetRequest& request) {
  const TokenOptions options = request.tokens.value_or(TokenOptions{});
  DatasetSplits splits;
  if (!is_folder(request.path)) {
    splits.train = sequences_of(request.path, options);
    return splits;
  }
  const fs::path train = file_of(request.path, "train"), test = file_of(request.path, "test");
  if (request.needs_train(!test.empty())) {
    if (train.empty()) {
      throw InputError(printable(request.path.string()) + ": expected train.bin or train.npy");
    }
    splits.train = sequences_of(train, options);
  }
  if (test.empty() && !request.test_samples) {
    throw InputError(printable(request.path.string()) + ": expected test.bin or test.npy" +
                     kOrTestAside);
  }
  if (test.empty()) return splits;
  splits.test = sequences_of(test, options);
  const std::int64_t classes = std::max(splits.train.classes, splits.test.classes);
  splits.train.classes = splits.test.classes = classes;
  return splits;
}

}  // namespace steelyard
