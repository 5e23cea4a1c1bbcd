// C programs compiled by a C compiler without a register for floats, and run.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "steelyard/export/c/c_program.h"
#include "steelyard/framework/files/files.h"
#include "tests/support/temporary_folder.h"

namespace steelyard::testing {

#if defined(__x86_64__)
inline constexpr const char* kWithoutFloats = " -mgeneral-regs-only";
#else
inline constexpr const char* kWithoutFloats = "";
#endif

inline int shell_of(const std::string& command) { return std::system(command.c_str()); }

// Compiles the program beside `main`, as an embedded project would; its object is model.o.
inline void compile(const std::filesystem::path& folder, const std::string& main) {
  const std::string at = folder.string();
  const std::string compiler =
      std::string(STEELYARD_C_COMPILER) +
      " -std=c99 -pedantic -Os -Wall -Wextra -Wconversion -Wshadow -Werror -I " + at + " ";
  ASSERT_EQ(shell_of(compiler + kWithoutFloats + " -c " + at + "/model.c -o " + at + "/model.o"),
            0);
  ASSERT_EQ(shell_of(compiler + main + " " + at + "/model.o -o " + at + "/run"), 0);
}

// The codes that the program of the graph gives for the codes of its input, call after call.
inline std::string run_program(const deploy::Graph& graph, const Tensor& codes,
                               const std::optional<deploy::StreamOptions>& stream = {}) {
  const TemporaryFolder folder;
  write_c_program(folder.path() / "model.h", graph, stream);
  compile(folder.path(), STEELYARD_RUN_C_PROGRAM);
  std::ofstream(folder.path() / "in", std::ios::binary)
      .write(static_cast<const char*>(codes.raw()), codes.size());
  const std::string at = folder.path().string();
  EXPECT_EQ(shell_of(at + "/run < " + at + "/in > " + at + "/out"), 0);
  return read_file(folder.path() / "out", 1 << 24);
}

inline std::string text_of(const Tensor& codes) {
  return {static_cast<const char*>(codes.raw()), static_cast<std::size_t>(codes.size())};
}

}  // namespace steelyard::testing
