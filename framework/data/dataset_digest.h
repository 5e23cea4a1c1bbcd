// A digest of what a run is trained on.
#pragma once

#include <span>
#include <string>

#include "steelyard/framework/data/dataset.h"

namespace steelyard {

// SHA-256, in hexadecimal, over every sample of the datasets in their order: dtypes and shapes,
// then all bytes of inputs and targets; of images in files, the files' bytes. Another value, order
// or number of samples gives another digest. Pieces of kDigestPieceBytes are hashed in parallel,
// and the digest is that of their digests: it does not depend on the number of threads. Datasets
// without samples are left out.
inline constexpr std::int64_t kDigestPieceBytes = std::int64_t{4} << 20;
std::string digest_of(std::span<const Dataset> datasets);

}  // namespace steelyard
