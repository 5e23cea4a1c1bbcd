#include "steelyard/recipes/reports/run_summary.h"

#include <nlohmann/json.hpp>

#include "steelyard/framework/files/files.h"
#include "steelyard/framework/files/json_integer.h"
#include "steelyard/framework/tensor/error.h"

namespace steelyard {

constexpr std::uint64_t kMaxSummaryBytes = 1 << 20;

RunSummary summary_in(const std::filesystem::path& path) {
  const std::string text = read_file(path, kMaxSummaryBytes);
  try {
    const auto json = nlohmann::json::parse(text);
    RunSummary summary{.epochs = integer_of<std::int64_t>(json.at("epochs")),
                       .seconds = json.at("seconds").get<double>(),
                       .best_epoch = {}};
    const auto& best = json.at("best");
    if (!best.is_null()) summary.best_epoch = integer_of<std::int64_t>(best.at("epoch"));
    summary.warning = json.value("warning", "");
    return summary;
  } catch (const std::exception& error) {
    throw InputError(printable(path.string()) + ": is not valid: " + printable(error.what()));
  }
}

}  // namespace steelyard
