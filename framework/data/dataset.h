// Datasets in memory: samples, targets, splits and normalisation.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "steelyard/framework/tensor.h"

namespace steelyard {

// The most classes that a dataset or a model may have.
inline constexpr std::int64_t kMaxClasses = 65536;

// Samples and what they should give. Copies share storage.
struct Dataset {
  Tensor inputs;             // u8 or f32; [N, H, W, C] or [N, features]
  Tensor targets;            // labels i64 [N], or values f32 [N, ...]
  std::int64_t classes = 0;  // 0 for regression

  std::int64_t size() const { return inputs.defined() ? inputs.dim(0) : 0; }
};

struct DatasetSplits {
  Dataset train;
  Dataset test;
};

// What is read of a dataset's files.
enum class DatasetParts { kAll, kTest };

// Throws InputError that starts with `source` unless shapes, dtypes and label ranges are as
// described above and every f32 is finite.
void validate_dataset(const Dataset& dataset, const std::string& source);

// Throws InputError that starts with `what` and names the first sample and the position in it where
// an f32 value is not finite; other dtypes pass.
void require_finite(const Tensor& samples, const std::string& what);

// The samples at `indices`, copied in that order.
Dataset select_samples(const Dataset& dataset, std::span<const std::int64_t> indices);
// The first `count` of them, or all.
Dataset first_samples(const Dataset& dataset, std::int64_t count);

// {train, validation}: `count` samples chosen by a permutation that depends on the seed only; both
// parts keep the original order. Throws InputError unless 0 <= count < size.
std::pair<Dataset, Dataset> split_validation(const Dataset& dataset, std::int64_t count,
                                             std::uint64_t seed);

// A permutation of [0, size) that depends on its arguments only (Fisher-Yates over Philox).
std::vector<std::int64_t> random_permutation(std::int64_t size, std::uint64_t seed,
                                             std::uint64_t stream);

// y = (x - mean) / stddev per channel (the last dimension of the inputs); u8 inputs are scaled by
// 1/255 first. Empty vectors mean no normalisation.
struct Normalization {
  std::vector<float> mean;
  std::vector<float> stddev;

  bool operator==(const Normalization& other) const = default;
};

// Population mean and standard deviation over every sample and pixel, in double. A constant channel
// gets stddev 1.
Normalization compute_normalization(const Dataset& dataset);

}  // namespace steelyard
