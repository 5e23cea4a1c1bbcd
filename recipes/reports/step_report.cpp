#include "steelyard/recipes/reports/step_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "steelyard/framework/files/files.h"
#include "steelyard/framework/files/json_integer.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"
#include "steelyard/recipes/reports/svg_chart.h"

namespace steelyard {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kMostReportBytes = std::uint64_t{16} << 20;
constexpr double kMilli = 1e3;
constexpr double kMebi = 1 << 20;

std::string name_of(const TimedLayer& layer) {
  return layer.layer.empty() ? "(outside of layers)" : printable(layer.layer, 60);
}

// Nothing is a dot: a table of zeros is hard to read.
std::string milliseconds(double seconds) {
  return seconds == 0 ? "." : fmt::format("{:.2f}", seconds * kMilli);
}

std::string share(double bound, double seconds) {
  return bound == 0 || seconds == 0 ? "." : fmt::format("{:.0f}", 100 * bound / seconds);
}

struct TableRow {
  std::string name, type;
  double seconds = 0;
  std::array<Work, kWorkKinds> work{};
  std::int64_t saved_bytes = 0;
  std::string forward_share, backward_share;
};

std::string text_of(const TableRow& row, double all_seconds, std::size_t width) {
  std::string text = fmt::format("{:<{}}  {:<16}{:>9}{:>6.1f}", row.name, width, row.type,
                                 milliseconds(row.seconds), 100 * row.seconds / all_seconds);
  for (const Work& work : row.work) text += fmt::format("{:>9}", milliseconds(work.seconds));
  const std::string kept =
      row.saved_bytes == 0 ? "."
                           : fmt::format("{:.2f}", static_cast<double>(row.saved_bytes) / kMebi);
  return text + fmt::format("{:>9}{:>6}{:>6}\n", kept, row.forward_share, row.backward_share);
}

Json to_json(const Work& work) {
  return {{"seconds", work.seconds},
          {"kernels", work.kernels},
          {"multiply_adds", work.multiply_adds},
          {"integer_multiply_adds", work.integer_multiply_adds}};
}

Work work_in(const Json& json) {
  return {.seconds = json.at("seconds").get<double>(),
          .kernels = json.at("kernels").get<double>(),
          .multiply_adds = integer_of<std::int64_t>(json.at("multiply_adds")),
          .integer_multiply_adds = integer_of<std::int64_t>(json.at("integer_multiply_adds"))};
}

Json to_json(const TimedLayer& layer) {
  Json json{{"layer", layer.layer},
            {"type", layer.type},
            {"seconds", layer.seconds()},
            {"forward_bound", layer.forward_bound},
            {"backward_bound", layer.backward_bound},
            {"saved_bytes", layer.saved_bytes},
            {"forward_bytes", layer.forward_bytes},
            {"backward_bytes", layer.backward_bytes}};
  for (std::size_t kind = 0; kind < kWorkKinds; ++kind) {
    if (layer.work[kind].kernels == 0) continue;
    json["work"][std::string(work_kind_name(static_cast<WorkKind>(kind)))] =
        to_json(layer.work[kind]);
  }
  return json;
}

TimedLayer layer_in(const Json& json) {
  TimedLayer layer{.layer = json.at("layer").get<std::string>(),
                   .type = json.at("type").get<std::string>(),
                   .forward_bound = json.at("forward_bound").get<double>(),
                   .backward_bound = json.at("backward_bound").get<double>()};
  layer.saved_bytes = integer_of<std::int64_t>(json.at("saved_bytes"));
  layer.forward_bytes = integer_of<std::int64_t>(json.at("forward_bytes"));
  layer.backward_bytes = integer_of<std::int64_t>(json.at("backward_bytes"));
  if (!json.contains("work")) return layer;
  for (std::size_t kind = 0; kind < kWorkKinds; ++kind) {
    const std::string name(work_kind_name(static_cast<WorkKind>(kind)));
    if (json.at("work").contains(name)) layer.work[kind] = work_in(json["work"][name]);
  }
  return layer;
}

}  // namespace

