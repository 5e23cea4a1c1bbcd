#include "steelyard/framework/files/folders.h"

#include <algorithm>
#include <cerrno>
#include <stdexcept>

#include "steelyard/framework/files/files.h"
#include "steelyard/framework/tensor/error.h"

namespace steelyard {

void throw_cannot_create(const std::filesystem::path& path, std::error_code reason) {
  const std::string message = printable(path.string()) + ": cannot create: " + reason.message();
  const bool full = reason == std::errc::no_space_on_device || reason.value() == EDQUOT;
  if (full) throw std::runtime_error(message);
  throw InputError(message);
}

void create_folders(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw_cannot_create(path, error);
}

void require_folder(const std::filesystem::path& path, const std::string& content) {
  if (is_folder(path)) return;
  throw InputError(printable(path.string()) + ": expected a folder " + content +
                   (path_exists(path) ? ", got a file" : ", there is nothing by that name"));
}

std::filesystem::path only_one_of(const std::filesystem::path& folder,
                                  const std::vector<std::string>& names) {
  std::vector<std::filesystem::path> there;
  for (const std::string& name : names) {
    if (path_exists(folder / name)) there.push_back(folder / name);
  }
  return only_one_of(there);
}

std::filesystem::path only_one_of(const std::vector<std::filesystem::path>& there) {
  if (there.size() > 1) {
    throw InputError(printable(there[1].string()) + ": expected it or " +
                     printable(there[0].filename().string()) + ", got both: remove one");
  }
  return there.empty() ? std::filesystem::path() : there[0];
}

std::vector<std::filesystem::path> folder_entries(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    entries.push_back(at->path());
  }
  if (error) throw InputError(printable(folder.string()) + ": " + error.message());
  std::sort(entries.begin(), entries.end());
  return entries;
}

}  // namespace steelyard
