// Batches of a dataset: shuffled, augmented, normalized.
//
// A batch is a pure function of (dataset, options, epoch, batch index): the same with and without
// prefetch, by any number of threads, and after resuming in the middle of an epoch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "steelyard/framework/data/dataset.h"
#include "steelyard/framework/data/images/augmentations.h"

namespace steelyard {

struct Batch {
  Tensor inputs;   // f32, normalized; [B, ...] as the dataset's
  Tensor targets;  // i64 [B, ...] or f32 [B, ...]; probabilities f32 [B, classes] where mixed
  std::int64_t index = 0;  // within the epoch
};

struct LoaderOptions {
  std::int64_t batch_size = 1;
  bool shuffle = false;
  std::uint64_t seed = 0;
  bool drop_last = false;  // leave out a last batch that is not full
  Normalization normalization;
  Augmentation augment;
};

std::int64_t batches_per_epoch(const Dataset& dataset, const LoaderOptions& options);

// The dataset's indices in the order of an epoch.
std::vector<std::int64_t> epoch_order(const Dataset& dataset, const LoaderOptions& options,
                                      std::int64_t epoch);

// Throws InputError unless inputs are u8 or f32 and the options fit the dataset: batch size above
// 0, one mean and stddev per channel, augmentation of images only, padding smaller than the image.
void validate_options(const Dataset& dataset, const LoaderOptions& options);

// One batch; throws std::out_of_range for a batch that the epoch does not have, InputError for an
// input that is not finite and for inputs that are not u8 or f32. The form with `order` =
// epoch_order(...) saves computing it again.
Batch make_batch(const Dataset& dataset, const LoaderOptions& options, std::int64_t epoch,
                 std::int64_t index);
Batch make_batch(const Dataset& dataset, const LoaderOptions& options,
                 const std::vector<std::int64_t>& order, std::int64_t epoch, std::int64_t index);

// The rows [first, first + rows) of a batch alone, for a rank that needs no others. Throws
// std::out_of_range for rows that the batch does not have.
Batch make_batch_rows(const Dataset& dataset, const LoaderOptions& options,
                      const std::vector<std::int64_t>& order, std::int64_t epoch,
                      std::int64_t index, std::int64_t first, std::int64_t rows);

// The parts of make_batch(), for who makes a batch in pieces: its samples, in their order; the
// tensors of `rows` of them; and what fills these from row `first` on.
std::span<const std::int64_t> samples_of_batch(const Dataset& dataset, const LoaderOptions& options,
                                               const std::vector<std::int64_t>& order,
                                               std::int64_t index);
Batch empty_batch(const Dataset& dataset, std::int64_t rows, std::int64_t index);
void fill_rows(const Dataset& dataset, const LoaderOptions& options,
               std::span<const std::int64_t> samples, std::int64_t epoch, Batch& batch,
               std::int64_t first);

}  // namespace steelyard
