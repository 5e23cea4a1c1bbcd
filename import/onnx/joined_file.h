// ONNX files of a graph that was cut: what was imported comes back as a file of integers, and the
// nodes behind it are added as the float file has them.
#pragma once

#include <filesystem>

namespace steelyard::imports {

// Writes `joined`: `body`, whose outputs are values of `source`, the float file, and the nodes of
// `source` that compute its outputs from them, with the inputs and outputs of `source`; and `rest`:
// those nodes as a file of their own. Both are of the newer operation set of the two, and nodes of
// the older one are rewritten. Throws InputError where a file cannot be read or written, or a node
// has no newer form.
void join_files(const std::filesystem::path& source, const std::filesystem::path& body,
                const std::filesystem::path& rest, const std::filesystem::path& joined);

}  // namespace steelyard::imports
