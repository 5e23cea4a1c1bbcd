// What is in a zip archive.
// Source: https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT, 4.3 (with Zip64).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "steelyard/framework/data/arrays/byte_range.h"

namespace steelyard {

inline constexpr std::string_view kZipMagic{"PK\x03\x04", 4};

// The files in the archive: read from it where they are stored, unpacked to memory and held against
// their checksum where they are packed by deflate. Throws InputError that names the archive for
// other methods, encryption, two files of one name and whatever is damaged.
std::map<std::string, std::shared_ptr<const ByteRange>> read_zip(
    const std::shared_ptr<const InputFile>& file);

}  // namespace steelyard
