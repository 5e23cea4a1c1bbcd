// NumPy's arrays in .npy and .npz files.
// Source: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "steelyard/framework/data/arrays/byte_range.h"
#include "steelyard/framework/data/arrays/stored_array.h"

namespace steelyard {

// The array of a .npy file: reads its header. Throws InputError that starts with `name` for what is
// no such array, of other types or orders, and of another length than the header says.
StoredArray read_npy(std::shared_ptr<const ByteRange> bytes, const std::string& name);

// The arrays of a .npz file by their names, without ".npy", or the one of a .npy file as "". Arrays
// that are packed (numpy.savez_compressed) are unpacked to memory. Throws InputError.
std::map<std::string, StoredArray> read_npy_file(const std::filesystem::path& path);

}  // namespace steelyard
