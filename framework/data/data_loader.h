// Batches of a dataset (framework/data/batches.h), prepared one step ahead of training.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "steelyard/framework/data/batches.h"

namespace steelyard {

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
