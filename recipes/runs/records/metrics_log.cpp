#include "steelyard/recipes/runs/records/metrics_log.h"

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <unordered_map>
#include <vector>

#include "steelyard/framework/files/event_file.h"
#include "steelyard/framework/files/json_integer.h"
#include "steelyard/recipes/runs/records/metrics_history.h"

namespace steelyard {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kStepsPerLine = 10;

double now() {
  using std::chrono::system_clock;
  return std::chrono::duration<double>(system_clock::now().time_since_epoch()).count();
}

// By rank: {"compute": [...], "reduce": [...], "wait": [...], "batches": [...], "making": [...]}.
Json to_json(const std::vector<StepSeconds>& ranks) {
  Json json;
  for (const StepSeconds& seconds : ranks) {
    json["compute"].push_back(seconds.compute);
    json["reduce"].push_back(seconds.reduce);
    json["wait"].push_back(seconds.wait);
    json["batches"].push_back(seconds.batches);
    json["making"].push_back(seconds.making);
  }
  return json;
}

std::string contents_of(const std::filesystem::path& path) {
  return path_exists(path) ? read_file(path, kMaxMetricsBytes) : "";
}

// A line without a newline was cut off by a crash and does not count.
std::vector<std::string> whole_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// Throws Json::exception or std::invalid_argument for what is not written here.
bool belongs_to(const Json& line, std::int64_t step, std::int64_t epochs) {
  const auto type = line.at("type").get<std::string>();
  return (type == "step" && integer_of<std::int64_t>(line.at("step")) <= step) ||
         (type == "epoch" && integer_of<std::int64_t>(line.at("epoch")) <= epochs);
}

// Throws likewise.
std::string event_of(const Json& line) {
  ScalarEvent event{
      .wall_time = now(), .step = integer_of<std::int64_t>(line.at("step")), .values = {}};
  const auto add = [&](const char* tag, const Json& table, const char* key) {
    event.values.emplace_back(tag, static_cast<float>(table.at(key).get<double>()));
  };
  const auto add_if_any = [&](const char* tag, const Json& table, const char* key) {
    if (table.contains(key)) add(tag, table, key);
  };
  const auto add_metrics = [&](const std::string& part, const Json& table) {
    for (const auto& [name, value] : table.items()) {
      const bool metric =
          value.is_number() && name != "loss" && name != "step" && name != "seconds";
      if (metric) add((part + name).c_str(), table, name.c_str());
    }
  };
  const std::string type = line.at("type").get<std::string>();
  if (type == "step") {
    add("train/loss", line, "loss");
    add("train/lr", line, "lr");
  } else if (type == "epoch") {
    add("train/epoch_loss", line, "train_loss");
    if (line.contains("validation")) {
      add("validation/loss", line.at("validation"), "loss");
      add_metrics("validation/", line.at("validation"));
    }
    add_if_any("weights/oscillating_percent", line, "oscillating_weights_percent");
    add_if_any("weights/frozen_percent", line, "frozen_weights_percent");
  } else if (type == "test") {
    add("test/loss", line, "loss");
    add_metrics("test/", line);
  }
  return scalar_record(event);
}

}  // namespace

Json to_json(const Metrics& metrics) {
  Json json{{"loss", metrics.loss}};
  if (metrics.top1) json["top1"] = *metrics.top1;
  for (const Metric& metric : metrics.more) json[metric.name] = metric.value;
  return json;
}

void MetricsLog::open(const std::filesystem::path& lines, const std::filesystem::path& events,
                      std::int64_t step, std::int64_t epochs) {
  begin_ = Clock::now();
  step_ = step;
  const std::string old_events = events.empty() ? "" : contents_of(events);
  const std::vector<std::string_view> records = whole_records(old_events);
  std::string kept_lines;
  std::string kept_events = records.empty() ? version_record(now()) : std::string(records[0]);
  // By what they hold, the first last, and not by their order alone: the run may have gone on
  // without events for a while.
  std::unordered_map<std::string_view, std::vector<std::string_view>> old_records;
  for (auto record = records.rbegin(); record != records.rend(); ++record) {
    old_records[content_of_record(*record)].push_back(*record);
  }
  for (const std::string& text : whole_lines(contents_of(lines))) {
    if (!is_metrics_line(text)) continue;
    try {
      const Json json = Json::parse(text);
      if (!belongs_to(json, step, epochs)) continue;
      const std::string event = event_of(json);
      earlier_seconds_ = json.value("seconds", earlier_seconds_);
      kept_lines += text + "\n";
      const auto old = old_records.find(content_of_record(event));
      if (old == old_records.end() || old->second.empty()) {
        kept_events += event;
      } else {
        kept_events += old->second.back();
        old->second.pop_back();
      }
    } catch (const Json::exception&) {
      continue;
    } catch (const std::invalid_argument&) {
      continue;
    }
  }
  lines_.emplace(lines, kept_lines);
  if (!events.empty()) events_.emplace(events, kept_events);
}

void MetricsLog::on_step_end(const StepReport& report) {
  step_ = report.step;
  if (report.step % kStepsPerLine != 0) return;
  line({{"type", "step"},
        {"step", report.step},
        {"epoch", report.epoch + 1},
        {"loss", report.loss()},
        {"lr", report.lr}});
}

void MetricsLog::on_epoch_end(const EpochReport& report) {
  Json json{{"type", "epoch"},
            {"step", report.step},
            {"epoch", report.epoch + 1},
            {"train_loss", report.train_loss}};
  if (report.validation) json["validation"] = to_json(*report.validation);
  for (const Metric& metric : report.metrics) json[metric.name] = metric.value;
  if (!report.collapse.empty()) json["collapse"] = report.collapse;
  if (!report.ranks.empty()) json["rank_seconds"] = to_json(report.ranks);
  json["seconds"] = seconds();
  line(json);
}

void MetricsLog::final_test(std::int64_t step, const Metrics& metrics) {
  Json json{{"type", "test"}, {"step", step}};
  json.update(to_json(metrics));
  json["seconds"] = seconds();
  line(json);
}

void MetricsLog::diverged(const std::string& what) {
  line({{"type", "diverged"}, {"step", step_}, {"what", what}, {"seconds", seconds()}});
}

double MetricsLog::seconds() const {
  return earlier_seconds_ + std::chrono::duration<double>(Clock::now() - begin_).count();
}

void MetricsLog::line(const Json& json) {
  if (lines_) lines_->append(printable_json(json.dump()) + "\n");
  if (events_) events_->append(event_of(json));
}

}  // namespace steelyard
