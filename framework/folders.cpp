#include "steelyard/framework/folders.h"

#include <cerrno>
#include <stdexcept>
#include <string>

#include "steelyard/framework/error.h"
#include "steelyard/framework/printable.h"

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

}  // namespace steelyard
