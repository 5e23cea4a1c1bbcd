#include "steelyard/framework/data/data_loader.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <stdexcept>
#include <string>
#include <utility>

#include "steelyard/framework/data/mixing.h"
#include "steelyard/kernels/backend.h"

namespace steelyard {
namespace {

// Processor time of the calling thread.
double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

DataLoader::DataLoader(Dataset dataset, LoaderOptions options, std::int64_t prefetch)
    : dataset_(std::move(dataset)), options_(std::move(options)), prefetch_(prefetch) {
  validate_options(dataset_, options_);
}

DataLoader::~DataLoader() { stop(); }

std::int64_t DataLoader::batches_per_epoch() const {
  return steelyard::batches_per_epoch(dataset_, options_);
}

void DataLoader::start(std::int64_t epoch, std::int64_t first_batch) {
  if (epoch < 0 || first_batch < 0 || first_batch > batches_per_epoch()) {
    throw std::invalid_argument("[data_loader] expected epoch >= 0 and first batch in [0, " +
                                std::to_string(batches_per_epoch()) + "], got " +
                                std::to_string(epoch) + " and " + std::to_string(first_batch));
  }
  stop();
  epoch_ = epoch;
  next_ = claimed_batch_ = first_batch;
  claimed_row_ = 0;
  order_ = epoch_order(dataset_, options_, epoch);
  if (prefetch_ <= 0) return;
  // Decoding a few images is worth a thread's while; a batch from memory is one piece.
  constexpr std::int64_t kDecodedRows = 8;
  const bool decodes = dataset_.source && dataset_.source->decodes();
  piece_rows_ = decodes ? kDecodedRows : options_.batch_size;
  const int threads = decodes ? kernels::num_threads() : 1;
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { produce(); });
}

std::optional<Batch> DataLoader::next() {
  if (order_.empty()) throw std::logic_error("[data_loader] next() before start()");
  if (next_ >= batches_per_epoch()) return std::nullopt;
  if (prefetch_ <= 0) {
    Batch batch = make_batch(dataset_, options_, order_, epoch_, next_);
    ++next_;
    return batch;
  }
  std::unique_lock lock(mutex_);
  const auto made = [this] {
    const auto slot = slots_.find(next_);
    return slot != slots_.end() && slot->second.ready;
  };
  if (!made()) {
    const auto begin = std::chrono::steady_clock::now();
    changed_.wait(lock, made);
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
    seconds_.waited += waited.count();
  }
  const auto slot = slots_.find(next_);
  if (slot->second.error) std::rethrow_exception(slot->second.error);
  Batch batch = std::move(slot->second.batch);
  slots_.erase(slot);
  ++next_;
  changed_.notify_all();
  return batch;
}

LoaderSeconds DataLoader::seconds() const {
  const std::lock_guard lock(mutex_);
  return seconds_;
}

// The next rows to make; nothing once all are claimed. Waits while enough is under way.
std::optional<DataLoader::Piece> DataLoader::next_piece() {
  std::unique_lock lock(mutex_);
  const auto may_claim = [this] { return claimed_batch_ < next_ + prefetch_; };
  const auto over = [this] { return stopping_ || claimed_batch_ >= batches_per_epoch(); };
  changed_.wait(lock, [&] { return over() || may_claim(); });
  if (over()) return std::nullopt;
  Slot& slot = slots_[claimed_batch_];
  const std::int64_t size =
      std::min(options_.batch_size, dataset_.size() - claimed_batch_ * options_.batch_size);
  if (claimed_row_ == 0) {
    slot.rows_left = size;
    try {
      slot.batch = empty_batch(dataset_, size, claimed_batch_);
    } catch (...) {
      slot.ready = true;
      slot.error = std::current_exception();
      claimed_batch_ = batches_per_epoch();
      changed_.notify_all();
      return std::nullopt;
    }
  }
  const Piece piece{&slot, claimed_batch_, claimed_row_,
                    std::min(piece_rows_, size - claimed_row_)};
  claimed_row_ += piece.rows;
  if (claimed_row_ == size) {
    ++claimed_batch_;
    claimed_row_ = 0;
    changed_.notify_all();
  }
  return piece;
}

// A background thread: no OpenMP in here, training owns those threads.
void DataLoader::produce() {
  double known = 0;  // of this thread's processor time
  while (const std::optional<Piece> piece = next_piece()) {
    std::exception_ptr error;
    try {
      const auto samples = samples_of_batch(dataset_, options_, order_, piece->index);
      fill_rows(dataset_, options_,
                samples.subspan(static_cast<std::size_t>(piece->first),
                                static_cast<std::size_t>(piece->rows)),
                epoch_, piece->slot->batch, piece->first);
    } catch (...) {
      error = std::current_exception();
    }
    const double used = thread_seconds();
    std::unique_lock lock(mutex_);
    seconds_.making += used - std::exchange(known, used);
    Slot& slot = *piece->slot;
    // The first of several rows that fail is told, whichever thread came first.
    if (error && (!slot.error || piece->first < slot.failed_row)) {
      slot.error = error;
      slot.failed_row = piece->first;
    }
    slot.rows_left -= piece->rows;
    if (slot.rows_left > 0) continue;
    lock.unlock();
    finish(slot);
    lock.lock();
    slot.ready = true;
    changed_.notify_all();
  }
}

// All rows are there: nobody else has the slot now.
void DataLoader::finish(Slot& slot) {
  if (slot.error) return;
  try {
    mix_batch(dataset_, options_, epoch_, slot.batch);
  } catch (...) {
    slot.error = std::current_exception();
  }
}

void DataLoader::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  stopping_ = false;
  slots_.clear();
}

}  // namespace steelyard
