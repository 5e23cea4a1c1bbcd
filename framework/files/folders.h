// Making and finding folders and files: errors name the path and the reason.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace steelyard {

// Throws std::runtime_error "path: cannot create: reason" for a full disk, which is no error in the
// user's input; InputError for all other reasons.
[[noreturn]] void throw_cannot_create(const std::filesystem::path& path, std::error_code reason);

// Creates a folder and its missing parents; throws likewise.
void create_folders(const std::filesystem::path& path);

// Throws InputError "path: expected a folder CONTENT", and what is there instead, unless the path
// is a folder.
void require_folder(const std::filesystem::path& path, const std::string& content);

// The one of several files or folders that is there, each `folder` / a name; empty where none is.
// Throws InputError where there are two.
std::filesystem::path only_one_of(const std::filesystem::path& folder,
                                  const std::vector<std::string>& names);
// The only one of paths that are there; empty where none is given. Throws InputError where there
// are two.
std::filesystem::path only_one_of(const std::vector<std::filesystem::path>& there);

// What is in a folder, by name. Throws InputError where it cannot be read.
std::vector<std::filesystem::path> folder_entries(const std::filesystem::path& folder);

}  // namespace steelyard
