// Batches of a dataset: shuffled, augmented, normalized, prepared one step ahead of training.
//
// A batch is a pure function of (dataset, options, epoch, batch index): the same with and without
// prefetch, by any number of threads, and after resuming in the middle of an epoch.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
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

// f32 inputs [N, ..., C] of u8 or f32 ones, normalized as a batch is. Throws InputError on another
// dtype or number of channels.
Tensor normalized(const Tensor& inputs, const Normalization& normalization);

// What the making of batches has cost, since the loader was made.
struct LoaderSeconds {
  double waited = 0;  // by next(), until its batch was there
  double making = 0;  // processor time of the background threads
};

// Iterates over an epoch; background threads keep up to `prefetch` batches ready (0: none, every
// batch is made by next()): one, or as many as the CPU kernels have where samples are decoded.
class DataLoader {
 public:
  DataLoader(Dataset dataset, LoaderOptions options, std::int64_t prefetch = 2);
  ~DataLoader();
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  std::int64_t batches_per_epoch() const;
  // Begins `epoch` at batch `first_batch`; what was under way is dropped.
  void start(std::int64_t epoch, std::int64_t first_batch = 0);
  // The next batch, or nothing at the epoch's end. Rethrows what making the batch threw.
  std::optional<Batch> next();
  LoaderSeconds seconds() const;

 private:
  // A batch: ready once no row is left and its samples are mixed, where they are.
  struct Slot {
    Batch batch;
    std::int64_t rows_left = 0;
    bool ready = false;
    std::int64_t failed_row = 0;  // of the error
    std::exception_ptr error = {};
  };
  // Some rows of a batch.
  struct Piece {
    Slot* slot = nullptr;
    std::int64_t index = 0;
    std::int64_t first = 0;
    std::int64_t rows = 0;
  };

  void produce();
  std::optional<Piece> next_piece();
  void finish(Slot& slot);
  void stop();

  const Dataset dataset_;
  const LoaderOptions options_;
  const std::int64_t prefetch_;
  std::int64_t epoch_ = 0;
  std::vector<std::int64_t> order_;
  std::int64_t piece_rows_ = 0;

  std::vector<std::thread> threads_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::int64_t next_ = 0;  // batch that next() returns
  std::map<std::int64_t, Slot> slots_;
  std::int64_t claimed_batch_ = 0;  // where the piece begins that is made next
  std::int64_t claimed_row_ = 0;
  bool stopping_ = false;
  LoaderSeconds seconds_;
};

}  // namespace steelyard
