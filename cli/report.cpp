#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "cli/run_output.h"
#include "cli/verbs.h"
#include "steelyard/framework/files/files.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/recipes/reports/run_report.h"
#include "steelyard/recipes/runs/records/run_folder.h"

namespace steelyard::cli {
namespace {

struct ReportArguments {
  std::string run;
  ReportOptions report;
  std::string out;
};

// A page of this command may be replaced, and an empty file; anything else may be somebody's work.
void require_replaceable(const std::filesystem::path& out) {
  if (!path_exists(out)) return;
  const InputFile file(out);
  constexpr std::uint64_t kBeginningBytes = 1 << 16;
  std::string beginning(std::min(file.size(), kBeginningBytes), '\0');
  file.read(0, beginning.data(), beginning.size());
  if (beginning.empty() || is_report_page(beginning)) return;
  throw InputError(shown(out) +
                   ": is no page that `steelyard report` wrote, and is not replaced: give another "
                   "--out, or remove it");
}

// A page is not replaced by one that lacks what it shows, as from a folder where the data are not.
void require_no_less(const std::filesystem::path& out, const RunReport& made) {
  if (!path_exists(out)) return;
  const std::string why = why_less_than(read_file(out, InputFile(out).size()), made);
  if (why.empty()) return;
  throw InputError(shown(out) +
                   ": has layers and accuracies, which a page written now would not have, and is "
                   "kept (give another --out, or remove it): " +
                   why);
}

ExitCode report(const ReportArguments& options, const Registries& registries) {
  const std::filesystem::path out = options.out.empty()
                                        ? std::filesystem::path(options.run) / "report.html"
                                        : std::filesystem::path(options.out);
  // Check before measuring that this is a run and that the page can be written.
  recipe_of_run(options.run, registries);
  { const AtomicFile writable(out); }  // an interrupt while measuring leaves nothing of it
  require_replaceable(out);
  const RunReport made = make_report(options.run, registries, options.report);
  require_no_less(out, made);
  write_file_atomic(out, report_page(made));
  for (const MissingPart& part : made.missing) {
    fmt::print("missing: {}: {}\n", part.what, printable(part.why, 1000));
  }
  for (const std::string& epoch : collapsed_epochs(made)) {
    fmt::print("warning: {}\n", printable(epoch, 1000));
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
