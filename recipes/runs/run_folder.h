// A run's folder: recipe.yaml, plan.txt, metrics.jsonl, checkpoints, summary.json.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "steelyard/recipes/runs/experiment.h"

namespace steelyard {

struct RunRequest {
  std::filesystem::path folder;
  std::filesystem::path recipe = {};  // the file that the user wrote; empty: a preset or none
  bool resume = false;
  bool other_data = false;   // resume although the training data is another
  bool forget_best = false;  // resume although best.safetensors is gone
  // Told, a line each, what a resumed run does that the user may not expect.
  std::function<void(const std::string&)> note = [](const std::string&) {};
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

// Opens a run and keeps other processes out of its folder while the result lives. A new folder gets
// its files; so does one whose run stopped before its first checkpoint, after what that run left
// was removed. A run with a checkpoint is continued only with `resume`, on the same data, by the
// same recipe (more epochs and keys that change no result aside, which then replace the run's).
// Throws InputError otherwise, also for a run that finished or kept checkpoints and whose last one
// is gone.
[[nodiscard]] RunLock open_run(const RunRequest& request, const Experiment& experiment,
                               const Registries& registries);

struct RunSummary {
  bool interrupted = false;  // no summary.json was written
  Metrics final;             // on the test set, after the last epoch
};

// Trains in an opened folder (after restoring last.safetensors when resuming, else after the
// calibration that the recipe asks for) and writes metrics.jsonl, TensorBoard events where the
// recipe wants them and, at the end, summary.json. `watchers` see every step. Throws
// TrainingDiverged, and InputError where best.safetensors is not that of the best epoch so far.
RunSummary train_run(const RunRequest& request, Experiment& experiment,
                     const std::vector<TrainerCallback*>& watchers, const std::atomic<bool>& stop);

// Calibrates in an opened folder instead of training, with everything quantized whatever the
// schedule says: leaves the checkpoint of a run before its first step, metrics.jsonl and
// summary.json. Throws TrainingDiverged.
Metrics calibrate_run(const RunRequest& request, Experiment& experiment, std::int64_t batches);

// The recipe that a run was made with.
Recipe recipe_of_run(const std::filesystem::path& folder, const ModelRegistry& registry);

// Of a checkpoint file. Throws InputError as load_checkpoint() does.
std::string model_digest(const std::filesystem::path& checkpoint);
// Which of a run's checkpoints has that digest: "last" or "best".
std::optional<std::string> checkpoint_of_digest(const std::filesystem::path& folder,
                                                const std::string& digest);

// A run's experiment with the weights of a checkpoint: "last" and "best" are the run's own,
// anything else is a file. Throws InputError where the folder's recipe is not the one that the
// checkpoint was trained with (of a file from elsewhere: another model or quantization).
struct LoadedRun {
  std::unique_ptr<Experiment> experiment;
  std::filesystem::path checkpoint;
  std::string model_sha256;                         // model_digest() of the checkpoint
  std::map<std::string, std::string> sources = {};  // see RunRecord
  std::vector<std::string> notes = {};              // what the user should know, a line each
};
// A checkpoint of an earlier version does not say how inputs were normalised: it is loaded with all
// data, of which this is computed again, and a note.
LoadedRun load_run(const std::filesystem::path& folder, const std::string& checkpoint,
                   const Registries& registries, RunData data = RunData::kAll);

}  // namespace steelyard
