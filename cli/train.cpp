#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "cli/as_ranks.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/recipe_arguments.h"
#include "cli/run_output.h"
#include "cli/verbs.h"
#include "steelyard/framework/files/files.h"
#include "steelyard/framework/files/folders.h"
#include "steelyard/framework/train/shards/replicas.h"
#include "steelyard/recipes/runs/memory_estimate.h"
#include "steelyard/recipes/runs/run.h"

namespace steelyard::cli {
namespace {

struct TrainArguments : RecipeArguments {
  std::string run_dir;
  std::optional<std::string> seed;
  bool resume = false;
  bool other_data = false;
  bool forget_best = false;
  bool dry_run = false;
};

void dry_run(Experiment& experiment, Device device) {
  const MemoryEstimate memory = estimate_memory(experiment, device);
  const bool on_gpu = device.kind == Device::Kind::kCuda;
  const auto line = [](const char* kind, std::int64_t bytes) {
    fmt::print("  {:<19}{:9.2f}\n", kind, static_cast<double>(bytes) / (1 << 20));
  };
  const auto line_if_any = [&](const char* kind, std::int64_t bytes) {
    if (bytes > 0) line(kind, bytes);
  };
  fmt::print(
      "estimated memory of training with batches of {} samples, in MiB (extrapolated from small "
      "batches):\n",
      experiment.loader_options().batch_size);
  line("program", memory.program_bytes);
  line("dataset", memory.dataset_bytes);
  line("batches made ahead", memory.batches_bytes);
  if (on_gpu) {
    line("total", memory.host_bytes());
    fmt::print("and on {}:\n", device_name(device));
    line("batches", memory.staged_batches_bytes);
  }
  line("parameters", memory.parameters_bytes);
  line("gradients", memory.gradients_bytes);
  line("optimizer state", memory.optimizer_bytes);
  line_if_any("teacher", memory.teacher_bytes);
  line_if_any("weight averages", memory.averages_bytes);
  line_if_any("oscillations", memory.oscillations_bytes);
  line("saved activations", memory.saved_activations_bytes);
  line("temporaries", memory.temporaries_bytes);
  line("total", memory.model_bytes() + (on_gpu ? 0 : memory.host_bytes()));
  fmt::print("dry run: nothing was trained or written\n");
}

// Keeps the step and checkpoint for the message about a lost rank.
class RankProgress : public TrainerCallback {
 public:
  RankProgress(comm::RankState& state, const Run& run)
      : state_(state), last_(run.folder() / run_files::kLast) {
    if (const auto step = run.resumes_at()) resume_from(*step);
  }

  void on_step_begin(std::int64_t step, std::int64_t) override { state_.set_step(step); }
  void on_saved(std::int64_t step) override { resume_from(step); }

 private:
  void resume_from(std::int64_t step) {
    state_.set_step(step);
    state_.set_checkpoint(fmt::format("{} (step {})", shown(last_), step));
  }

