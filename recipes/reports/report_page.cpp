#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "steelyard/recipes/reports/html.h"
#include "steelyard/recipes/reports/page_style.h"
#include "steelyard/recipes/reports/run_report.h"
#include "steelyard/recipes/reports/step_report.h"
#include "steelyard/recipes/reports/svg_chart.h"

namespace steelyard {
namespace {

constexpr std::size_t kMostPoints = 240;  // of a curve over steps

// Every page has both, in this order.
constexpr const char* kBeginning =
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
constexpr const char* kSubtitle = "<p class=\"soft\">Report of a Steelyard run, ";

std::string paragraph(const std::string& text) { return "<p>" + html_escaped(text) + "</p>\n"; }

std::string heading(const std::string& text) { return "<h2>" + html_escaped(text) + "</h2>\n"; }

std::string cell(const std::string& text, const char* css = "") {
  const std::string attribute = *css == '\0' ? "" : fmt::format(R"( class="{}")", css);
  return "<td" + attribute + ">" + html_escaped(text) + "</td>";
}

// Thousands apart: 1 234 567, with narrow spaces that do not break.
std::string grouped(std::int64_t value) {
  std::string digits = std::to_string(value);
  for (int at = static_cast<int>(digits.size()) - 3; at > (value < 0 ? 1 : 0); at -= 3) {
    digits.insert(static_cast<std::size_t>(at), "\u202f");
  }
  return digits;
}

std::string decibels(const std::optional<qat::QuantizationError>& error) {
  if (!error || !error->sqnr_db()) return "–";
  const double sqnr = *error->sqnr_db();
  return std::isinf(sqnr) ? "exact" : fmt::format("{:.1f}", sqnr);
}

std::string percent_clipped(const std::optional<qat::QuantizationError>& error) {
  if (!error) return "–";
  if (error->clipped == 0) return "0";
  const double percent = 100 * error->clipped_fraction();
  return percent < 0.001 ? "<0.001" : fmt::format("{:.3f}", percent);
}

std::string reason_for(const RunReport& report, std::string_view what) {
  for (const MissingPart& part : report.missing) {
    if (part.what == what) return part.why;
  }
  return "";
}

// The reason why a section is empty.
std::string explain(const RunReport& report, const std::string& fallback,
                    std::initializer_list<const char*> parts) {
  for (const char* what : parts) {
    if (const std::string why = reason_for(report, what); !why.empty()) {
      return paragraph("Not shown: " + why);
    }
  }
  return paragraph(fallback);
}

std::string head(const RunReport& report) {
  std::string html = "<h1>" + html_escaped(report.name) + "</h1>\n";
  html += kSubtitle;
  html += report.quantized         ? "quantization-aware"
          : !report.target.empty() ? "for " + report.target
                                   : "in float";
  html += ".</p>\n<dl>\n";
  for (const auto& [name, value] : report.facts) {
    html += "<dt>" + html_escaped(name) + "</dt><dd>" + html_escaped(value) + "</dd>\n";
  }
  return html + "</dl>\n";
}

std::string beginning_of_part(const std::string& what) {
  return "<li>" + html_escaped(what) + ": ";
}

std::string missing_parts(const RunReport& report) {
  if (report.missing.empty()) return "";
  std::string html = "<div class=\"missing\"><strong>Missing from this page</strong><ul>\n";
  for (const MissingPart& part : report.missing) {
    html += beginning_of_part(part.what) + html_escaped(part.why) + "</li>\n";
  }
  return html + "</ul></div>\n";
}

std::string warning_box(const std::string& title, const std::vector<std::string>& texts) {
  if (texts.empty()) return "";
  std::string html = "<div class=\"missing\"><strong>" + html_escaped(title) + "</strong><ul>\n";
  for (const std::string& text : texts) html += "<li>" + html_escaped(text) + "</li>\n";
  return html + "</ul></div>\n";
}

std::string doubtful_ranges(const RunReport& report) {
  std::vector<std::string> texts;
  for (const qat::DoubtfulRange& range : report.doubtful) texts.push_back(to_string(range));
  return warning_box("Ranges that look wrong", texts);
}

// Means over groups of so many steps that few enough points remain.
ChartSeries means_over_steps(const std::vector<StepMetrics>& steps, double StepMetrics::*value,
                             const std::string& name, int color) {
  ChartSeries series{.name = name, .color = color, .points = {}};
  const std::size_t group = (steps.size() + kMostPoints - 1) / kMostPoints;
  for (std::size_t begin = 0; begin < steps.size(); begin += group) {
    const std::size_t end = std::min(steps.size(), begin + group);
    double step = 0;
    double sum = 0;
    for (std::size_t i = begin; i < end; ++i) {
      step += static_cast<double>(steps[i].step);
      sum += steps[i].*value;
    }
    const auto count = static_cast<double>(end - begin);
    series.points.emplace_back(step / count, sum / count);
  }
  return series;
}

std::string figure(const std::string& svg, const std::string& caption) {
  return "<figure>" + svg + "<figcaption>" + html_escaped(caption) + "</figcaption></figure>\n";
}

// What the steps took each rank, over the epochs that were run by as many ranks as the last one.
std::string rank_table(const MetricsHistory& history) {
  if (history.epochs.empty() || history.epochs.back().ranks.size() < 2) return "";
  std::vector<StepSeconds> total(history.epochs.back().ranks.size());
  std::int64_t epochs = 0;
  for (const EpochMetrics& epoch : history.epochs) {
    if (epoch.ranks.size() != total.size()) continue;
    ++epochs;
    for (std::size_t i = 0; i < total.size(); ++i) {
      total[i].compute += epoch.ranks[i].compute;
      total[i].reduce += epoch.ranks[i].reduce;
      total[i].wait += epoch.ranks[i].wait;
    }
  }
  std::string html =
      "<div class=\"wide\"><table><caption>" +
      html_escaped(fmt::format(
          "Seconds in the steps of {} epoch{} with {} ranks. Compute and wait are the whole time; "
          "reduce is that of the sums over the ranks, of which only wait was not hidden behind "
          "compute",
          epochs, epochs == 1 ? "" : "s", total.size())) +
      "</caption><thead><tr><th class=\"name\">rank</th><th>compute</th><th>reduce</th>"
      "<th>wait</th><th>wait, %</th></tr></thead><tbody>\n";
  for (std::size_t i = 0; i < total.size(); ++i) {
    const double all = total[i].compute + total[i].wait;
    html +=
        "<tr>" + cell(std::to_string(i), "name") + cell(fmt::format("{:.1f}", total[i].compute)) +
        cell(fmt::format("{:.1f}", total[i].reduce)) + cell(fmt::format("{:.1f}", total[i].wait)) +
        cell(all > 0 ? fmt::format("{:.1f}", 100 * total[i].wait / all) : "–") + "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

// How long steps waited for batches, over all epochs and ranks.
std::string batch_wait(const MetricsHistory& history) {
  BatchWait all;
  for (const EpochMetrics& epoch : history.epochs) {
    for (const StepSeconds& seconds : epoch.ranks) {
      all.seconds += seconds.compute + seconds.wait;
      all.waited += seconds.batches;
      all.making += seconds.making;
    }
  }
  // Runs on a GPU do not tell, nor files of earlier versions.
  return all.making > 0 ? paragraph("In training " + to_string(all) + ".") : "";
}

std::string curves(const RunReport& report) {
  std::string html = heading("Training");
  if (!report.history) return html + explain(report, "No metrics.", {"curves"});
  const MetricsHistory& history = *report.history;
  if (history.steps.empty() && history.epochs.empty()) {
    return html + paragraph("metrics.jsonl holds no steps and no epochs: nothing was trained.");
  }
  ChartSeries epoch_loss{.name = "training, epoch mean", .color = 2, .points = {}, .dots = true};
  ChartSeries validation_loss{.name = "validation", .color = 3, .points = {}, .dots = true};
  ChartSeries validation{.name = "validation", .color = 3, .points = {}, .dots = true};
  ChartSeries test{.name = "test", .color = 4, .points = {}, .dots = true};
  for (const EpochMetrics& epoch : history.epochs) {
    const auto step = static_cast<double>(epoch.step);
    epoch_loss.points.emplace_back(step, epoch.train_loss);
    if (!epoch.validation) continue;
    validation_loss.points.emplace_back(step, epoch.validation->loss);
    if (epoch.validation->top1) validation.points.emplace_back(step, *epoch.validation->top1);
  }
  if (history.test && history.test->top1) {
    const double step =
        history.epochs.empty() ? 0 : static_cast<double>(history.epochs.back().step);
    test.points.emplace_back(step, *history.test->top1);
  }
  html += "<div class=\"charts\">\n";
  const auto chart = [&](const std::string& title, std::vector<ChartSeries> series,
                         const std::string& caption) {
    std::erase_if(series, [](const ChartSeries& one) { return one.points.empty(); });
    if (!series.empty()) html += figure(line_chart({title, "step", std::move(series)}), caption);
  };
  const std::size_t group = (history.steps.size() + kMostPoints - 1) / kMostPoints;
  chart("Loss",
        {means_over_steps(history.steps, &StepMetrics::loss, "training", 1), epoch_loss,
         validation_loss},
        group > 1 ? fmt::format("Training: means of {} logged steps.", group) : "");
  chart("Top-1 accuracy, %", {validation, test},
        history.test && history.test->top1
            ? fmt::format("Test, after the last epoch: {:.2f} %.", *history.test->top1)
            : "");
  chart("Learning rate", {means_over_steps(history.steps, &StepMetrics::lr, "lr", 1)}, "");
  return html + "</div>\n" + batch_wait(history) + rank_table(history);
}

std::string step_time(const RunReport& report) {
  if (!report.timing) return "";
  const StepTiming& timing = *report.timing;
  return heading("Time of a step") +
         figure(
             step_bars(timing),
             fmt::format("From `steelyard profile`: {:.2f} ms a step on {}, {:.2f} ms with every "
                         "kernel timed, of which {:.2f} ms outside of kernels; {}.",
                         timing.seconds * 1e3, timing.device, timing.watched_seconds * 1e3,
                         timing.outside_kernels() * 1e3, to_string(timing.batches)));
}

std::string accuracies(const RunReport& report) {
  std::string html = heading("Accuracy");
  if (report.accuracies.empty()) {
    return html + explain(report, "Nothing was evaluated.", {"accuracy", kMeasuredParts});
  }
  const double base = report.accuracies.front().metrics.top1.value_or(0);
  const bool all = report.test_samples == report.test_set_samples;
  const std::string samples = grouped(report.test_samples);
  html += "<div class=\"wide\"><table><caption>" +
          html_escaped(all ? fmt::format("On the {} samples of the test set", samples)
                           : fmt::format("On {} of the {} samples of the test set, evenly spaced",
                                         samples, grouped(report.test_set_samples))) +
          "</caption><thead><tr><th class=\"name\">model</th><th>top-1, %</th>"
          "<th>to the first, points</th><th>loss</th>";
  for (const Metric& metric : report.accuracies.front().metrics.more) {
    html += "<th>" + html_escaped(metric.label) + (metric.percent ? ", %" : "") + "</th>";
  }
  html += "</tr></thead><tbody>\n";
  for (const ReportedAccuracy& row : report.accuracies) {
    const bool top1 = row.metrics.top1.has_value();
    const bool first = &row == &report.accuracies.front();
    html += "<tr>" + cell(row.model, "name") +
            cell(top1 ? fmt::format("{:.2f}", *row.metrics.top1) : "–") +
            cell(top1 && !first ? fmt::format("{:+.2f}", *row.metrics.top1 - base) : "–") +
            cell(fmt::format("{:.4f}", row.metrics.loss));
    for (const Metric& metric : row.metrics.more) {
      html += cell(metric_number(metric));
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string size_table(const std::string& caption, const std::string& what,
                       const std::vector<ReportedSize>& sizes) {
  if (sizes.empty()) return "";
  std::string html = "<div class=\"wide\"><table><caption>" + html_escaped(caption) +
                     "</caption><thead><tr><th class=\"name\">" + what +
                     "</th><th>bytes</th><th>of the first, %</th></tr></thead><tbody>\n";
  for (const ReportedSize& size : sizes) {
    html += "<tr>" + cell(size.what, "name") + cell(grouped(std::llround(std::ceil(size.bytes)))) +
            cell(fmt::format("{:.1f}", 100 * size.bytes / std::max(1.0, sizes[0].bytes))) +
            "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string sizes(const RunReport& report) {
  std::string html = heading("Size");
  html += size_table("Files of the run; checkpoints hold the optimizer's state too", "file",
                     report.files);
  if (report.files.empty()) html += paragraph("The run has no checkpoint and no export.");
  return html +
         size_table("Parameters, as they would have to be stored", "parameters", report.ideal);
}

std::string width_text(const std::optional<ReportedTensor>& tensor) {
  if (!tensor) return "–";
  return tensor->bits == 32 ? "float" : std::to_string(tensor->bits);
}

std::string extremes(const std::optional<ReportedTensor>& tensor, bool largest) {
  if (!tensor || tensor->histogram.counts.empty()) return "–";
  return fmt::format("{:.4g}", largest ? tensor->histogram.hi : tensor->histogram.lo);
}

std::string tensor_cells(const std::optional<ReportedTensor>& tensor, bool quantized) {
  if (!quantized) return cell(extremes(tensor, false), "group") + cell(extremes(tensor, true));
  const auto error = tensor ? tensor->error : std::nullopt;
  return cell(width_text(tensor), "group") + cell(decibels(error)) + cell(percent_clipped(error));
}

std::string layer_table(const RunReport& report) {
  std::string html = heading("Layers");
  if (report.layers.empty()) {
    return html + explain(report, "No layers.", {"layers", kMeasuredParts});
  }
  html += paragraph(fmt::format(
      "{}Activations are the outputs after the fused activation, over {} training samples without "
      "augmentation; “–”: the module has no such tensor, or another one's quantizer serves it.",
      report.quantized
          ? "SQNR is 10 log10(signal / quantization noise); clipped are values whose code lies "
            "outside the range. "
          : "Smallest and largest value, batch norms folded in as quantization would. ",
      grouped(report.activation_samples)));
  const int span = report.quantized ? 3 : 2;
  html += fmt::format(
      "<div class=\"wide\"><table><thead><tr><th class=\"name\" rowspan=\"2\">module</th>"
      "<th class=\"name\" rowspan=\"2\">type</th><th rowspan=\"2\">weights</th>"
      "<th class=\"group\" colspan=\"{}\">weights</th><th class=\"group\" "
      "colspan=\"{}\">activations"
      "</th></tr><tr>",
      span, span);
  for (int side = 0; side < 2; ++side) {
    html += report.quantized ? "<th class=\"group\">bits</th><th>SQNR, dB</th><th>clipped, %</th>"
                             : "<th class=\"group\">smallest</th><th>largest</th>";
  }
  html += "</tr></thead><tbody>\n";
  for (const ReportedLayer& layer : report.layers) {
    html += "<tr>" + cell(layer.name, "name") +
            cell(layer.type.empty() ? "–" : layer.type, "name") +
            cell(layer.weights == 0 ? "–" : grouped(layer.weights)) +
            tensor_cells(layer.weight, report.quantized) +
            tensor_cells(layer.activation, report.quantized) + "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string describe(const ReportedTensor& tensor) {
  if (tensor.scheme.empty()) return "float";
  if (!tensor.error) return tensor.scheme + ", never observed";
  const std::string scales =
      tensor.scales.first == tensor.scales.second
          ? fmt::format("scale {:.4g}", tensor.scales.first)
          : fmt::format("scales {:.4g} to {:.4g}", tensor.scales.first, tensor.scales.second);
  const std::string range = fmt::format("{} {:.4g} to {:.4g}", tensor.in_codes ? "codes" : "range",
                                        tensor.range->first, tensor.range->second);
  return tensor.scheme + "; " + range + ", " + scales;
}

std::string tensor_figure(const std::string& title, const ReportedTensor& tensor, bool quantized) {
  return figure(
      histogram_chart({.title = title,
                       .x_label = tensor.in_codes ? "value / scale + zero point" : "value",
                       .histogram = tensor.histogram,
                       .range = tensor.range,
                       .levels = tensor.levels}),
      quantized ? describe(tensor) : "");
}

std::string histograms(const RunReport& report) {
  if (report.layers.empty()) return "";
  std::string html = heading("Histograms");
  html += "<p class=\"note\">Counts on a logarithmic axis.";
  if (report.quantized) {
    html +=
        " <span class=\"key range\"></span>"
        "the range that the quantizer represents, "
        "<span class=\"key limit\"></span>its ends; "
        "<span class=\"key level\"></span>the values of the "
        "codes, for 4 bits and fewer. Weights with a scale for each channel are shown in codes, "
        "before they are rounded.";
  }
  html += "</p>\n<div class=\"charts small\">\n";
  for (const ReportedLayer& layer : report.layers) {
    if (layer.weight && !layer.weight->histogram.counts.empty()) {
      html += tensor_figure(layer.name + " weights", *layer.weight, report.quantized);
    }
    if (layer.activation && !layer.activation->histogram.counts.empty()) {
      html += tensor_figure(layer.name + " activations", *layer.activation, report.quantized);
    }
  }
  return html + "</div>\n";
}

std::string recipe_text(const RunReport& report) {
  std::string html =
      heading("Recipe") + "<details><summary>recipe.yaml, with its defaults</summary><pre>";
  std::istringstream text(report.recipe);
  for (std::string line; std::getline(text, line);) html += html_escaped(line) + "\n";
  return html + "</pre></details>\n";
}

}  // namespace

std::string report_page(const RunReport& report) {
  std::string html =
      kBeginning + policy_and_style(kPageStyle + share_rules()) +
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>" +
      html_escaped(report.name) + "</title>\n</head>\n<body>\n";
  html += head(report) + missing_parts(report) +
          warning_box("Epochs that lost what the run knew", collapsed_epochs(report)) +
          doubtful_ranges(report) + accuracies(report) + class_section(report.classes) +
          curves(report) + step_time(report) + sizes(report) + layer_table(report) +
          histograms(report) + recipe_text(report);
  return html + "</body>\n</html>\n";
}

bool is_report_page(std::string_view beginning) {
  return beginning.starts_with(kBeginning) && beginning.find(kSubtitle) != std::string_view::npos;
}

std::string why_less_than(std::string_view page, const RunReport& report) {
  const bool measured = is_report_page(page) &&
                        page.find(beginning_of_part(kMeasuredParts)) == std::string_view::npos;
  return measured ? reason_for(report, kMeasuredParts) : "";
}

}  // namespace steelyard
