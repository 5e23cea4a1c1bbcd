// A run's folder: its files, and the lock that admits one writing process.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "steelyard/recipes/runs/experiment/experiment.h"

namespace steelyard {

// The files that a run's folder holds.
namespace run_files {
inline constexpr const char* kRecipe = "recipe.yaml";
inline constexpr const char* kPlan = "plan.txt";
inline constexpr const char* kMetrics = "metrics.jsonl";
inline constexpr const char* kEvents = "events.out.tfevents.steelyard";
inline constexpr const char* kSummary = "summary.json";
inline constexpr const char* kProfile = "profile.json";
inline constexpr const char* kLast = "last.safetensors";
inline constexpr const char* kBest = "best.safetensors";
}  // namespace run_files

struct RunOptions {
  std::filesystem::path folder = {};        // empty: runs/<the recipe's name>
  std::vector<std::string> overrides = {};  // "train.epochs=3", as --set takes them
  std::filesystem::path recipe_file = {};   // that the user wrote; empty: a preset or none
  bool resume = false;
  KnownData known = {};      // of a new run: from another experiment on the same data
  bool other_data = false;   // resume although the training data is another
  bool forget_best = false;  // resume although best.safetensors is gone
  // Called with a line for everything that the user may not expect.
  std::function<void(const std::string&)> note = [](const std::string&) {};
  // Called with the result on the test set, before exports are written.
  std::function<void(const Metrics&)> tested = [](const Metrics&) {};
};

// True when the folder holds a run that has saved something to continue from.
bool has_checkpoint(const std::filesystem::path& folder);

// A run's folder, locked against other processes; the system lets go of a killed process's lock.
// (Where the file system knows no locks, nothing is locked.)
class RunLock {
 public:
  // Throws InputError when another process holds the folder.
  explicit RunLock(const std::filesystem::path& folder);
  RunLock(RunLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  RunLock& operator=(RunLock&&) = delete;
  ~RunLock();

 private:
  int descriptor_ = -1;
};

// Throws InputError for a folder whose run would have to be continued, without `resume`.
void require_no_other_run(const RunOptions& options);

// Opens a run and keeps other processes out of its folder while the result lives. A new folder gets
// its files; so does one whose run stopped before its first checkpoint, after what that run left
// was removed. A run with a checkpoint is continued only with `resume`, on the same data, by the
// same recipe (more epochs and keys that change no result aside: store_changed_recipe()). Throws
//  InputError otherwise, also for a run that finished or kept checkpoints and whose last one
// is gone.
[[nodiscard]] RunLock open_run(const RunOptions& options, const Experiment& experiment,
                               const Registries& registries);

// Replaces the recipe of a run that goes on, where more than the device has changed.
void store_changed_recipe(const std::filesystem::path& folder, const Recipe& recipe,
                          const Registries& registries);

// What differs between the recipe that a checkpoint was trained with and `recipe`, for messages:
// "train.epochs (4, given 5)"; "" where nothing that matters does.
std::string difference_from_recipe(const std::filesystem::path& checkpoint, const Recipe& recipe,
                                   const Registries& registries);

// The epoch (from 0) of a checkpoint of the best epoch; nothing if there is no such file.
std::optional<std::int64_t> epoch_of_best(const std::filesystem::path& path);
// The number of steps done at a checkpoint; likewise.
std::optional<std::int64_t> step_of_checkpoint(const std::filesystem::path& path);

// The recipe that a run was made with.
Recipe recipe_of_run(const std::filesystem::path& folder, const Registries& registries);

}  // namespace steelyard
