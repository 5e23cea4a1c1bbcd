#include "steelyard/recipes/runs/records/metrics_history.h"

#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>

#include "steelyard/framework/files/files.h"
#include "steelyard/framework/files/json_integer.h"

namespace steelyard {
namespace {

Metrics metrics_in(const nlohmann::json& json) {
  Metrics metrics{.loss = json.at("loss").get<double>()};
  if (json.contains("top1")) metrics.top1 = json.at("top1").get<double>();
  for (const MetricInfo& metric : metric_table()) {
    const std::string& name = metric.name;
    if (metric.value == nullptr || !json.contains(name)) continue;
    metrics.more.push_back({name, json.at(name).get<double>()});
  }
  return metrics;
}

std::vector<StepSeconds> rank_seconds_in(const nlohmann::json& json) {
  std::vector<StepSeconds> ranks(json.at("compute").size());
  const auto read = [&](const char* name, double StepSeconds::*member) {
    const auto seconds = json.at(name).get<std::vector<double>>();
    if (seconds.size() != ranks.size()) throw std::invalid_argument("lists of different lengths");
    for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i].*member = seconds[i];
  };
  read("compute", &StepSeconds::compute);
  read("reduce", &StepSeconds::reduce);
  read("wait", &StepSeconds::wait);
  if (!json.contains("batches")) return ranks;  // a file of an earlier version
  read("batches", &StepSeconds::batches);
  read("making", &StepSeconds::making);
  return ranks;
}

void add_line(MetricsHistory& history, const nlohmann::json& line) {
  const auto type = line.at("type").get<std::string>();
  const auto step = integer_of<std::int64_t>(line.at("step"));
  if (type == "step") {
    history.steps.push_back({step, line.at("loss").get<double>(), line.at("lr").get<double>()});
  } else if (type == "epoch") {
    EpochMetrics epoch{integer_of<std::int64_t>(line.at("epoch")), step,
                       line.at("train_loss").get<double>()};
    if (line.contains("validation")) epoch.validation = metrics_in(line.at("validation"));
    epoch.collapse = line.value("collapse", "");
    if (line.contains("rank_seconds")) epoch.ranks = rank_seconds_in(line.at("rank_seconds"));
    history.epochs.push_back(epoch);
  } else if (type == "test") {
    history.test = metrics_in(line);
  } else if (type == "diverged") {
    history.diverged = {step, line.at("what").get<std::string>()};
  } else {
    ++history.unreadable_lines;
  }
}

void add_text(MetricsHistory& history, const std::string& line) {
  try {
    add_line(history, nlohmann::json::parse(line));
  } catch (const nlohmann::json::exception&) {
    ++history.unreadable_lines;
  } catch (const std::invalid_argument&) {
    ++history.unreadable_lines;
  }
}

}  // namespace

bool is_metrics_line(const std::string& line) {
  MetricsHistory history;
  add_text(history, line);
  return history.unreadable_lines == 0;
}

MetricsHistory read_metrics(const std::filesystem::path& path) {
  std::istringstream text(read_file(path, kMaxMetricsBytes));
  MetricsHistory history;
  for (std::string line; std::getline(text, line);) add_text(history, line);
  return history;
}

}  // namespace steelyard
