// The state of a rank that is part of the message about a lost rank; the run updates it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

namespace steelyard::comm {

// Written by the thread that trains, read by the watchdog's.
class RankState {
 public:
  void set_step(std::int64_t step) { step_ = step; }
  std::int64_t step() const { return step_; }
  // Every rank has done its part of it: a step ends with sums over all of them.
  std::int64_t last_common_step() const { return std::max<std::int64_t>(step_ - 1, 0); }

  // The checkpoint from which the run can be continued: "runs/a/last.safetensors (step 100)".
  void set_checkpoint(std::string checkpoint) { set(checkpoint_, std::move(checkpoint)); }
  std::string checkpoint() const { return get(checkpoint_); }

  // The file to which the loss of a rank is appended, besides standard error; none if empty.
  void set_log(std::string path) { set(log_, std::move(path)); }
  std::string log() const { return get(log_); }

  // Whether some rank may have drawn a line that does not end, where messages are printed.
  void set_draws_lines(bool draws) { draws_lines_ = draws; }
  bool draws_lines() const { return draws_lines_; }

 private:
  void set(std::string& text, std::string value) {
    const std::lock_guard lock(mutex_);
    text = std::move(value);
  }
  std::string get(const std::string& text) const {
    const std::lock_guard lock(mutex_);
    return text;
  }

  std::atomic<std::int64_t> step_ = 0;
  std::atomic<bool> draws_lines_ = false;
  mutable std::mutex mutex_;
  std::string checkpoint_, log_;
};

}  // namespace steelyard::comm
