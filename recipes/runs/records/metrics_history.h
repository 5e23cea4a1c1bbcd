// A run's metrics.jsonl, read back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/framework/train/collapse.h"
#include "steelyard/framework/train/evaluate.h"
#include "steelyard/framework/train/step_clock.h"

namespace steelyard {

struct StepMetrics {
  std::int64_t step = 0;
  double loss = 0;
  double lr = 0;
};

struct EpochMetrics {
  std::int64_t epoch = 0;  // from 1
  std::int64_t step = 0;   // steps done at its end
  double train_loss = 0;
  std::optional<Metrics> validation = {};
  std::vector<StepSeconds> ranks = {};  // none in files of versions that had them of shards only
  std::string collapse = {};            // what it lost of what the run knew, where the run went on
};

struct Divergence {
  std::int64_t step = 0;  // steps done
  std::string what;

  bool is_collapse() const { return what.ends_with(kStoppedByCollapse); }
};

inline constexpr std::uint64_t kMaxMetricsBytes = std::uint64_t{1} << 30;  // of one file

struct MetricsHistory {
  std::vector<StepMetrics> steps;
  std::vector<EpochMetrics> epochs;
  std::optional<Metrics> test;
  std::optional<Divergence> diverged;
  std::int64_t unreadable_lines = 0;  // a crash may cut the last one short
};

// Throws InputError when the file cannot be read; lines that are no metrics are counted.
MetricsHistory read_metrics(const std::filesystem::path& path);
// Whether read_metrics() reads a line.
bool is_metrics_line(const std::string& line);

}  // namespace steelyard