std::string to_string(const BatchWait& wait) {
  constexpr double kMuch = 0.05;    // of the steps' time
  constexpr double kShown = 0.005;  // seconds
  std::string text =
      fmt::format("the steps waited {:.1f} % of their time for batches", 100 * wait.share());
  if (wait.share() < kMuch || wait.waited < kShown) return text;
  text += fmt::format(" ({:.2f} of {:.2f} s), which took {:.2f} s of processor time", wait.waited,
                      wait.seconds, wait.making);
  return text + (wait.making < wait.waited
                     ? ": files that come slowly, or other programs, hold them up"
                     : ": smaller images, fewer random changes or more processors help");
}

std::string to_string(const StepTiming& timing) {
  std::int64_t saved = 0;
  std::size_t width = std::string("(outside of layers)").size();
  std::array<Work, kWorkKinds> all{};
  for (const TimedLayer& layer : timing.layers) {
    saved += layer.saved_bytes;
    width = std::max(width, name_of(layer).size());
    for (std::size_t kind = 0; kind < kWorkKinds; ++kind) {
      all[kind].seconds += layer.work[kind].seconds;
    }
  }
  std::string out = fmt::format(
      "{}: steps {} to {} on {}, {} {}, batches of {}\n"
      "  {:.2f} ms a step, median of {}; {:.2f} ms on average with every kernel timed; "
      "{:.2f} ms until its batch was there\n"
      "  {}\n"
      "  {:.2f} MiB kept for backward; {:.2f} MiB of tensors at the peak; {:.0f} page faults a "
      "step\n"
      "  the machine's rates: {:.1f} G float32 and {:.1f} G 8-bit multiply-adds a second, {:.1f} "
      "GB/s copied\n\n",
      printable(timing.run, 60), timing.first_step + 1, timing.first_step + 2 * timing.steps,
      timing.device, timing.threads, timing.threads == 1 ? "thread" : "threads", timing.batch_size,
      timing.seconds * kMilli, timing.steps, timing.watched_seconds * kMilli,
      timing.data_seconds * kMilli, to_string(timing.batches), static_cast<double>(saved) / kMebi,
      static_cast<double>(timing.peak_bytes) / kMebi, timing.page_faults,
      timing.rates.multiply_adds / 1e9, timing.rates.integer_multiply_adds / 1e9,
      timing.rates.bytes / 1e9);
  out += fmt::format("{:<{}}  {:<16}{:>15}{:^36}{:^27}{:>9}{:>9}{:>12}\n", "", width, "", "",
                     "forward, ms", "backward, ms", "", "", "% of bound");
  out += fmt::format(
      "{:<{}}  {:<16}{:>9}{:>6}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>6}{:>6}\n", "layer",
      width, "type", "ms", "%", "product", "quantize", "observe", "other", "input", "weight",
      "other", "update", "kept MiB", "fwd", "bwd");
  const auto add = [&](const TableRow& row) { out += text_of(row, timing.watched_seconds, width); };
  for (const TimedLayer& layer : timing.layers) {
    add({.name = name_of(layer),
         .type = printable(layer.type, 15),
         .seconds = layer.seconds(),
         .work = layer.work,
         .saved_bytes = layer.saved_bytes,
         .forward_share = share(layer.forward_bound, layer.forward_seconds()),
         .backward_share = share(layer.backward_bound, layer.backward_seconds())});
  }
  add({.name = "outside of kernels",
       .type = {},
       .seconds = timing.outside_kernels(),
       .forward_share = ".",
       .backward_share = "."});
  add({.name = "all",
       .type = {},
       .seconds = timing.watched_seconds,
       .work = all,
       .saved_bytes = saved,
       .forward_share = {},
       .backward_share = {}});
  return out;
}

