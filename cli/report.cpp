#include <fmt/core.h>

#include <filesystem>
#include <memory>

#include "cli/run_output.h"
#include "cli/verbs.h"
#include "steelyard/framework/files.h"
#include "steelyard/recipes/reports/run_report.h"
#include "steelyard/recipes/runs/run_folder.h"

namespace steelyard::cli {
namespace {

struct ReportArguments {
  std::string run;
  ReportOptions report;
  std::string out;
};

ExitCode report(const ReportArguments& options, const Registries& registries) {
  const std::filesystem::path out = options.out.empty()
                                        ? std::filesystem::path(options.run) / "report.html"
                                        : std::filesystem::path(options.out);
  // Check before measuring that this is a run and that the page can be written.
  recipe_of_run(options.run, registries);
  { const AtomicFile writable(out); }  // an interrupt while measuring leaves nothing of it
  const RunReport made = make_report(options.run, registries, options.report);
  write_file_atomic(out, report_page(made));
  for (const MissingPart& part : made.missing) {
    fmt::print("missing: {}: {}\n", part.what, printable(part.why, 1000));
  }
  for (const qat::DoubtfulRange& range : made.doubtful) {
    fmt::print("warning: range of {}\n", printable(to_string(range), 1000));
  }
  fmt::print("report: {}\n", shown(out));
  return kDone;
}

}  // namespace

Verb add_report(CLI::App& app) {
  auto options = std::make_shared<ReportArguments>();
  CLI::App* verb = app.add_subcommand(
      "report", "Write one HTML page about a run: curves, layers, histograms, sizes, accuracies");
  verb->add_option("run", options->run, "The run's folder")->required();
  verb->add_option("--out", options->out, "The page (default: RUN/report.html)");
  verb->add_option("--checkpoint", options->report.checkpoint,
                   "last, best or a file (default: last)");
  verb->add_option("--batches", options->report.batches,
                   "Training batches to measure activations on (default: 8)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  verb->add_option("--samples", options->report.samples,
                   "Test samples for the accuracies (default: 10000)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  add_threads(*verb);
  return [options](const Registries& registries) { return report(*options, registries); };
}

}  // namespace steelyard::cli
