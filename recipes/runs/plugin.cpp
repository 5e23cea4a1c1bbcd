#include "steelyard/recipes/runs/plugin.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>

#include "steelyard/framework/files/files.h"
#include "steelyard/framework/files/sha256.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"
#include "steelyard/recipes/schema/recipe_options.h"

namespace steelyard {
namespace {

constexpr std::uint64_t kMostPluginBytes = std::uint64_t{1} << 30;
constexpr std::string_view kBuildPrefix = "steelyard-plugin: ";
constexpr const char* kEntry = "steelyard_plugin_v1";

std::string without_prefix(std::string_view build) {
  return std::string(build.substr(kBuildPrefix.size()));
}

// Loading runs a library's initializers, so what it was built for is read from its bytes.
void require_build(const std::string& file, std::string_view bytes) {
  std::string other;
  for (auto at = bytes.find(kBuildPrefix); at != std::string_view::npos;
       at = bytes.find(kBuildPrefix, at + 1)) {
    const std::string_view found = bytes.substr(at, bytes.find('\0', at) - at);
    if (found == kPluginBuild) return;
    if (found.size() > kBuildPrefix.size()) other = without_prefix(found);
  }
  if (other.empty()) throw InputError(file + ": not a plugin of Steelyard (docs/own_parts.md)");
  throw InputError(file + ": the plugin was built for " + printable(other) + ", this is " +
                   without_prefix(kPluginBuild) + ": build it again");
}

// dlerror() of the last call, on one line and without the path that the message begins with.
std::string load_error(const std::string& path) {
  const char* error = dlerror();
  std::string text = error == nullptr ? "unknown error" : error;
  if (text.starts_with(path + ": ")) text.erase(0, path.size() + 2);
  return printable(text);
}

const Plugin& opened(const std::filesystem::path& path, const std::string& file) {
  // Never closed: what it added is in use until the program ends.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw InputError(file + ": cannot be loaded: " + load_error(path.string()));
  }
  const auto* plugin = static_cast<const Plugin*>(dlsym(library, kEntry));
  if (plugin == nullptr) {
    throw InputError(file + ": not a plugin of Steelyard: it defines no " + kEntry +
                     " (docs/own_parts.md)");
  }
  if (plugin->name == nullptr || *plugin->name == '\0' || plugin->add == nullptr) {
    throw InputError(file + ": " + kEntry + " has no name or adds nothing");
  }
  return *plugin;
}

void add_parts(const Plugin& plugin, const std::string& file, Registries& registries) {
  registries.adding = plugin.name;
  try {
    plugin.add(registries);
    recipe_options(registries);  // refuses options that stand beside keys of their names
  } catch (const std::exception& error) {
    throw InputError(file + ": the plugin " + printable(plugin.name) + ": " +
                     printable(error.what()));
  } catch (...) {
    throw InputError(file + ": the plugin " + printable(plugin.name) +
                     ": threw something that is no std::exception");
  }
  registries.adding.clear();
}

}  // namespace

void load_plugin(const std::filesystem::path& file, Registries& registries) {
  const std::string shown = printable(file.string());
  if (!path_exists(file)) throw InputError(shown + ": there is no such plugin");
  const std::filesystem::path path = std::filesystem::canonical(file);
  const auto same = [&](const LoadedPlugin& plugin) { return plugin.file == path; };
  if (std::any_of(registries.plugins.begin(), registries.plugins.end(), same)) return;
  const std::string bytes = read_file(path, kMostPluginBytes);
  require_build(shown, bytes);
  const Plugin& plugin = opened(path, shown);
  for (const LoadedPlugin& loaded : registries.plugins) {
    if (loaded.name != plugin.name) continue;
    throw InputError(shown + ": a plugin named " + printable(loaded.name) +
                     " is loaded already: " + printable(loaded.file.string()));
  }
  add_parts(plugin, shown, registries);
  registries.plugins.push_back({plugin.name, path, sha256_of(bytes)});
}

void load_plugins_of_environment(Registries& registries) {
  const char* const variable = std::getenv(kPluginsVariable);
  std::string_view rest = variable == nullptr ? "" : variable;
  while (!rest.empty()) {
    const std::string_view path = rest.substr(0, rest.find(':'));
    rest.remove_prefix(std::min(rest.size(), path.size() + 1));
    if (!path.starts_with('/')) {
      throw InputError(std::string(kPluginsVariable) +
                       ": expected absolute paths with ':' between them, got '" +
                       printable(std::string(path)) + "'");
    }
    load_plugin(path, registries);
  }
}

}  // namespace steelyard