std::string to_json_text(const StepTiming& timing) {
  Json json{{"run", timing.run},
            {"device", timing.device},
            {"threads", timing.threads},
            {"batch_size", timing.batch_size},
            {"first_step", timing.first_step},
            {"steps", timing.steps},
            {"seconds", timing.seconds},
            {"data_seconds", timing.data_seconds},
            {"batches",
             {{"seconds", timing.batches.seconds},
              {"waited", timing.batches.waited},
              {"making", timing.batches.making}}},
            {"watched_seconds", timing.watched_seconds},
            {"outside_kernels", timing.outside_kernels()},
            {"page_faults", timing.page_faults},
            {"peak_bytes", timing.peak_bytes},
            {"rates",
             {{"multiply_adds", timing.rates.multiply_adds},
              {"integer_multiply_adds", timing.rates.integer_multiply_adds},
              {"bytes", timing.rates.bytes}}},
            {"layers", Json::array()}};
  for (const TimedLayer& layer : timing.layers) json["layers"].push_back(to_json(layer));
  return printable_json(json.dump(2, ' ', false, Json::error_handler_t::replace)) + "\n";
}

StepTiming load_step_timing(const std::filesystem::path& file) {
  const std::string begin = printable(file.string()) + ": not what `steelyard profile` writes: ";
  try {
    const Json json = Json::parse(read_file(file, kMostReportBytes));
    StepTiming timing{.run = json.at("run").get<std::string>(),
                      .device = json.at("device").get<std::string>(),
                      .threads = integer_of<int>(json.at("threads")),
                      .batch_size = integer_of<std::int64_t>(json.at("batch_size")),
                      .first_step = integer_of<std::int64_t>(json.at("first_step")),
                      .steps = integer_of<std::int64_t>(json.at("steps")),
                      .seconds = json.at("seconds").get<double>(),
                      .data_seconds = json.at("data_seconds").get<double>(),
                      .watched_seconds = json.at("watched_seconds").get<double>(),
                      .page_faults = json.at("page_faults").get<double>(),
                      .peak_bytes = integer_of<std::int64_t>(json.at("peak_bytes"))};
    const auto expect_from = [](double least, const char* key, double value) {
      constexpr double kMost = 1e12;  // longer than any run
      if (value >= least && value <= kMost) return;
      throw std::invalid_argument(
          fmt::format("{}: expected a number from {} to {}, got {}", key, least, kMost, value));
    };
    expect_from(1, "steps", static_cast<double>(timing.steps));
    expect_from(1, "threads", timing.threads);
    expect_from(0, "seconds", timing.seconds);
    expect_from(0, "data_seconds", timing.data_seconds);
    expect_from(0, "watched_seconds", timing.watched_seconds);
    if (json.contains("batches")) {  // not in files of earlier versions
      const Json& batches = json.at("batches");
      timing.batches = {.seconds = batches.at("seconds").get<double>(),
                        .waited = batches.at("waited").get<double>(),
                        .making = batches.at("making").get<double>()};
    }
    const Json& rates = json.at("rates");
    timing.rates = {.multiply_adds = rates.at("multiply_adds").get<double>(),
                    .integer_multiply_adds = rates.at("integer_multiply_adds").get<double>(),
                    .bytes = rates.at("bytes").get<double>()};
    for (const Json& layer : json.at("layers")) timing.layers.push_back(layer_in(layer));
    return timing;
  } catch (const Json::exception& error) {
    throw InputError(begin + printable(error.what()));
  } catch (const std::invalid_argument& error) {
    throw InputError(begin + printable(error.what()));
  }
}

std::string step_bars(const StepTiming& timing) {
  constexpr std::size_t kMostBars = 24;
  std::vector<TimedLayer> layers = timing.layers;
  std::stable_sort(layers.begin(), layers.end(), [](const TimedLayer& a, const TimedLayer& b) {
    return a.seconds() > b.seconds();
  });
  BarChart chart{.title = "Time of a step by layer", .x_label = "ms", .parts = {}, .rows = {}};
  for (std::size_t kind = 0; kind < kWorkKinds; ++kind) {
    chart.parts.emplace_back(work_kind_name(static_cast<WorkKind>(kind)));
  }
  for (const TimedLayer& layer : layers) {
    if (chart.rows.size() == kMostBars) break;
    BarChart::Row row{.name = name_of(layer), .values = {}};
    for (const Work& work : layer.work) row.values.push_back(work.seconds * kMilli);
    chart.rows.push_back(std::move(row));
  }
  return bar_chart(chart);
}

}  // namespace steelyard
