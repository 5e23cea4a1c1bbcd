// Datasets: samples, in memory or read one at a time, targets, splits and normalization.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "steelyard/framework/data/dataset_names.h"
#include "steelyard/framework/data/normalization.h"  // IWYU pragma: export
#include "steelyard/framework/data/sample_source.h"
#include "steelyard/framework/data/target_kind.h"
#include "steelyard/framework/tensor/tensor.h"

namespace steelyard {

// The most classes that a dataset or a model may have.
inline constexpr std::int64_t kMaxClasses = 65536;

// Samples and what they should give. Copies share storage.
struct Dataset {
  Tensor inputs;  // u8 or f32, [N, ...] (sample_source.h); undefined where there is a source
  // As target_kind() says: labels i64 [N], values f32 [N, ...], ...; f32 [N, 0]: inputs alone.
  Tensor targets;
  std::int64_t classes = 0;                         // 0 for regression; characters of a text
  std::shared_ptr<const SampleSource> source = {};  // of samples that are not held in memory
  DatasetNames names = {};
  Normalization target_normalization = {};  // that normalize_targets() has applied

  std::int64_t size() const;
  // The dtype of the inputs, wherever they are, and the shape of one of them.
  DType dtype() const;
  Shape sample_shape() const;
  // The bytes that it holds in memory.
  std::int64_t held_bytes() const;
};

// Samples of two dimensions as images of one channel: [H, W] becomes [H, W, 1].
void add_channel_dimension(Dataset& dataset);

// Reads the inputs, wherever they are. The dataset has samples.
std::shared_ptr<const SampleSource> samples_of(const Dataset& dataset);

// The dataset with its inputs in memory. Throws OutOfMemory, and what reading throws.
Dataset load_samples(const Dataset& dataset);

struct DatasetSplits {
  Dataset train;
  Dataset test;
  std::vector<std::string> notes = {};  // what the user should know, a line each
};

// The parts of a dataset that are read.
enum class DatasetParts { kAll, kTest };

// Throws InputError that starts with `source` unless there are as many targets as samples.
void require_target_for_each(const Dataset& dataset, const std::string& source);
// Throws InputError that starts with `source` unless inputs are u8 or f32, the dtypes that are
// read.
void require_input_dtype(const Dataset& dataset, const std::string& source);
// Throws InputError that starts with `source` unless shapes, dtypes and label ranges are as
// described above and every f32 is finite.
void validate_dataset(const Dataset& dataset, const std::string& source);

// Throws InputError that starts with `source` unless samples of the test set have dtypes and shapes
// as those of the training set, which is `train_name`.
void require_same_samples(const DatasetSplits& splits, const std::string& source,
                          const std::string& train_name);

// Throws InputError that starts with `source` unless names are as many as what they name.
void require_names(const Dataset& dataset, const std::string& source);
// Throws InputError that starts with `source` unless the test set is one for a model of the
// training set: samples alike, no other classes, the same names.
void require_test_of(const Dataset& train, const Dataset& test, const std::string& source);

// Throws InputError that starts with `what` and names the first sample and the position in it where
// an f32 value is not finite; other dtypes pass.
void require_finite(const Tensor& samples, const std::string& what);

// Reads every sample of a source of floats once, so that one which is not finite, or cannot be
// read, is an InputError now; samples in memory were asked before, and images are not read.
void require_finite_samples(const Dataset& dataset);

// The samples at `indices`, in that order: copied, or read from the same source.
Dataset select_samples(const Dataset& dataset, std::span<const std::int64_t> indices);
// `count` of them at even distances, or all: of all classes, also where they are in order. They
// keep their names (SampleSource::name()).
Dataset spread_samples(const Dataset& dataset, std::int64_t count);

// {train, validation}: `count` samples chosen by a permutation that depends on the seed only; both
// parts keep the original order. `stratified`: of each class as many as its share of the samples,
// rounded down, and one more of those that lose most by it, the first of equals. Throws InputError
// unless 0 <= count < size, and what require_strata() throws.
std::pair<Dataset, Dataset> split_validation(const Dataset& dataset, std::int64_t count,
                                             std::uint64_t seed, bool stratified = false);
// {train, test}, by another permutation. Throws InputError unless 0 < count < size.
std::pair<Dataset, Dataset> split_test(const Dataset& dataset, std::int64_t count,
                                       std::uint64_t seed, bool stratified = false);
// Throws InputError unless every sample has one class, by which a split can be stratified.
void require_strata(const Dataset& dataset);

// A permutation of [0, size) that depends on its arguments only (Fisher-Yates over Philox).
std::vector<std::int64_t> random_permutation(std::int64_t size, std::uint64_t seed,
                                             std::uint64_t stream);

// Population mean and standard deviation over every sample and pixel, in double. A constant channel
// gets stddev 1. Reads the samples of a source once (u8) or twice (f32). Throws InputError on
// inputs of another dtype, and on a value that is not finite.
Normalization compute_normalization(const Dataset& dataset);
// Mean and standard deviation of targets that are numbers, per column (their last dimension), which
// are in memory.
Normalization compute_target_normalization(const Dataset& dataset);

// Replaces targets f32 [N, ..., columns] by (target - mean) / stddev, in double and rounded once.
// Throws InputError on another number of columns.
void normalize_targets(Dataset& dataset, const Normalization& normalization);

}  // namespace steelyard
