// A run: what `steelyard train` and `steelyard calibrate` do. The command line only prints.
//
//   Run run("recipe.yaml", {.folder = "runs/mine", .resume = true});
//   const RunResult result = run.train();
#pragma once

#include <atomic>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/framework/comm/communicator.h"
#include "steelyard/framework/train/shards/replicas.h"
#include "steelyard/recipes/runs/experiment/experiment.h"
#include "steelyard/recipes/runs/records/run_folder.h"
#include "steelyard/recipes/runs/records/step_timing.h"

namespace steelyard {

struct RunResult {
  bool interrupted = false;                         // saved, and nothing else was written
  Metrics final = {};                               // on the test set, after the last epoch
  std::vector<std::filesystem::path> exports = {};  // written for the recipe's export.formats
  std::vector<std::string> notes = {};              // on them
};

// Throws InputError for a recipe without quantization or without trained weights.
void require_calibratable(const Recipe& recipe);

// One run in one folder.
class Run {
 public:
  // Reads the data, builds and prepares the model, and checks all that can be checked before
  // training: data, targets, norms to freeze, exports, device. `recipe` is a file or the name of a
  // preset; `registries` outlives the run. Throws InputError for what does not fit, DeviceError for
  // a device that is not there.
  explicit Run(const std::string& recipe, RunOptions options = {},
               const Registries& registries = builtin_registries());
  explicit Run(Recipe recipe, RunOptions options = {},
               const Registries& registries = builtin_registries());

  // Processes that do this run together, before train(): the first one opens the folder and writes
  // its files. They outlive the run. On GPUs each rank of a machine has the one of its number
  // there, and sums go from GPU to GPU where the program was built with NCCL. Throws
  // SharedInputError where train.shards cannot be divided among so many, where ranks would not
  // train the same run to the same bits, and where a rank has no GPU of its own.
  void join(comm::Communicator& ranks, int rank_on_machine = 0);

  // Throws InputError for a folder that holds another run, as train() does: before much is printed.
  void require_folder() const { require_no_other_run(options_); }

  // Starts the run or, with `resume`, goes on: trains until the last epoch or until `stop`, writes
  // the folder's files, and at the end the exports that the recipe asks for. `watchers` see every
  // step. Throws InputError for a folder that holds another run or cannot go on, TrainingDiverged,
  // and InputError for an export that trained weights do not allow.
  RunResult train(const std::atomic<bool>& stop,
                  const std::vector<TrainerCallback*>& watchers = {});
  RunResult train();

  // Post-training quantization instead: ranges from calibration_batches(), everything quantized
  // whatever the schedule says. Leaves the checkpoint of a run before its first step. Throws as
  // train() and require_calibratable().
  RunResult calibrate();
  std::int64_t calibration_batches() const;
  // Leaves the checkpoint of a run before its first step with the weights as they are: what a float
  // run of an imported model is. Throws as train().
  RunResult save_untrained();

  // Runs the steps that train() would do next, so many that it times `steps` of each kind
  // (StepWatch), and writes nothing. Throws as train().
  StepTiming time_steps(std::int64_t steps);

  // Loads the teacher of a recipe that distills, once; train() does it too. Throws InputError.
  void load_teacher();

  // The number of steps at the checkpoint from which the run continues; nothing for a new run.
  std::optional<std::int64_t> resumes_at() const;

  Experiment& experiment() { return experiment_; }
  const std::filesystem::path& folder() const { return options_.folder; }
  Device device() const { return device_; }
  // The memory of the device's tensors so far: what was in use together, and blocks kept for reuse.
  std::int64_t memory_bytes() const;

 private:
  std::optional<Metrics> train_in_folder(const std::atomic<bool>& stop,
                                         const std::vector<TrainerCallback*>& watchers);
  // The checkpoint of a run before its first step; with the ranges of so many batches, where there
  // are any.
  Metrics save_before_training(std::int64_t batches_of_ranges);
  TrainerOptions trainer_options() const;
  // The folder's last checkpoint on every rank, whose normalization the run goes on with; nothing
  // of a run that begins.
  std::optional<Checkpoint> last_checkpoint();
  void restore(Trainer& trainer, Checkpoint& checkpoint);
  // On every rank; forgets a best epoch whose weights are lost or that was chosen on other data.
  void resume(Trainer& trainer, Checkpoint checkpoint, bool other_data);
  RunResult finished(const Metrics& final);

  // Whether this rank opens the folder, writes the files and prints.
  bool first_rank() const { return ranks_->rank() == 0; }
  std::vector<Agreement> agreements(bool goes_on) const;
  void require_same_recipe() const;
  bool require_same_checkpoint() const;
  void take_own_gpu(int rank_on_machine);

  RunOptions options_;
  const Registries& registries_;
  comm::Communicator alone_;
  comm::Communicator* ranks_ = &alone_;
  Device device_;
  bool continues_;
  bool teacher_loaded_ = false;
  Experiment experiment_;
};

}  // namespace steelyard
