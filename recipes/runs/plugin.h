// Plugins: shared objects with parts that recipes may name. One definition makes a shared object a
// plugin; CMake's steelyard_add_plugin(NAME SOURCES...) builds it (docs/own_parts.md):
//
//   void add_parts(steelyard::Registries& registries) { registries.add_loss<...>(...); }
//
//   extern "C" const steelyard::Plugin steelyard_plugin_v1{
//       .built_for = steelyard::kPluginBuild, .name = "mine", .add = add_parts};
//
// It does not contain the library: it takes the library's symbols from the program that loads it.
#pragma once

#include <cstddef>
#include <filesystem>

#include "steelyard/build_id.h"
#include "steelyard/recipes/schema/registries.h"

#define STEELYARD_AS_TEXT_(token) #token
#define STEELYARD_AS_TEXT(macro) STEELYARD_AS_TEXT_(macro)

#if defined(_LIBCPP_VERSION)
#define STEELYARD_STANDARD_LIBRARY "libc++ " STEELYARD_AS_TEXT(_LIBCPP_VERSION)
#elif defined(_GLIBCXX_DEBUG)
#define STEELYARD_STANDARD_LIBRARY "libstdc++ " STEELYARD_AS_TEXT(_GLIBCXX_RELEASE) " (debug mode)"
#elif _GLIBCXX_USE_CXX11_ABI
#define STEELYARD_STANDARD_LIBRARY "libstdc++ " STEELYARD_AS_TEXT(_GLIBCXX_RELEASE)
#else
#define STEELYARD_STANDARD_LIBRARY \
  "libstdc++ " STEELYARD_AS_TEXT(_GLIBCXX_RELEASE) " (old ABI of strings)"
#endif

namespace steelyard {

// What a plugin and the program that loads it must share: the version and the headers of Steelyard
// (their digest) and the standard library, whose C++20 parts change between releases. It is found
// in the file before any code of it runs.
inline constexpr const char* kPluginBuild =
    "steelyard-plugin: Steelyard " STEELYARD_BUILD_ID ", " STEELYARD_STANDARD_LIBRARY;

// What a plugin defines under the name steelyard_plugin_v1. Another layout has another name.
struct Plugin {
  const char* built_for;  // kPluginBuild
  const char* name;       // in run folders and messages
  void (*add)(Registries& registries);
};

// Loads a plugin and adds its parts. A path without a slash is in the current folder: no other
// folder is searched. The same file again does nothing. Throws InputError of one line for a file
// that is missing, no plugin, built for something else or cannot be loaded, for a part whose name
// is taken, and for what the plugin throws; the registries then hold some of its parts.
void load_plugin(const std::filesystem::path& file, Registries& registries);

// Loads those of the environment variable STEELYARD_PLUGINS, absolute paths with colons between
// them. Throws InputError likewise, and for a path that is not absolute.
inline constexpr const char* kPluginsVariable = "STEELYARD_PLUGINS";
void load_plugins_of_environment(Registries& registries);

}  // namespace steelyard
