// What the report takes from a run's summary.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace steelyard {

struct RunSummary {
  std::int64_t epochs = 0;  // 0: of a calibration
  double seconds = 0;
  std::optional<std::int64_t> best_epoch;
  std::string warning = {};
};

// Throws InputError, naming the file, where it is not such a summary.
RunSummary summary_in(const std::filesystem::path& path);

}  // namespace steelyard
