// What `steelyard verify` does, for the verbs that end with it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/verbs.h"

namespace steelyard::cli {

struct VerifyArguments {
  std::string run = {};
  std::string checkpoint = "last";
  std::string model = {};
  std::int64_t samples = 10'000;
  std::string python = {};
  // The SQNR of the integers against the float model, where it is known (docs/exports.md).
  std::optional<double> sqnr_db = {};
  // What gives weights of 7 bits.
  std::string seven_bits = "num_bits: 7 or export.reduce_range: true, best before training";
};

// Prints what differs; kMismatch where the deployed model is not the trained one.
ExitCode verify_run(const VerifyArguments& options, const Registries& registries);

}  // namespace steelyard::cli
