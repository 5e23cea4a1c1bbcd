// Everything that `steelyard report` shows of a run, as plain data.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "steelyard/qat/model/measure.h"
#include "steelyard/qat/model/range_check.h"
#include "steelyard/recipes/reports/class_report.h"
#include "steelyard/recipes/runs/records/metrics_history.h"
#include "steelyard/recipes/runs/records/run_folder.h"
#include "steelyard/recipes/runs/records/step_timing.h"

namespace steelyard {

// MissingPart::what where the run's model and data could not be loaded.
inline constexpr const char* kMeasuredParts = "weights, activations and accuracy";

struct ReportOptions {
  std::string checkpoint = "last";
  std::int64_t batches = 8;       // of training data, at most, for activations
  std::int64_t samples = 10'000;  // of the test set, at most, for accuracies
};

// A part that is missing on the page, and the reason.
struct MissingPart {
  std::string what;
  std::string why;
};

// The weights or the activations of a module.
struct ReportedTensor {
  std::string scheme = {};  // "int4 symmetric, per channel"; empty for float
  int bits = 32;
  std::optional<qat::QuantizationError> error = {};
  qat::ValueHistogram histogram = {};
  bool in_codes = false;  // the histogram is MeasuredTensor's of codes, of channels' own scales
  // What the quantizer represents, in the histogram's unit; the values of its codes for at most 4
  // bits; the smallest and largest scale.
  std::optional<std::pair<double, double>> range = {};
  std::vector<double> levels = {};
  std::pair<double, double> scales = {};
};

struct ReportedLayer {
  std::string name;
  std::string type = {};     // "Conv2d"; empty where only activations are quantized
  std::int64_t weights = 0;  // elements
  std::optional<ReportedTensor> weight = {};
  std::optional<ReportedTensor> activation = {};
};

struct ReportedSize {
  std::string what;
  double bytes = 0;
};

struct ReportedAccuracy {
  std::string model;
  Metrics metrics;
};

struct RunReport {
  std::string name;
  std::string recipe;  // resolved YAML
  std::vector<std::pair<std::string, std::string>> facts;
  bool quantized = false;
  std::string target;  // of llama.cpp's, whose arithmetic was trained; empty without one
  std::optional<MetricsHistory> history;
  std::optional<StepTiming> timing;  // where `steelyard profile` has written it
  std::vector<ReportedLayer> layers;
  std::vector<qat::DoubtfulRange> doubtful;
  std::int64_t activation_samples = 0;
  std::vector<ReportedSize> files;
  std::vector<ReportedSize> ideal;
  std::int64_t test_samples = 0;
  std::int64_t test_set_samples = 0;  // of which they are spread_samples()
  std::vector<ReportedAccuracy> accuracies;
  ClassReport classes;  // of the last of them
  std::vector<MissingPart> missing;
};

// Reads and measures a run, finished or not. Throws InputError when the folder holds no readable
// recipe; everything else that is absent or wrong is listed in `missing`.
RunReport make_report(const std::filesystem::path& run, const Registries& registries,
                      const ReportOptions& options);

// What each epoch lost of what the run knew, of those that collapsed while the run went on.
std::vector<std::string> collapsed_epochs(const RunReport& report);

// One self-contained HTML page: no scripts, nothing loaded, the same bytes for the same report.
std::string report_page(const RunReport& report);
// Whether a file that begins so is such a page.
bool is_report_page(std::string_view beginning);
// Why the report has neither layers nor accuracies while such a page has them; "" elsewhere.
std::string why_less_than(std::string_view page, const RunReport& report);

}  // namespace steelyard