  comm::RankState& state_;
  std::filesystem::path last_;
};

// Every rank but the first prints to a file of its own, after what earlier starts printed.
void print_to_log(const std::filesystem::path& folder, int rank, comm::RankState& state) {
  const std::filesystem::path log = folder / ("rank-" + std::to_string(rank) + ".log");
  const Descriptor file = open_to_append(log);
  std::fflush(stdout);
  if (dup2(file.get(), fileno(stdout)) < 0) {
    throw_cannot_create(log, {errno, std::generic_category()});
  }
  state.set_log(log);
}

// The first rank makes the folder; the others then print there.
void open_logs(const std::filesystem::path& folder, comm::RankState& state,
               comm::Communicator& ranks) {
  if (ranks.size() == 1) return;
  on_first_rank(ranks, [&] { create_folders(folder); });
  on_all_ranks(ranks, [&] {
    if (ranks.rank() > 0) print_to_log(folder, ranks.rank(), state);
  });
}

std::vector<std::string> overrides_of(const TrainArguments& options) {
  std::vector<std::string> overrides = options.all_overrides();
  if (options.seed) overrides.push_back("--seed=" + *options.seed);
  return overrides;
}

// Where lines may be drawn again. A launcher gives its ranks terminals, also if it writes what they
// print to a file.
bool draws_lines(int ranks) { return ranks == 1 && isatty(STDOUT_FILENO) != 0; }

ExitCode run_to_the_end(Run& run, RankProgress& rank_progress, bool draws_lines) {
  const std::atomic<bool>& stop = stop_on_signals();
  const RunResult result = [&] {
    Progress progress(run.experiment().recipe().train.trainer.epochs,
                      run.experiment().loader_options().batch_size, draws_lines);
    return run.train(stop, {&rank_progress, &progress});
  }();
  if (result.interrupted) {
    show(fmt::format("interrupted: {} is saved; continue with --resume\n",
                     shown(run.folder() / run_files::kLast)));
    return kInterrupted;
  }
  print_exports(result);
  return kDone;
}

// Trains alone or as one of several ranks.
ExitCode train_as_rank(const TrainArguments& options, const Registries& registries,
                       comm::RankState& state, comm::Ranks& ranks) {
  comm::Communicator& all = ranks.communicator();
  state.set_draws_lines(draws_lines(all.size()));
  if (all.size() > 1) stop_on_signals();  // one that ended by itself would be lost to the others
  const auto note = [&](const std::string& text) {
    all.rank() == 0 ? print_note(text) : show(error_line("note", text));
  };
  require_agreement({{"--dry-run", options.dry_run ? "given" : "not given"}}, all);
  std::optional<Run> run;
  on_all_ranks(all, [&] {
    run.emplace(options.recipe,
                RunOptions{.folder = options.run_dir,
                           .overrides = overrides_of(options),
                           .resume = options.resume,
                           .other_data = options.other_data,
                           .forget_best = options.forget_best,
                           .note = note,
                           .tested = [&](const Metrics& final) { print_result(*run, final); }},
                registries);
    run->load_teacher();
  });
  Experiment& experiment = run->experiment();
  const std::string about = model_text(experiment, run->device());
  if (options.dry_run) {
    on_first_rank(all, [&] {
      fmt::print("{}", about);
      print_notes(experiment.notes());
      dry_run(experiment, run->device());
    });
    return kDone;
  }
  on_first_rank(all, [&] { run->require_folder(); });
  RankProgress rank_progress(state, *run);
  run->join(all, ranks.rank_on_machine());
  open_logs(run->folder(), state, all);
  show(about);
  for (const std::string& text : experiment.notes()) note(text);
  return run_to_the_end(*run, rank_progress, draws_lines(all.size()));
}

ExitCode train(const TrainArguments& options, const Registries& registries) {
  comm::RankState state;
  return as_ranks("train", state, [&](comm::Ranks& ranks) {
    return train_as_rank(options, registries, state, ranks);
  });
}

}  // namespace

Verb add_train(CLI::App& app) {
  auto options = std::make_shared<TrainArguments>();
  CLI::App* verb = app.add_subcommand("train", "Train, fine-tune or continue a run");
  verb->footer(
      "Several processes: mpirun -n N, or srun, with a recipe of train.shards >= N "
      "(docs/scale.md)");
  options->add_recipe(*verb, "train.epochs=3");
  verb->add_option("--run-dir", options->run_dir, "The run's folder (default: runs/<name>)");
  CLI::Option* resume =
      verb->add_flag("--resume", options->resume,
                     "Continue the run in the folder from its last checkpoint, or start it if "
                     "there is none; a finished run continues if train.epochs is larger");
  verb->add_flag("--other-data", options->other_data,
                 "With --resume: accept training data that has changed")
      ->needs(resume);
  verb->add_flag("--forget-best", options->forget_best,
                 "With --resume: drop the record of the best epoch if best.safetensors is gone")
      ->needs(resume);
  options->add_device(*verb, "cuda (each rank has a GPU of its own)");
  add_threads(*verb);
  verb->add_option("--seed", options->seed, "The random seed, in place of the recipe's");
  verb->add_flag("--dry-run", options->dry_run, "Print plan and memory estimate, train nothing");
  return [options](const Registries& registries) { return train(*options, registries); };
}

}  // namespace steelyard::cli
