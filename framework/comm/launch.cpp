#include "steelyard/framework/comm/launch.h"

#include <array>
#include <charconv>
#include <chrono>
#include <string_view>
#include <thread>

#include "steelyard/framework/tensor/error.h"

namespace steelyard::comm {
namespace {

struct Launcher {
  const char *rank, *size;
  bool by_mpi;
};

constexpr std::array<Launcher, 4> kLaunchers = {{
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", true},
    {"PMI_RANK", "PMI_SIZE", true},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", true},
    {"RANK", "WORLD_SIZE", false},
}};

int number(const char* name, std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc{} && end == text.data() + text.size() && value >= 0) return value;
  throw InputError("environment variable " + std::string(name) + ": expected a number, got '" +
                   std::string(text) + "'");
}

[[noreturn]] void throw_one_of_two(const Launcher& launcher, const char* rank, const char* size) {
  const bool has_rank = rank != nullptr;
  throw InputError("environment variable " + std::string(has_rank ? launcher.rank : launcher.size) +
                   "=" + (has_rank ? rank : size) + " is set and " +
                   (has_rank ? launcher.size : launcher.rank) +
                   " is not: launchers set both; without a launcher unset it");
}

}  // namespace

Launch read_launch(const std::function<const char*(const char*)>& variable) {
  for (const Launcher& launcher : kLaunchers) {
    const char* rank = variable(launcher.rank);
    const char* size = variable(launcher.size);
    if (rank == nullptr && size == nullptr) continue;
    if (rank == nullptr || size == nullptr) {
      if (launcher.by_mpi) continue;  // of a batch script, or of a launcher that sets others too
      throw_one_of_two(launcher, rank, size);
    }
    Launch launch;
    launch.rank = number(launcher.rank, rank);
    launch.size = number(launcher.size, size);
    launch.by_mpi = launcher.by_mpi;
    launch.variables =
        std::string(launcher.rank) + "=" + rank + " and " + launcher.size + "=" + size;
    if (launch.rank < launch.size) return launch;
    throw InputError("environment variables " + launch.variables +
                     ": expected a rank below the number of ranks");
  }
  return {};
}

void let_first_rank_speak(const Launch& launch) {
  if (launch.rank > 0) std::this_thread::sleep_for(std::chrono::seconds(5));
}

}  // namespace steelyard::comm
