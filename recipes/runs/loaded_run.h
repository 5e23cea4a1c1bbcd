// The weights of a run that was trained, for evaluating, exporting and measuring it.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/recipes/runs/experiment/experiment.h"

namespace steelyard {

// The digest of the model in a checkpoint file. Throws InputError as load_checkpoint() does.
std::string model_digest(const std::filesystem::path& checkpoint);
// The checkpoint of a run with that digest: "last" or "best".
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
// A checkpoint of an earlier version does not say how inputs were normalized: it is loaded with all
// data, of which this is computed again, and a note.
LoadedRun load_run(const std::filesystem::path& folder, const std::string& checkpoint,
                   const Registries& registries, RunData data = RunData::kAll);

}  // namespace steelyard
