// What a training run shows while it runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include "steelyard/framework/train/trainer.h"

namespace steelyard::cli {

// Prints a text and writes it out. When nobody can read it any more (a closed pipe, a full disk),
// training goes on without output.
void show(std::string_view text);

// A bar with rate and remaining time, redrawn in place, on a terminal; plain lines otherwise. A
// line remains for every epoch.
class Progress : public TrainerCallback {
 public:
  // terminal: standard output is one.
  Progress(std::int64_t epochs, std::int64_t batch_size, bool terminal);
  // Ends the line of a bar: what is printed next begins a line.
  ~Progress() override;
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void on_epoch_begin(std::int64_t epoch) override;
  void on_step_end(const StepReport& report) override;
  void on_epoch_end(const EpochReport& report) override;

 private:
  using Clock = std::chrono::steady_clock;
  void draw(const StepReport& report, double samples_per_second);
  void clear_bar();

  std::int64_t epochs_;
  std::int64_t batch_size_;
  bool terminal_;
  bool has_bar_ = false;  // at the end of what was printed
  Clock::time_point begin_;
  Clock::time_point epoch_begin_;
  Clock::time_point last_drawn_;
  std::int64_t first_step_ = -1;  // steps done before this process
};

}  // namespace steelyard::cli
