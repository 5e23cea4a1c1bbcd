// What the ranks of a run agree on before they train together.
#include <algorithm>
#include <array>

#include "steelyard/framework/comm/nccl.h"
#include "steelyard/framework/data/dataset_digest.h"
#include "steelyard/framework/files/sha256.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"
#include "steelyard/kernels/backend.h"
#include "steelyard/kernels/cuda/cuda_memory.h"
#include "steelyard/recipes/language/recipe_differences.h"
#include "steelyard/recipes/runs/run.h"

namespace steelyard {
namespace {

constexpr const char* kGpuOfItsOwn = "each rank needs a GPU of its own: ";

// A launcher may let each process see its own GPU alone, which is then number 0 to all of them.
Device gpu_of_rank(const std::string& device, int rank_on_machine) {
  const bool named = device.starts_with("cuda:");
  if (named && rank_on_machine > 0) {
    throw DeviceError("device '" + device + "' is one for all, 'cuda' is one for each");
  }
  const int visible = std::max(1, kernels::cuda_device_count());
  return resolve_device(named ? device : "cuda:" + std::to_string(rank_on_machine % visible));
}

void require_gpus_of_their_own(Device device, comm::Communicator& ranks) {
  const kernels::CudaIdentity own = kernels::cuda_identity(device.index);
  require_agreement({{"model of GPU", own.model}}, ranks);
  const std::vector<std::string> all = ranks.gather(own.uuid);
  for (auto taken = all.begin(); taken != all.end(); ++taken) {
    const auto again = std::find(taken + 1, all.end(), *taken);
    if (again == all.end()) continue;
    throw SharedInputError(std::string(kGpuOfItsOwn) + "rank " +
                           std::to_string(taken - all.begin()) + " and rank " +
                           std::to_string(again - all.begin()) + " have the same one");
  }
}

}  // namespace

void Run::join(comm::Communicator& ranks, int rank_on_machine) {
  ranks_ = &ranks;
  if (ranks.size() > 1) require_same_recipe();
  const std::int64_t shards = experiment_.recipe().train.trainer.shards;
  try {
    comm::shards_of_rank(ranks.rank(), ranks.size(), shards);
  } catch (const InputError& error) {
    throw SharedInputError(experiment_.place("train", "shards") +
                           ": train.shards: " + error.what());
  }
  if (ranks.size() == 1) return;
  const bool goes_on = require_same_checkpoint();
  require_agreement(agreements(goes_on), ranks);
  take_own_gpu(rank_on_machine);
}

void Run::require_same_recipe() const {
  const std::string own = resolved_yaml(experiment_.recipe());
  const std::string first = ranks_->broadcast(own);
  on_all_ranks(*ranks_, [&] {
    const auto differences =
        recipe_differences(parse_yaml(first, "recipe of rank 0"), parse_yaml(own, "own recipe"));
    if (differences.empty()) return;
    throw InputError("another recipe than that of rank 0: " + to_string(differences, "here"));
  });
}

// A rank that sees no checkpoint gets the first one's; another one would go on from it. Returns
// whether there is one.
bool Run::require_same_checkpoint() const {
  const std::filesystem::path last = options_.folder / run_files::kLast;
  std::string own;
  on_all_ranks(*ranks_, [&] {
    if (continues_) own = sha256_of_file(last);
  });
  const std::string first = ranks_->broadcast(own);
  on_all_ranks(*ranks_, [&] {
    if (own.empty() || own == first) return;
    throw InputError(printable(last.string()) + ": is not the checkpoint of rank 0, which " +
                     (first.empty() ? "begins anew" : "resumes from another"));
  });
  return !first.empty();
}

void Run::take_own_gpu(int rank_on_machine) {
  const bool on_gpu = device_.kind == Device::Kind::kCuda;
  require_agreement({{"kind of device", on_gpu ? "cuda" : "cpu"}}, *ranks_);
  if (!on_gpu) return;
  on_all_ranks(*ranks_, [&] {
    try {
      device_ = gpu_of_rank(experiment_.recipe().device, rank_on_machine);
    } catch (const DeviceError& error) {
      throw InputError(kGpuOfItsOwn + std::string(error.what()));
    }
  });
  require_gpus_of_their_own(device_, *ranks_);
  if (comm::nccl_name().empty()) {
    options_.note("sums of gradients go through the memory of the hosts: built without NCCL");
  } else {
    ranks_->connect_gpus(device_);
  }
}

// Everything that the bits of a run depend on, and the program that computes them.
std::vector<Agreement> Run::agreements(bool goes_on) const {
  std::string sources;
  for (const auto& [key, digest] : experiment_.record().sources) {
    // The initial checkpoint of a run that goes on is read by those ranks alone that see no
    // checkpoint of the run, which replaces it.
    if (goes_on && key != kTeacherSource) continue;
    sources.append(key).append(" ").append(digest).append("\n");
  }
  return {{"run folder", std::filesystem::absolute(options_.folder).lexically_normal().string()},
          {"program (sha256)", sha256_of_file("/proc/self/exe")},
          {"plugins (sha256)", registries_.digest_of_plugins()},
          {"backend of products", kernels::backend_text()},
          {"number of threads", std::to_string(kernels::num_threads())},
          {"recipe (sha256)", sha256_of(resolved_yaml(experiment_.recipe()))},
          {"initial checkpoint or teacher (sha256)", sha256_of(sources)},
          {"training data (sha256)", experiment_.data_digest()},
          {"test data (sha256)", digest_of(std::array{experiment_.test()})}};
}

}  // namespace steelyard
