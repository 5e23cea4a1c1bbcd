// NumPy's arrays in .npy and .npz files.
// Source: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/framework/data/arrays/stored_array.h"
#include "steelyard/framework/files/byte_range.h"
#include "steelyard/framework/files/zip.h"

namespace steelyard {

// The array of a .npy file: reads its header. Throws InputError that starts with `name` for what is
// no such array, of other types or orders, and of another length than the header says.
StoredArray read_npy(std::shared_ptr<const ByteRange> bytes, const std::string& name);

// The arrays of a .npz file by their names, without ".npy", or the one of a .npy file as "".
class NpyFile {
 public:
  // Throws InputError for another file, and for archives of other files than arrays.
  explicit NpyFile(const std::filesystem::path& path);

  std::vector<std::string> names() const;
  bool contains(const std::string& name) const;
  // Reads the array's header. One that is packed (numpy.savez_compressed) is unpacked to memory,
  // once; the checksum of an archive's array is looked at. Throws InputError where there is no such
  // array, or where it is damaged.
  StoredArray array(const std::string& name);

 private:
  std::string name_;
  std::shared_ptr<const InputFile> file_;
  std::optional<ZipFile> archive_;  // none of a .npy file
};

}  // namespace steelyard
