// The measurements of a run, written as lines of JSON and, if the recipe asks for it, as
// TensorBoard events.
#pragma once

#include <chrono>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "steelyard/framework/files/files.h"
#include "steelyard/framework/train/trainer.h"

namespace steelyard {

// A line, and an event of the same number, for every few steps, every epoch, the final test and the
// divergence that ended a run.
class MetricsLog : public TrainerCallback {
 public:
  // Keeps the lines of a run's first `step` steps and `epochs` complete epochs: a resumed run
  // writes the others again. Lines that no run writes are dropped. An empty `events`: no events.
  void open(const std::filesystem::path& lines, const std::filesystem::path& events,
            std::int64_t step, std::int64_t epochs);

  void on_step_end(const StepReport& report) override;
  void on_epoch_end(const EpochReport& report) override;
  void final_test(std::int64_t step, const Metrics& metrics);
  // The run ends with this message.
  void diverged(const std::string& what);

  // The seconds of training, over all the processes that worked on the run.
  double seconds() const;

 private:
  using Clock = std::chrono::steady_clock;

  void line(const nlohmann::ordered_json& json);

  std::optional<GrowingFile> lines_;
  std::optional<GrowingFile> events_;
  std::int64_t step_ = 0;  // steps done
  Clock::time_point begin_;
  double earlier_seconds_ = 0;
};

// The members of a line for one evaluation.
nlohmann::ordered_json to_json(const Metrics& metrics);

}  // namespace steelyard
