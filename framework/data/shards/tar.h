// What is in a tar archive.
// Source: POSIX.1-2017, pax, "ustar Interchange Format" and "pax Extended Header"; GNU tar's
// manual, "Basic Tar Format", for its long names and large sizes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "steelyard/framework/files/files.h"

namespace steelyard {

// A regular file in an archive.
struct TarMember {
  std::string name = {};
  std::uint64_t begin = 0;  // of its bytes in the archive
  std::uint64_t size = 0;
};

// The regular files in their order; folders are passed over. Throws InputError that names the
// archive for links, devices and what is damaged or cut off.
std::vector<TarMember> tar_members(const InputFile& archive);

}  // namespace steelyard
