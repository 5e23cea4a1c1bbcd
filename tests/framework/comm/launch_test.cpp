#include "steelyard/framework/comm/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "steelyard/framework/tensor/error.h"

namespace steelyard {
namespace {

using Variables = std::map<std::string, std::string>;

comm::Launch launch(const Variables& variables) {
  return comm::read_launch([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(Launch, ReadsWhatLaunchersSet) {
  struct Case {
    Variables variables;
    int rank, size;
    bool by_mpi;
  };
  const Case cases[] = {
      {{}, 0, 1, true},
      {{{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}}, 2, 4, true},
      {{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}, 1, 2, true},
      {{{"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "8"}}, 3, 8, true},
      {{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}, 0, 1, true},  // a batch script
      {{{"RANK", "1"}, {"WORLD_SIZE", "2"}}, 1, 2, false},
      // mpirun inside a step of srun
      {{{"SLURM_PROCID", "0"},
        {"SLURM_STEP_NUM_TASKS", "1"},
        {"OMPI_COMM_WORLD_RANK", "1"},
        {"OMPI_COMM_WORLD_SIZE", "2"}},
       1,
       2,
       true},
  };
  for (const Case& c : cases) {
    const comm::Launch actual = launch(c.variables);
    const std::string name = c.variables.empty() ? "none" : c.variables.begin()->first;
    EXPECT_EQ(actual.rank, c.rank) << name;
    EXPECT_EQ(actual.size, c.size) << name;
    EXPECT_EQ(actual.by_mpi, c.by_mpi) << name;
  }
}

TEST(Launch, RefusesWhatIsNoRank) {
  EXPECT_THROW(launch({{"RANK", "one"}, {"WORLD_SIZE", "2"}}), InputError);
  EXPECT_THROW(launch({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}), InputError);
  EXPECT_THROW(launch({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), InputError);
  EXPECT_THROW(launch({{"PMI_RANK", "0"}, {"PMI_SIZE", ""}}), InputError);
  EXPECT_THROW(launch({{"RANK", "0"}}), InputError);
  EXPECT_THROW(launch({{"WORLD_SIZE", "4"}}), InputError);
}

}  // namespace
}  // namespace steelyard
